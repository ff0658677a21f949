"""Everything that a step asks of a memory, from the model's states to the weights of the neighbours."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.ivf import search_settings, search_threads
from ibidem.native.library import dense, require
from ibidem.native.mixture import Best, check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.native.beams import NativeBeams
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


class _Consultation(ctypes.Structure):
    """Consultation of native/consult.cpp."""

    _fields_ = (
        ("compactor", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("ivf", ctypes.c_void_p),
        ("settings", ctypes.c_void_p),
        ("brief", ctypes.c_void_p),
        ("live", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("value_count", ctypes.c_int64),
        ("metak", ctypes.c_void_p),
    )


class Asking(NamedTuple):
    """Which hypotheses ask a memory: none farther than `within` behind the best of its sentence, in log-probability.

    Those farther than `brief_behind` behind ask briefly, which is to say that less is looked through for them, and so
    do those for which the model gives some token more than the probability `brief_above`.
    """

    within: float
    brief_behind: float
    brief_above: float


class _Asking(ctypes.Structure):
    """Asking of native/consult.cpp."""

    _fields_ = tuple((name, ctypes.c_float) for name in Asking._fields)


class NativeConsultation:
    """A compactor, an index, the values [n] of its entries and a Meta-k Network, asked in one call.

    It finds what they find when each is called by itself, which for the few rows of a step costs a good deal of Python:
    here arguments are checked and answers wrapped once. brief: for hypotheses that ask briefly; live, threads: as for
    `Ivf.search`.
    """

    def __init__(
        self,
        compactor: NativeCompactor,
        ivf: Ivf,
        probing: Probing,
        brief: Probing,
        values: Tensor,
        metak: NativeMetaK,
        *,
        live: NDArray[np.uint16] | None = None,
        threads: int | None = None,
    ) -> None:
        # What the library points to must live as long as this.
        self._compactor, self._ivf, self._metak, self._live = compactor, ivf, metak, live
        self._settings, self._brief = search_settings(metak.k, probing), search_settings(metak.k, brief)
        self._values = dense(values, torch.int64)
        self._threads = threads
        self._parts = _Consultation(
            compactor.address,
            compactor.inputs,
            ivf.address,
            ctypes.addressof(self._settings),
            ctypes.addressof(self._brief),
            None if live is None else live.ctypes.data,
            self._values.data_ptr(),
            len(self._values),
            metak.address,
        )
        self._address = ctypes.addressof(self._parts)
        self._consult, self._choose = require().consult, require().choose

    def __call__(self, states: Tensor, group_size: int = 1) -> Answer:
        """What is found for states [rows, d]; together: see `Ivf.search`."""
        plain, k = self._checked(states), self._metak.k
        rows = len(plain)
        near, entries = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int64)
        values, base, weights = torch.empty_like(entries), torch.empty(rows), torch.empty_like(near)
        done = self._consult(
            self._address,
            plain.data_ptr(),
            rows,
            group_size,
            *(one.data_ptr() for one in (near, entries, values, base, weights)),
            search_threads(rows, self._threads),
        )
        self._check(done, rows)
        return Answer(near, entries, values, base, weights)

    def choose(
        self, states: Tensor, logits: Tensor, beams: NativeBeams, asking: Asking, count: int, banned: Sequence[int]
    ) -> Best:
        """The `count` best tokens of the mixture for the hypotheses of beams; see `best_of_mixture`.

        states: [rows, d]; logits: [rows, V].
        """
        plain, given = self._checked(states), dense(logits)
        rows, size = given.shape
        if len(plain) != rows or rows != beams.rows:
            raise ValueError(f"{len(plain)} states and {rows} rows of logits were given of {beams.rows} hypotheses")
        mask, banned_count = check_count(count, size, banned)
        scores, tokens = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
        done = self._choose(
            self._address,
            ctypes.byref(_Asking(*asking)),
            beams.handle,
            plain.data_ptr(),
            rows,
            beams.beam,
            given.data_ptr(),
            size,
            mask.data_ptr(),
            banned_count,
            count,
            scores.data_ptr(),
            tokens.data_ptr(),
            search_threads(rows, self._threads),
        )
        self._check(done, rows)
        return Best(scores, tokens)

    def _checked(self, states: Tensor) -> Tensor:
        if states.shape[1] != self._compactor.inputs:
            raise ValueError(
                f"states of {states.shape[1]} numbers were given to a compactor of {self._compactor.inputs} inputs"
            )
        return dense(states)

    def _check(self, done: int, rows: int) -> None:
        if done < 0:
            raise IndexError(f"an entry is none of the {len(self._values)} whose values are known")
        if not done:
            raise MemoryError(f"there is no room to search for {rows} states")
