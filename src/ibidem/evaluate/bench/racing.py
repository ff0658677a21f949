"""Contenders side by side: the same batches in turn, so that a busy machine is busy for all of them.

A round is run in heats of a few batches, each by every contender: a machine whose clock changes from second to second,
as those do that others use too, changes it for all.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ibidem.errors import UsageError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.evaluate.bench.contenders import System

    Batches = Sequence[Sequence[Sequence[int]]]

# Of a round: few enough that threads which one contender leaves spinning for a moment disturb the next one little.
_HEATS = 8


@dataclass(frozen=True)
class Round:
    """What one contender did with all batches once: seconds by the clock and of the processor, and tokens."""

    seconds: float
    processor_seconds: float
    tokens: int

    def __add__(self, other: Round) -> Round:
        return Round(
            self.seconds + other.seconds,
            self.processor_seconds + other.processor_seconds,
            self.tokens + other.tokens,
        )


@dataclass(frozen=True)
class Benchmark:
    """All rounds of all contenders for one size of batch and one beam."""

    batch: int
    beam: int
    sentences: int
    rounds: dict[str, list[Round]]

    def speed(self, name: str) -> float:
        """Median tokens a second by the clock."""
        return statistics.median(done.tokens / done.seconds for done in self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times as fast one contender is as another, sentences by the clock: the median over the rounds."""
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return statistics.median(theirs.seconds / mine.seconds for mine, theirs in pairs)

    def to_json(self) -> dict[str, Any]:
        """Figures of every contender, and its ratio to every other."""
        return {
            "batch": self.batch,
            "beam": self.beam,
            "sentences": self.sentences,
            "contenders": {
                name: {
                    "tokens_per_second": self.speed(name),
                    "sentences_per_second": statistics.median(self.sentences / done.seconds for done in rounds),
                    "seconds": [done.seconds for done in rounds],
                    "processor_seconds": [done.processor_seconds for done in rounds],
                    "tokens": rounds[0].tokens,
                    "speed_over": {other: self.ratio(name, other) for other in self.rounds if other != name},
                }
                for name, rounds in self.rounds.items()
            },
        }


def run_benchmark(
    contenders: Sequence[System],
    sources: Sequence[Sequence[int]],
    *,
    batch: int,
    beam: int,
    rounds: int = 3,
    device: torch.device | None = None,
    progress: Progress = silent,
) -> Benchmark:
    """Translate all sources with each contender, `rounds` times, after a round that does not count.

    Caches, pages and threads are cold at first, and rooms for the largest batch are made when it comes.
    """
    if not sources or rounds < 1:
        raise UsageError("A race needs at least one sentence and one round.")
    batches = cut_batches(sources, batch)
    heats = min(_HEATS, len(batches))
    done: dict[str, list[Round]] = {contender.name: [] for contender in contenders}
    total = (rounds + 1) * heats
    for number in range(rounds + 1):
        found = {contender.name: Round(0.0, 0.0, 0) for contender in contenders}
        for heat in range(heats):
            # Each heat begins with another one, so that none always comes first.
            for place in range(len(contenders)):
                contender = contenders[(number + heat + place) % len(contenders)]
                found[contender.name] += _run(contender, batches[heat::heats], beam, device)
            finished = number * heats + heat + 1
            progress(f"Batch {batch}, beam {beam}", finished / total, finished, "heats")
        if number:
            for name, measured in found.items():
                done[name].append(measured)
    return Benchmark(batch, beam, len(sources), done)


def cut_batches(sources: Sequence[Sequence[int]], batch: int) -> list[list[Sequence[int]]]:
    """The sources in batches of like length, as a translator makes them."""
    by_length = sorted(sources, key=len)
    return [by_length[first : first + batch] for first in range(0, len(by_length), batch)]


def _run(contender: System, batches: Batches, beam: int, device: torch.device | None) -> Round:
    _wait(device)
    began, began_processor = time.perf_counter(), time.process_time()
    tokens = sum(contender.translate(batch, beam) for batch in batches)
    _wait(device)
    return Round(time.perf_counter() - began, time.process_time() - began_processor, tokens)


def _wait(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
