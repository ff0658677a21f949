"""Rows that translate: a test set by a system, our own sentences by a system, a test set by a fine-tuned model."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from safetensors.torch import load_file

from ibidem.combine import load_combiner
from ibidem.decode import BaseScorer, SearchSettings, Translator, load_memory_scorer
from ibidem.evaluate import score
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.reproduce.bootstrap import MATCHES, count_matches
from ibidem.reproduce.data import own_sentences
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.stages import WEIGHTS, FineTuned
from ibidem.reproduce.system import EXACT, System, assemble
from ibidem.reproduce.workspace import with_sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.decode import Scorer
    from ibidem.model import BaseModel
    from ibidem.reproduce.workspace import Stage, Workspace

# The authors' decoding, as in their scripts: --beam 4 --lenpen 0.6 --max-len-a 1.2 --max-len-b 10. They split no
# long lines, so every row translates with piece_tokens=None.
AUTHORS = SearchSettings(
    beam=4, length_penalty=0.6, max_length_ratio=1.2, max_length_extra=10, retrieval_margin=math.inf
)

# Notes of a stage that the row states itself, or that are too long to repeat.
_OMITTED = ("stage", "texts", "history")


class _SystemRow:
    """What the rows that translate with one system share."""

    system: System

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None

    @property
    def seed(self) -> int:
        return self.system.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        parts = assemble(self.system)
        return () if parts is None else tuple(dict.fromkeys(parts))


@dataclass(frozen=True)
class Translation(_SystemRow):
    """Translate the test set, or another part, of a domain with a system and score it.

    Args:
        system: System that translates.
        test: Domain of the text.
        part: Part of the domain.
        search: Settings of beam search.
    """

    system: System
    test: str
    part: str = "test"
    search: SearchSettings = AUTHORS

    @property
    def name(self) -> str:
        return f"{self.test}/{self.part} {name_system(self.system)}"

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.test, self.part),)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 60 + 3e-5 * count_pairs(self.system.corpus)

    def measure(self, workspace: Workspace) -> Measured:
        sources, references = workspace.pairs(self.test, self.part)
        translator = make_translator(workspace, workspace.model, self.search)
        translations = translator.translate(sources, scorer=open_scorer(workspace, self.system))
        return score_translations(translations, references, describe_stages(workspace, self.stages))


@dataclass(frozen=True)
class OwnTranslation(_SystemRow):
    """Translate the sentences written for this project with a system; they may be published.

    Args:
        system: System that translates.
        domain: Domain of the sentences.
        search: Settings of beam search.
    """

    system: System
    domain: str = "software"
    search: SearchSettings = AUTHORS

    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def name(self) -> str:
        return f"own/{self.domain} {name_system(self.system)}"

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + 3e-5 * count_pairs(self.system.corpus)

    def measure(self, workspace: Workspace) -> Measured:
        chosen = [sentence for sentence in own_sentences() if sentence.domain == self.domain]
        sources, references = [sentence.german for sentence in chosen], [sentence.english for sentence in chosen]
        translator = make_translator(workspace, workspace.model, self.search)
        translations = translator.translate(sources, scorer=open_scorer(workspace, self.system))
        return score_translations(translations, references, describe_stages(workspace, self.stages))


@dataclass(frozen=True)
class FineTunedTranslation:
    """Translate the test set of a domain with a fine-tuned model, without a memory.

    Args:
        model: Fine-tuned model.
        test: Domain of the test set.
        search: Settings of beam search.
    """

    model: FineTuned
    test: str
    search: SearchSettings = AUTHORS

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        settings = self.model.settings
        corpus = "+".join(self.model.corpus)
        return f"{self.test}/test fine-tuned on {corpus} {settings.updates} updates seed={settings.seed}"

    @property
    def seed(self) -> int:
        return self.model.settings.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.model,)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.test, "test"),)

    def estimate_seconds(self, _count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 50

    def measure(self, workspace: Workspace) -> Measured:
        sources, references = workspace.pairs(self.test, "test")
        tuned = load_model(workspace.setting.model, device=workspace.setting.device)
        tuned.network.load_state_dict(load_file(workspace.folder(self.model) / WEIGHTS, str(workspace.device)))
        translations = make_translator(workspace, tuned, self.search).translate(sources)
        return score_translations(translations, references, {"stages": {"finetuned": workspace.notes(self.model)}})


def open_scorer(workspace: Workspace, system: System) -> Scorer:
    """Open the scorer of a system in a workspace where its stages are built."""
    parts = assemble(system)
    if parts is None:
        return BaseScorer()
    combiner = load_combiner(Memory.open(workspace.folder(parts.tuned)), "adaptive")
    memory = Memory.open(workspace.folder(parts.memory))
    return load_memory_scorer(memory, workspace.model, combiner=combiner, index=system.index)


def make_translator(workspace: Workspace, model: BaseModel, search: SearchSettings) -> Translator:
    """Make a translator of a model without a memory, with the workspace's batch size."""
    return Translator(model, settings=search, batch_size=workspace.batch_size, piece_tokens=None)


def score_translations(translations: list[str], references: list[str], notes: dict[str, Any]) -> Measured:
    """Score translations; their hash shows whether two runs gave the same ones."""
    scores = score(translations, references)
    text = "\n".join(translations).encode()
    figures = {
        "sentences": len(references),
        "scores": {found.name: found.value for found in scores},
        "signatures": {found.name: found.signature for found in scores},
        "translations_sha256": hashlib.sha256(text).hexdigest(),
    }
    return Measured({**figures, **notes}, {MATCHES: count_matches(translations, references)}, translations)


def describe_stages(workspace: Workspace, stages: tuple[Stage, ...]) -> dict[str, Any]:
    """Return the notes of all stages by kind, and the sizes of the searched memory, which is the first stage."""
    if not stages:
        return {}
    memory = Memory.open(workspace.folder(stages[0]))
    # Of two stages of one kind, as with a general compactor, the one nearest to the row counts.
    notes: dict[str, Any] = {}
    for stage in dict.fromkeys(source for last in stages for source in with_sources(last)):
        if workspace.is_made(stage):
            shown = {name: note for name, note in workspace.notes(stage).items() if name not in _OMITTED}
            notes.setdefault(type(stage).__name__.lower(), shown)
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
    """Return a short name of a system."""
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
        groups = {"ngram": f" n={system.prune.group_n}", "consistent": " consistent"}.get(system.prune.groups or "", "")
        words.append(f"{system.prune.strategy} {system.prune.rate:g}{groups}")
    if system.index != EXACT:
        words.append(f"index={system.index}")
    return " ".join([*words, f"seed={system.seed}"])
