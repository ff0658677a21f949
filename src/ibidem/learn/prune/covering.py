"""Entries that the base model and the rest of the memory cover: what would be said without them.

The paper's costs are those of the base model alone: what the memory says ten times and the model never looks as dear as
what is said once. Here an entry costs what its token costs the model *with* the memory, the entry itself left out.
Entries go cheapest first, each judged by what is left, and the nearest one that speaks for it then stays for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ibidem.learn.prune.keeping import count_wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ibidem.learn.prune.settings import PruneSettings

# An entry goes where its token has at least this probability without it; lower steps follow as long as more must go.
THRESHOLDS = (0.999, 0.995, 0.99, 0.98, 0.96, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)

# Entries of a run are judged together, by what was left before it.
_RUNS = 32
_LEAST_RUN, _LONGEST_RUN = 64, 1 << 17


class Cover(NamedTuple):
    """What is said of some entries' tokens without them.

    probabilities [n] float32; supporters [n] int64, the nearest other entry with the same token, -1 where none is near.
    """

    probabilities: NDArray[np.float32]
    supporters: NDArray[np.int64]


class Coverage(Protocol):
    """Who covers whom in a memory."""

    def look(self, entries: NDArray[np.int64], kept: NDArray[np.bool_]) -> Cover:
        """The cover of entries [n] by the kept ones [all entries], each by others than itself."""
        ...


class Left(NamedTuple):
    """Which entries are kept [entries], and which of them stand for one that went [entries]."""

    kept: NDArray[np.bool_]
    supporting: NDArray[np.bool_]


def remove_covered(coverage: Coverage, size: int, settings: PruneSettings) -> Left:
    """Keep the share asked for, exactly; what nobody else says goes last, and then without regard to supporters."""
    left = Left(np.ones(size, np.bool_), np.zeros(size, np.bool_))
    surplus = size - count_wanted(size, settings.kept_share)
    generator = np.random.default_rng(settings.seed)
    first = np.empty(size, np.float32)
    for run in _runs(np.arange(size), size):
        first[run] = coverage.look(run, left.kept).probabilities
    for guarded in (True, False):
        for threshold in THRESHOLDS:
            candidates = np.flatnonzero(left.kept & (first >= threshold))
            for run in _runs(generator.permutation(candidates), size):
                if surplus <= 0:
                    return left
                surplus -= _remove(coverage, left, run, threshold, surplus, guarded=guarded)
    return left


def _remove(
    coverage: Coverage, left: Left, run: NDArray[np.int64], threshold: float, most: int, *, guarded: bool
) -> int:
    """Remove what is covered of a run of entries, and say how many went."""
    if guarded:
        run = run[~left.supporting[run]]
    cover = coverage.look(run, left.kept)
    goes = cover.probabilities >= threshold
    if guarded:
        goes &= cover.supporters >= 0
        # What speaks for another of the run stays, this time at least: the two may speak for each other.
        needed = np.zeros(len(left.kept), np.bool_)
        needed[cover.supporters[goes]] = True
        goes &= ~needed[run]
    gone = np.flatnonzero(goes)[:most]
    left.kept[run[gone]] = False
    if guarded:
        left.supporting[cover.supporters[gone]] = True
    return len(gone)


def _runs(entries: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    length = min(max(size // _RUNS, _LEAST_RUN), _LONGEST_RUN)
    for start in range(0, len(entries), length):
        yield entries[start : start + length]
