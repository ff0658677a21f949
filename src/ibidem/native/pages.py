"""Room in large pages, for what is read here and there a thousand times a second."""

from __future__ import annotations

import contextlib
import mmap
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_CACHE_LINE = 64
_LARGE_PAGE = 2 << 20


def in_large_pages(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copies of arrays, side by side in large pages where the system has them: the CPU then knows where they lie.

    Arrays that would not fill one page are given back as they are.
    """
    ends = list(accumulate(-(-array.nbytes // _CACHE_LINE) * _CACHE_LINE for array in arrays.values()))
    if not ends or ends[-1] < _LARGE_PAGE:
        return dict(arrays)
    room = mmap.mmap(-1, ends[-1] + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a wish: where there are none, small ones do
        room.madvise(mmap.MADV_HUGEPAGE)
    everything = np.frombuffer(room, np.uint8)
    everything = everything[-everything.ctypes.data % _LARGE_PAGE :]
    copies = {}
    for (name, array), begin in zip(arrays.items(), [0, *ends], strict=False):
        copies[name] = everything[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        copies[name][...] = array
    return copies
