"""Timing of systems side by side, and the shares of a translation's parts in its time.

All systems translate the same batches in turn. A round is cut into parts of a few batches, and every system translates
a part before the next part begins, so that changes of the machine's clock or load affect all systems alike.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ibidem.combine import best_candidates
from ibidem.decode import MemoryScorer, SearchSettings, beam_search
from ibidem.errors import UsageError
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.evaluate.bench.systems import System
    from ibidem.model import BaseModel

    Batches = Sequence[Sequence[Sequence[int]]]

# Parts of a round: few, so that threads that a system leaves spinning for a moment hardly disturb the next system.
_PARTS = 8


@dataclass(frozen=True)
class Round:
    """Hold the cost of all batches, translated once by one system.

    Attributes:
        seconds: Wall-clock time.
        processor_seconds: Processor time of all threads.
        tokens: Number of generated tokens.
    """

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
    """Hold all rounds of all systems for one batch size and one beam.

    Attributes:
        batch: Sentences of a batch.
        beam: Beam size.
        sentences: Sentences of a round.
        rounds: The rounds of each system by name.
    """

    batch: int
    beam: int
    sentences: int
    rounds: dict[str, list[Round]]

    def speed(self, name: str) -> float:
        """Return the median tokens a second of a system, by wall-clock time.

        Args:
            name: Name of the system.
        """
        return statistics.median(done.tokens / done.seconds for done in self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """Return how many times as fast one system is as another.

        Args:
            name: Name of the system.
            other: Name of the system that it is compared with.

        Returns:
            The median over the rounds of other's time divided by the system's time; above 1 if the system is faster.
        """
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return statistics.median(theirs.seconds / own.seconds for own, theirs in pairs)

    def to_json(self) -> dict[str, Any]:
        """Return the figures of every system, and its ratio to every other, as JSON."""
        return {
            "batch": self.batch,
            "beam": self.beam,
            "sentences": self.sentences,
            "systems": {
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
    systems: Sequence[System],
    sources: Sequence[Sequence[int]],
    *,
    batch: int,
    beam: int,
    rounds: int = 3,
    device: torch.device | None = None,
    progress: Progress = silent,
) -> Benchmark:
    """Time all systems on the same sources, after one round that is not counted.

    The first round warms up caches, pages and threads, and allocates buffers for the largest batch.

    Args:
        systems: The systems.
        sources: The token ids of each source sentence.
        batch: Sentences of a batch.
        beam: Beam size.
        rounds: Number of counted rounds.
        device: Device to wait for; None for a CPU.
        progress: Progress callback.

    Returns:
        The rounds of all systems.

    Raises:
        UsageError: There is no sentence or no round.
    """
    if not sources or rounds < 1:
        raise UsageError("A benchmark needs at least one sentence and one round.")
    batches = cut_batches(sources, batch)
    parts = min(_PARTS, len(batches))
    done: dict[str, list[Round]] = {system.name: [] for system in systems}
    total = (rounds + 1) * parts
    for number in range(rounds + 1):
        found = {system.name: Round(0.0, 0.0, 0) for system in systems}
        for part in range(parts):
            # Each part begins with another system, so that none is always the first.
            for place in range(len(systems)):
                system = systems[(number + part + place) % len(systems)]
                found[system.name] += _time_batches(system, batches[part::parts], beam, device)
            finished = number * parts + part + 1
            progress(f"Batch {batch}, beam {beam}", finished / total, finished, "parts")
        if number:
            for name, measured in found.items():
                done[name].append(measured)
    return Benchmark(batch, beam, len(sources), done)


def cut_batches(sources: Sequence[Sequence[int]], batch: int) -> list[list[Sequence[int]]]:
    """Cut sources into batches of similar length, as a translator does.

    Args:
        sources: The token ids of each source sentence.
        batch: Sentences of a batch, at least 1.

    Returns:
        The batches, shortest sentences first; the last one may be smaller.

    Examples:
        >>> cut_batches([[1, 2, 3], [4], [5, 6]], batch=2)
        [[[4], [5, 6]], [[1, 2, 3]]]
    """
    by_length = sorted(sources, key=len)
    return [by_length[first : first + batch] for first in range(0, len(by_length), batch)]


def _time_batches(system: System, batches: Batches, beam: int, device: torch.device | None) -> Round:
    _synchronize(device)
    began, began_processor = time.perf_counter(), time.process_time()
    tokens = sum(system.translate(batch, beam) for batch in batches)
    _synchronize(device)
    return Round(time.perf_counter() - began, time.process_time() - began_processor, tokens)


def _synchronize(device: torch.device | None) -> None:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_shares(model: BaseModel, scorer: MemoryScorer, batches: Batches, beam: int) -> dict[str, float]:
    """Measure the share of encoder, decoder, search, combiner, mixture and the rest in the time of a translation.

    Args:
        model: The base model.
        scorer: The scorer of a memory.
        batches: Batches of token ids.
        beam: Beam size.

    Returns:
        The share of each part; they sum to 1.
    """
    watch = _Stopwatch(model.device)

    def start(*given: Any) -> Any:
        decoding = model.start(*given)
        return _Timed(decoding, {"step": watch.timed("decoder", decoding.step)})

    timed_model: Any = _Timed(model, {"start": watch.timed("encoder", start)})
    index: Any = _Timed(scorer.index, {"search": watch.timed("search", scorer.index.search)})
    combiner: Any = _Timed(scorer.combiner, {"weigh": watch.timed("combiner", scorer.combiner.weigh)})
    timed_scorer = MemoryScorer(index, scorer.table, combiner)
    best = watch.timed("mixture", best_candidates)
    settings = SearchSettings(beam=beam)
    translate = watch.timed("all", lambda batch: beam_search(timed_model, batch, settings, timed_scorer, best=best))
    for batch in batches:
        translate(batch)
    total = watch.seconds.pop("all")
    shares = {name: seconds / total for name, seconds in watch.seconds.items()}
    return {**shares, "beams and the rest": 1 - sum(shares.values())}


class _Stopwatch:
    """Seconds by name; on a GPU each part waits for the device, which an unmeasured translation does not."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function with its time added to `seconds[name]`."""

        def measured(*given: Any, **named: Any) -> Any:
            _synchronize(self._device)
            began = time.perf_counter()
            result = call(*given, **named)
            _synchronize(self._device)
            self.seconds[name] += time.perf_counter() - began
            return result

        return measured


class _Timed:
    """An object with some of its methods replaced by timed ones."""

    def __init__(self, original: Any, methods: dict[str, Callable[..., Any]]) -> None:
        self._original = original
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._original, name)
