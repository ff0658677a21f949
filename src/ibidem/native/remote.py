"""A search in other processes as a part of the native retrieval step: one Python function searches for all rows."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray
    from torch import Tensor

    Call = Callable[[NDArray[np.float32], NDArray[np.uint8], int, int, NDArray[np.float32], NDArray[np.int64]], object]


class RemoteSearch(NamedTuple):
    """A search in other processes, in the place of an `Ivf`.

    Attributes:
        dimension: Components of a query.
        call: Called as call(queries, modes, group_size, k, distances, entries) once a step, on the thread that calls
            the step. It reads queries [rows, dimension] float32 and modes [rows] uint8 (`SearchMode`), and writes
            squared distances [rows, k] float32 and entries [rows, k] int64, nearest first. These are infinite and -1
            before: rows that are not written have no neighbours, nor have rows that are skipped, whatever is written.
            A neighbour whose distance is not a finite number of at least 0 is left out. The arrays belong to one step:
            later writes have no effect. An exception is raised by the step as it is. `Ivf.search_rows` finds for these
            arguments what a step with that `Ivf` finds. The function must not run a retrieval step itself.
    """

    dimension: int
    call: Call


class _RemoteSearch(ctypes.Structure):
    """RemoteSearch of native/step/remote_step.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("handle", ctypes.c_void_p),
        ("queries", ctypes.c_void_p),
        ("modes", ctypes.c_void_p),
        ("distances", ctypes.c_void_p),
        ("entries", ctypes.c_void_p),
    )


class RemoteRun:
    """The search of one step: its arrays, and whether it succeeded. It must live as long as the call of the library."""

    def __init__(self, search: RemoteSearch, states: Tensor, k: int, group_size: int, *, compacts: bool) -> None:
        """Make the arrays.

        Args:
            search: The search.
            states: [rows, d] on the CPU.
            k: Neighbours of a row.
            group_size: As for `Ivf.search`.
            compacts: Whether a compactor makes queries of the states; else the states are the queries.
        """
        rows = len(states)
        self._call, self._k, self._group_size = search.call, k, group_size
        # Rows that are skipped stay zero: other memory of this process must not get to another one.
        self._queries: NDArray[np.float32] = (
            np.zeros((rows, search.dimension), np.float32) if compacts else states.numpy()
        )
        self._modes = np.zeros(rows, np.uint8)
        self._distances = np.full((rows, k), np.inf, np.float32)
        self._entries = np.full((rows, k), -1, np.int64)
        self._finished = False
        self._error: BaseException | None = None
        arrays = (self._queries, self._modes, self._distances, self._entries)
        self._packed = _RemoteSearch(_ADDRESS, id(self), *(array.ctypes.data for array in arrays))
        self.address = ctypes.addressof(self._packed)

    def run(self) -> bool:
        """Call the function of the search; the library calls this. Returns whether it succeeded."""
        # Views cannot be resized, unlike the arrays.
        queries, modes = self._queries.view(), self._modes.view()
        queries.flags.writeable = modes.flags.writeable = False
        try:
            self._call(queries, modes, self._group_size, self._k, self._distances.view(), self._entries.view())
            self._finished = True
        except BaseException as error:  # also an interrupt: it cannot pass through the library
            self._error = error
        return self._finished

    def check(self) -> None:
        """Raise the exception of the function.

        Raises:
            BaseException: What the function raised.
            RuntimeError: The function was interrupted before it began or after it ended.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        if not self._finished:
            raise RuntimeError("The search in other processes was interrupted.")


def _run(run: Any) -> bool:
    succeeded: bool = run.run()
    return succeeded


# An object passes as its own address.
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object)(_run)
_ADDRESS = ctypes.cast(_FUNCTION, ctypes.c_void_p).value
