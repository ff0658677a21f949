"""The row that measures speed: several systems in turn in one process, so that machine noise affects all alike."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ibidem.decode import SearchSettings, Translator, Work
from ibidem.evaluate import Speed
from ibidem.memory import Memory
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.rows.translation import AUTHORS, name_system, open_scorer
from ibidem.reproduce.system import System, assemble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.reproduce.workspace import Stage, Workspace


@dataclass(frozen=True)
class Timing:
    """Translate evenly chosen sentences of a test set with every system in every round, and time them.

    Args:
        systems: Systems, timed in turn.
        test: Domain of the test set.
        batch: Sentences in a batch.
        batches: Number of batches.
        rounds: Number of rounds.
        search: Settings of beam search.
    """

    systems: tuple[System, ...]
    test: str
    batch: int
    batches: int
    rounds: int
    search: SearchSettings = AUTHORS

    alone: ClassVar[bool] = True
    library: ClassVar[str | None] = None

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

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        loading = 4e-6 * sum(count_pairs(system.corpus) for system in self.systems)
        return 20 + loading + 0.005 * self.batch * self.batches * self.rounds * len(self.systems)

    def measure(self, workspace: Workspace) -> Measured:
        sources, _ = workspace.pairs(self.test, "test")
        chosen = spread_evenly(sources, self.batch * self.batches)
        translator = Translator(workspace.model, settings=self.search, batch_size=self.batch, piece_tokens=None)
        scorers = [open_scorer(workspace, system) for system in self.systems]
        for scorer in scorers:  # the first call compiles and allocates
            translator.translate(chosen[: self.batch], scorer=scorer)
        speeds: list[list[Speed]] = [[] for _ in scorers]
        for _ in range(self.rounds):
            for scorer, found in zip(scorers, speeds, strict=True):
                translator.work = Work()
                translator.translate(chosen, scorer=scorer)
                work = translator.work
                found.append(Speed(work.sentences, work.tokens, work.seconds))
        figures = [
            {"system": name_system(system), **speed_figures(found), **_describe_size(workspace, system)}
            for system, found in zip(self.systems, speeds, strict=True)
        ]
        return Measured({"sentences": len(chosen), "speeds": figures})


def spread_evenly(items: Sequence[str], count: int) -> list[str]:
    """Return at most `count` items, chosen at even distances."""
    if count >= len(items):
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def speed_figures(rounds: Sequence[Speed]) -> dict[str, Any]:
    """Return medians over the rounds, and the tokens a second of each round."""
    return {
        "sentences_per_second": statistics.median(speed.sentences_per_second for speed in rounds),
        "tokens_per_second": statistics.median(speed.tokens_per_second for speed in rounds),
        "milliseconds_per_token": statistics.median(1000 / speed.tokens_per_second for speed in rounds),
        "rounds": [round(speed.tokens_per_second, 2) for speed in rounds],
    }


def _describe_size(workspace: Workspace, system: System) -> dict[str, Any]:
    parts = assemble(system)
    if parts is None:
        return {}
    memory = Memory.open(workspace.folder(parts.memory))
    return {"entries": memory.entries, "bytes": memory.bytes_by_array(), "storage": storage_of(memory.bytes_by_array())}


def storage_of(sizes: dict[str, int]) -> dict[str, int]:
    """Return the bytes of the searched keys and their values (the paper's "original"), and of a stored index."""
    keys = sizes["compact"] if "compact" in sizes else sizes["keys"]
    return {"keys_and_values": keys + sizes["values"], "index": sizes.get("index", 0)}
