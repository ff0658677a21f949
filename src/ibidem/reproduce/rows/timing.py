"""The speed of several systems, measured in turn in one process, so that the machine's moods touch all alike."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ibidem.decode import SearchSettings, Translator, Work
from ibidem.evaluate import Speed
from ibidem.memory import Memory
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.rows.translation import AUTHORS, name_system, open_scorer
from ibidem.reproduce.system import System, assemble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage


@dataclass(frozen=True)
class Timing:
    """Sentences of a test set, drawn evenly, translated by each of some systems in every round."""

    systems: tuple[System, ...]
    test: str
    batch: int
    batches: int
    rounds: int
    search: SearchSettings = AUTHORS

    alone: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"{self.test}/test speed of {len(self.systems)} systems, batch {self.batch}"

    @property
    def seed(self) -> int:
        return max(system.seed for system in self.systems)

    @property
    def stages(self) -> tuple[Stage, ...]:
        parts = (assemble(system) for system in self.systems)
        return tuple(dict.fromkeys(stage for found in parts if found is not None for stage in found))

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.test, "test"),)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        loading = 4e-6 * sum(pairs(system.corpus) for system in self.systems)
        return 20 + loading + 0.005 * self.batch * self.batches * self.rounds * len(self.systems)

    def measure(self, bench: Workspace) -> Measured:
        sources, _ = bench.pairs(self.test, "test")
        chosen = spread_evenly(sources, self.batch * self.batches)
        translator = Translator(bench.model, settings=self.search, batch_size=self.batch, piece_tokens=None)
        scorers = [open_scorer(bench, system) for system in self.systems]
        for scorer in scorers:  # what the first call of each compiles or allocates is nobody's speed
            translator.translate(chosen[: self.batch], scorer=scorer)
        speeds: list[list[Speed]] = [[] for _ in scorers]
        for _ in range(self.rounds):
            for scorer, found in zip(scorers, speeds, strict=True):
                translator.work = Work()
                translator.translate(chosen, scorer=scorer)
                work = translator.work
                found.append(Speed(work.sentences, work.tokens, work.seconds))
        figures = [
            {"system": name_system(system), **speed_figures(found), **_size(bench, system)}
            for system, found in zip(self.systems, speeds, strict=True)
        ]
        return Measured({"sentences": len(chosen), "speeds": figures})


def spread_evenly(items: Sequence[str], count: int) -> list[str]:
    """At most so many of the items, evenly from the first to the last."""
    if count >= len(items):
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def speed_figures(rounds: Sequence[Speed]) -> dict[str, Any]:
    """Medians over the rounds, and what each round gave."""
    return {
        "sentences_per_second": statistics.median(speed.sentences_per_second for speed in rounds),
        "tokens_per_second": statistics.median(speed.tokens_per_second for speed in rounds),
        "milliseconds_per_token": statistics.median(1000 / speed.tokens_per_second for speed in rounds),
        "rounds": [round(speed.tokens_per_second, 2) for speed in rounds],
    }


def _size(bench: Workspace, system: System) -> dict[str, Any]:
    parts = assemble(system)
    if parts is None:
        return {}
    memory = Memory.open(bench.folder(parts.memory))
    return {"entries": memory.entries, "bytes": memory.bytes_by_array(), "storage": storage_of(memory.bytes_by_array())}


def storage_of(sizes: dict[str, int]) -> dict[str, int]:
    """Bytes of the keys that are searched and their values (the paper's "original"), and of a stored index."""
    keys = sizes["compact"] if "compact" in sizes else sizes["keys"]
    return {"keys_and_values": keys + sizes["values"], "index": sizes.get("index", 0)}
