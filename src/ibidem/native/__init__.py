"""Kernels in C++ for what a decoding step does most: optional, called by ctypes, equal to their torch counterparts."""

from ibidem.native.library import native
from ibidem.native.mixture import Best, best_of_mixture

__all__ = ["Best", "best_of_mixture", "native"]
