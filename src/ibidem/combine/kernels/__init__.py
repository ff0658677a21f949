"""Triton kernels of the mixture: Meta-k's weights, and the best tokens; their plain forms are beside, in torch.

Imported only where Triton is.
"""
