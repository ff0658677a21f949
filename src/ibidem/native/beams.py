"""Beam search's own bookkeeping for all sentences of a batch, one call a step."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class _Rules(ctypes.Structure):
    """BeamRules of native/beams.cpp."""

    _fields_ = (("beam", ctypes.c_int64), ("eos", ctypes.c_int64), ("force_end", ctypes.c_int64))


class Finished(NamedTuple):
    """A finished hypothesis: its tokens without the end of sentence, its score, and whether the limit ended it.

    silent: the tokens, by number, about which nobody was asked; see `silence`.
    """

    tokens: list[int]
    score: float
    cut: bool
    silent: tuple[int, ...] = ()


class NativeBeams:
    """`beam` hypotheses of each open sentence, and the best finished ones; limits: the most tokens of each sentence."""

    def __init__(self, limits: Sequence[int], *, beam: int, eos: int, force_end: bool) -> None:
        self.beam = beam
        self._sentences = len(limits)
        self._longest = max(limits, default=0)
        self.open = len(limits)
        library = require()
        counts = torch.tensor(limits, dtype=torch.int64)
        self.handle = library.beams_new(ctypes.byref(_Rules(beam, eos, force_end)), counts.data_ptr(), len(limits))
        if not self.handle:
            raise MemoryError("there is no room for the hypotheses of these sentences")
        self._advance, self._numbers, self._result = library.beams_advance, library.beams_numbers, library.beams_result
        self._silence = library.beams_silence
        weakref.finalize(self, library.beams_free, self.handle)

    @property
    def rows(self) -> int:
        """The number of running hypotheses."""
        return self.open * self.beam

    def advance(self, log_probs: Tensor, tokens: Tensor, counted: float) -> tuple[Tensor, Tensor]:
        """Extend all hypotheses by one of their candidates [rows, m], best first in a row or not.

        counted: what scores are divided by at this length. Gives the rows to go on with and their new tokens; sentences
        that are done leave.
        """
        given, ids = dense(log_probs), dense(tokens, torch.int64)
        rows = self.rows
        if given.shape != ids.shape or given.ndim != 2 or len(given) != rows or given.shape[1] < 1:
            raise ValueError(f"candidates of shape {list(given.shape)} were given to {rows} hypotheses")
        going, last = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.int64)
        still = self._advance(
            self.handle,
            given.data_ptr(),
            ids.data_ptr(),
            given.shape[1],
            counted,
            going.data_ptr(),
            last.data_ptr(),
        )
        if still < 0:
            raise MemoryError("there is no room to go on with these translations")
        if still == self.open:
            return going, last
        self.open = still
        return going[: still * self.beam], last[: still * self.beam]

    def silence(self, most: float) -> Tensor:
        """Which hypotheses [rows] are more than `most` below the best of their sentence, and ask nobody."""
        silent = torch.empty(self.rows, dtype=torch.bool)
        if not self._silence(self.handle, most, silent.data_ptr()):
            raise MemoryError("there is no room to go on with these translations")
        return silent

    def numbers(self) -> Tensor:
        """The numbers of the open sentences [open]."""
        numbers = torch.empty(self.open, dtype=torch.int64)
        self._numbers(self.handle, numbers.data_ptr())
        return numbers

    def results(self, n_best: int) -> list[list[Finished]]:
        """The best finished hypotheses of every sentence, once all are done; an empty one where none was possible."""
        if self.open or not 1 <= n_best <= self.beam:
            raise ValueError(f"{self.open} sentences are open, {n_best} of {self.beam} hypotheses were asked for")
        room, silent = (ctypes.c_int64 * self._longest)(), (ctypes.c_uint8 * self._longest)()
        score, cut = ctypes.c_float(), ctypes.c_int()

        def read(sentence: int, rank: int) -> Finished | None:
            ctypes.memset(silent, 0, self._longest)
            count = self._result(self.handle, sentence, rank, ctypes.byref(score), ctypes.byref(cut), room, silent)
            if count < 0:
                return None
            skipped = tuple(i for i, one in enumerate(silent) if one) if any(silent) else ()
            return Finished(room[:count], score.value, bool(cut.value), skipped)

        found = []
        for sentence in range(self._sentences):
            finished = [one for rank in range(n_best) if (one := read(sentence, rank)) is not None]
            if not finished:
                read(sentence, 0)
                finished = [Finished([], score.value, cut=False)]
            found.append(finished)
        return found
