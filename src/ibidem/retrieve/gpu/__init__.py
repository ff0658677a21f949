"""Search on a GPU: a scan of all keys and an inverted file, each in torch and as Triton kernels.

The torch form of each kernel is its oracle in the tests. The kernel modules are imported only where Triton is
installed. All shapes follow from the numbers of queries and keys, so a search can be captured in a CUDA graph.
"""
