"""Everything that a step asks of a memory, from the model's states to the weights of the neighbours."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.ivf import search_settings, search_threads
from ibidem.native.library import dense, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native.compactor import NativeCompactor
    from ibidem.native.ivf import Ivf, Probing
    from ibidem.native.metak import NativeMetaK


class Answer(NamedTuple):
    """Distances, entries (-1: none), values and weights [rows, k] of the neighbours; base [rows], that of the model."""

    distances: Tensor
    entries: Tensor
    values: Tensor
    base: Tensor
    weights: Tensor


class NativeConsultation:
    """A compactor, an index, the values [n] of its entries and a Meta-k Network, asked one after the other.

    It finds what they find when each is called by itself, which for the few rows of a step costs a good deal of Python:
    here arguments are checked and answers wrapped once. live, threads: as for `Ivf.search`.
    """

    def __init__(
        self,
        compactor: NativeCompactor,
        ivf: Ivf,
        probing: Probing,
        values: Tensor,
        metak: NativeMetaK,
        *,
        live: NDArray[np.uint16] | None = None,
        threads: int | None = None,
    ) -> None:
        # What the library points to must live as long as this.
        self._compactor, self._ivf, self._metak, self._live = compactor, ivf, metak, live
        self._settings = search_settings(metak.k, probing)
        self._values = dense(values, torch.int64)
        self._threads = threads
        # What does not change from call to call, as the library takes it.
        self._search = (ivf.address, ctypes.addressof(self._settings), None if live is None else live.ctypes.data)
        self._table = (self._values.data_ptr(), len(self._values))

    def __call__(self, states: Tensor) -> Answer:
        plain, library, k = dense(states), require(), self._metak.k
        rows, width = plain.shape
        if width != self._compactor.inputs:
            raise ValueError(f"states of {width} numbers were given to a compactor of {self._compactor.inputs} inputs")
        threads = torch.get_num_threads()
        compact = torch.empty(rows, self._compactor.outputs)
        near, entries = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
        values, base, weights = torch.empty_like(entries), torch.empty(rows), torch.empty_like(near)
        queries, distances, found, tokens = (one.data_ptr() for one in (compact, near, entries, values))
        searching = search_threads(rows, self._threads)
        if not (
            library.compactor_apply(self._compactor.address, plain.data_ptr(), rows, queries, threads)
            and library.ivf_search(*self._search, queries, rows, distances, found, searching)
        ):
            raise MemoryError(f"there is no room to search for {rows} states")
        if not library.look_up(*self._table, found, rows * k, tokens):
            raise IndexError(f"an entry is none of the {self._table[1]} whose values are known")
        if not library.metak_weigh(
            self._metak.address, distances, tokens, rows, base.data_ptr(), weights.data_ptr(), threads
        ):
            raise MemoryError("there is no room to weigh neighbours")
        return Answer(near, entries, values, base, weights)
