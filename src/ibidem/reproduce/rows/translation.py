"""A test set translated by a system, and scored."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ibidem.combine import load_combiner
from ibidem.decode import BaseScorer, SearchSettings, Translator, load_memory
from ibidem.evaluate import score
from ibidem.memory import Memory
from ibidem.reproduce.bench import below
from ibidem.reproduce.bootstrap import MATCHES, count_matches
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.system import EXACT, System, assemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.decode import Scorer
    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage

# The authors' decoding, as in their scripts: --beam 4 --lenpen 0.6 --max-len-a 1.2 --max-len-b 10. They split no
# long lines, so every row translates with piece_tokens=None.
AUTHORS = SearchSettings(
    beam=4, length_penalty=0.6, max_length_ratio=1.2, max_length_extra=10, retrieval_margin=math.inf
)

# Of a stage's notes, what the row says itself, or what is too long.
_UNTOLD = ("stage", "texts", "history")


@dataclass(frozen=True)
class Translation:
    """The test set (or another part) of a domain, translated by a system."""

    system: System
    test: str
    part: str = "test"
    search: SearchSettings = AUTHORS

    alone: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"{self.test}/{self.part} {name_system(self.system)}"

    @property
    def seed(self) -> int:
        return self.system.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        parts = assemble(self.system)
        return () if parts is None else tuple(dict.fromkeys(parts))

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.test, self.part),)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 60 + 3e-5 * pairs(self.system.corpus)

    def measure(self, bench: Workspace) -> Measured:
        sources, references = bench.pairs(self.test, self.part)
        translator = Translator(bench.model, settings=self.search, batch_size=bench.batch_size, piece_tokens=None)
        translations = translator.translate(sources, scorer=open_scorer(bench, self.system))
        figures = {**score_figures(translations, references), **describe_stages(bench, self.stages)}
        return Measured(figures, {MATCHES: count_matches(translations, references)}, translations)


def open_scorer(bench: Workspace, system: System) -> Scorer:
    """What scores the next words of a system, on a bench where its stages are made."""
    parts = assemble(system)
    if parts is None:
        return BaseScorer()
    combiner = load_combiner(Memory.open(bench.folder(parts.tuned)), "adaptive")
    memory = Memory.open(bench.folder(parts.memory))
    return load_memory(memory, bench.model, combiner=combiner, index=system.index)


def score_figures(translations: list[str], references: list[str]) -> dict[str, Any]:
    """Scores with their signatures, and what tells whether two runs translated alike."""
    scores = score(translations, references)
    text = "\n".join(translations).encode()
    return {
        "sentences": len(references),
        "scores": {found.name: found.value for found in scores},
        "signatures": {found.name: found.signature for found in scores},
        "translations_sha256": hashlib.sha256(text).hexdigest(),
    }


def describe_stages(bench: Workspace, stages: tuple[Stage, ...]) -> dict[str, Any]:
    """The notes of all stages by kind, and the sizes of the memory that is searched, which comes first."""
    if not stages:
        return {}
    memory = Memory.open(bench.folder(stages[0]))
    # Of two stages of a kind the one nearest to the row counts, as for the memory of a general compactor.
    notes: dict[str, Any] = {}
    for stage in dict.fromkeys(source for last in stages for source in below(last)):
        if bench.is_made(stage):
            told = {name: note for name, note in bench.notes(stage).items() if name not in _UNTOLD}
            notes.setdefault(type(stage).__name__.lower(), told)
    return {
        "memory": {
            "pairs": memory.pairs,
            "tokens": memory.tokens,
            "entries": memory.entries,
            "dimension": memory.dimension,
            "bytes": memory.bytes_by_array(),
        },
        "stages": notes,
    }


def name_system(system: System) -> str:
    """A system in a few words."""
    if not system.corpus:
        return "base"
    words = ["+".join(system.corpus)]
    compact = system.compact
    if compact is None:
        words.append("full")
    elif compact.method != "network":
        words.append(f"{compact.method}{compact.dimension}")
    else:
        objectives = "+".join(name for name, _ in compact.objectives)
        words.append(f"network{compact.dimension} {compact.pivots} {objectives}{'+CL' if compact.clusters else ''}")
        if compact.share < 1:
            words.append(f"share={compact.share:g}")
    if system.compact_corpus:
        words.append(f"from {'+'.join(system.compact_corpus)}")
    words.append(f"k={system.k}")
    if system.prune is not None:
        groups = {"ngram": f" n={system.prune.group_n}", "agreeing": " agreeing"}.get(system.prune.groups or "", "")
        words.append(f"{system.prune.strategy} {system.prune.rate:g}{groups}")
    if system.index != EXACT:
        words.append(f"index={system.index}")
    return " ".join([*words, f"seed={system.seed}"])
