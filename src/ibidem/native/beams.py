"""The hypotheses of a beam search in native code, one call a step for all sentences of a batch."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


# Marks steps that a hypothesis does not have; no entry has this number.
_UNWRITTEN = -2


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence for each of the n tokens of a hypothesis, its end included.

    Attributes:
        log_probs: Log-probabilities in the mixture [n] float32.
        base_log_probs: Log-probabilities in the base model [n] float32.
        weights: The weight of all neighbours in the mixture [n] float32; 0 without neighbours.
        distances: The squared distance of the nearest neighbour [n] float32; infinite without neighbours.
        entries: The nearest neighbour as it was recorded [n] int64; -1 without neighbours.
    """

    log_probs: NDArray[np.float32]
    base_log_probs: NDArray[np.float32]
    weights: NDArray[np.float32]
    distances: NDArray[np.float32]
    entries: NDArray[np.int64]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Evidence):
            return NotImplemented
        return all(np.array_equal(one, another) for one, another in zip(self._parts, other._parts, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(part.tobytes() for part in self._parts))

    @property
    def _parts(self) -> tuple[NDArray[np.generic], ...]:
        return self.log_probs, self.base_log_probs, self.weights, self.distances, self.entries


class _Rules(ctypes.Structure):
    """BeamRules of native/step/beams.h."""

    _fields_ = (("beam", ctypes.c_int64), ("eos", ctypes.c_int64), ("force_end", ctypes.c_int64))


class Finished(NamedTuple):
    """A finished hypothesis.

    Attributes:
        tokens: Its tokens without the end of sentence.
        score: Its normalised log-probability.
        cut: Whether the limit ended it.
        skipped: The positions of tokens that were predicted without retrieval; see `NativeBeams.mask_lagging`.
        evidence: What was recorded of its tokens; None for an empty hypothesis that was never finished.
    """

    tokens: list[int]
    score: float
    cut: bool
    skipped: tuple[int, ...] = ()
    evidence: Evidence | None = None


class NativeBeams:
    """`beam` running hypotheses of each open sentence, and the best finished ones."""

    def __init__(self, limits: Sequence[int], *, beam: int, eos: int, force_end: bool) -> None:
        """Begin with empty hypotheses.

        Args:
            limits: The most tokens of each sentence.
            beam: Hypotheses of a sentence.
            eos: The end-of-sentence token.
            force_end: Whether the end of sentence is forced at the limit.
        """
        self.beam = beam
        self.sentences = len(limits)
        self._longest = max(limits, default=0)
        self.open = len(limits)
        library = require()
        counts = torch.tensor(limits, dtype=torch.int64)
        self.handle = library.beams_new(ctypes.byref(_Rules(beam, eos, force_end)), counts.data_ptr(), len(limits))
        if not self.handle:
            raise MemoryError(f"Out of memory for the hypotheses of {len(limits)} sentences.")
        self._advance, self._numbers, self._result = library.beams_advance, library.beams_numbers, library.beams_result
        self._mask_lagging, self._record = library.beams_mask_lagging, library.beams_record
        weakref.finalize(self, library.beams_free, self.handle)

    @property
    def rows(self) -> int:
        """The number of running hypotheses."""
        return self.open * self.beam

    def advance(self, log_probs: Tensor, tokens: Tensor, divisor: float) -> tuple[Tensor, Tensor]:
        """Extend all hypotheses by one of their candidates; finished sentences leave.

        Args:
            log_probs: Of the candidates [rows, m], in any order.
            tokens: The candidates [rows, m].
            divisor: Of scores at this length.

        Returns:
            The rows that continue and their new tokens.

        Raises:
            ValueError: The shapes are not [rows, m] with m at least 1.
        """
        given, ids = dense(log_probs), dense(tokens, torch.int64)
        rows = self.rows
        if given.shape != ids.shape or given.ndim != 2 or len(given) != rows or given.shape[1] < 1:
            raise ValueError(f"candidates of shape {list(given.shape)} were given to {rows} hypotheses")
        running, last = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.int64)
        still = self._advance(
            self.handle,
            given.data_ptr(),
            ids.data_ptr(),
            given.shape[1],
            divisor,
            running.data_ptr(),
            last.data_ptr(),
        )
        if still < 0:
            raise MemoryError(f"Out of memory for {rows} hypotheses.")
        if still == self.open:
            return running, last
        self.open = still
        return running[: still * self.beam], last[: still * self.beam]

    def mask_lagging(self, margin: float) -> Tensor:
        """Find the hypotheses that score far below the best of their sentence, and record them as skipped.

        Args:
            margin: Difference of log-probabilities above which a hypothesis lags.

        Returns:
            [rows] bool, true where retrieval can be skipped.
        """
        skipped = torch.empty(self.rows, dtype=torch.bool)
        if not self._mask_lagging(self.handle, margin, skipped.data_ptr()):
            raise MemoryError(f"Out of memory for {self.rows} hypotheses.")
        return skipped

    def record(
        self, base_weights: Tensor, distances: Tensor, entries: Tensor, tokens: Tensor, base_log_probs: Tensor
    ) -> None:
        """Record the evidence for the candidates that `advance` receives next; `RetrievalStep` records its own.

        Args:
            base_weights: The weight of the base model [rows].
            distances: The squared distance of the nearest neighbour [rows].
            entries: The nearest neighbour [rows], -1 for none.
            tokens: The candidates [rows, m].
            base_log_probs: Their log-probabilities in the base model [rows, m].

        Raises:
            ValueError: The shapes do not fit.
        """
        rows, states = self.rows, (dense(base_weights), dense(distances), dense(entries, torch.int64))
        ids, log_probs = dense(tokens, torch.int64), dense(base_log_probs)
        if any(part.shape != (rows,) for part in states) or ids.shape != log_probs.shape or len(ids) != rows:
            raise ValueError(f"evidence of other shapes was given to {rows} hypotheses")
        addresses = [part.data_ptr() for part in states]
        if not self._record(self.handle, *addresses, 1, ids.data_ptr(), log_probs.data_ptr(), ids.shape[1]):
            raise MemoryError(f"Out of memory for {rows} hypotheses.")

    def numbers(self) -> Tensor:
        """Return the numbers of the open sentences [open]."""
        numbers = torch.empty(self.open, dtype=torch.int64)
        self._numbers(self.handle, numbers.data_ptr())
        return numbers

    def results(self, n_best: int) -> list[list[Finished]]:
        """Return the best finished hypotheses of every sentence, an empty one where none was possible.

        Args:
            n_best: The most hypotheses of a sentence, from 1 to the beam.

        Returns:
            A list for each sentence, best first.

        Raises:
            ValueError: A sentence is still open, or n_best is not between 1 and the beam.
        """
        if self.open or not 1 <= n_best <= self.beam:
            raise ValueError(f"{self.open} sentences are open; n_best is {n_best}, and must be from 1 to {self.beam}")
        tokens, skipped = (ctypes.c_int64 * self._longest)(), (ctypes.c_uint8 * self._longest)()
        columns, entries = np.empty((self._longest, 4), np.float32), np.empty(self._longest, np.int64)
        score, cut = ctypes.c_float(), ctypes.c_int()

        def read(sentence: int, rank: int) -> Finished | None:
            ctypes.memset(skipped, 0, self._longest)
            entries.fill(_UNWRITTEN)
            count = self._result(
                self.handle,
                sentence,
                rank,
                ctypes.byref(score),
                ctypes.byref(cut),
                tokens,
                skipped,
                columns.ctypes.data,
                entries.ctypes.data,
            )
            if count < 0:
                return None
            positions = tuple(i for i, one in enumerate(skipped) if one) if any(skipped) else ()
            # The end of sentence has evidence but is not counted.
            steps = count + int(count < self._longest and entries[count] != _UNWRITTEN)
            log_probs, base, weights, distances = columns[:steps].T.copy()
            evidence = Evidence(log_probs, base, weights, distances, entries[:steps].copy())
            return Finished(tokens[:count], score.value, bool(cut.value), positions, evidence)

        found = []
        for sentence in range(self.sentences):
            finished = [one for rank in range(n_best) if (one := read(sentence, rank)) is not None]
            if not finished:
                read(sentence, 0)
                finished = [Finished([], score.value, cut=False)]
            found.append(finished)
        return found
