"""Triton kernels of search on a GPU: one pass over keys, the best tiles, and the nearest keys in them.

Every kernel has a plain form in torch, its oracle. Imported only where Triton is. What a program cannot do without
waiting for the host is padded: all shapes follow from the number of queries and keys, so a search can be recorded.
"""
