"""Whether kernels in Triton can run: it comes with PyTorch's CUDA builds for Linux, and needs a device that is one."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def runs_triton(tensor: Tensor) -> bool:
    """Whether a kernel can work where this tensor lies."""
    return tensor.is_cuda and has_triton()
