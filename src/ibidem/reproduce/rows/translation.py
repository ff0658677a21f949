"""Rows that translate: a test set or our own sentences by a system or a fine-tuned model, and the speed of systems."""

from __future__ import annotations

import hashlib
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ibidem.combine import load_combiner
from ibidem.decode import BaseScorer, SearchSettings, Translator, Work, load_memory_scorer
from ibidem.evaluate import Speed, count_bleu, score
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.reproduce.data import own_sentences
from ibidem.reproduce.plan import EXACT, System, assemble
from ibidem.reproduce.results import MATCHES
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.stages import MODEL, DefaultMemory, FineTuned
from ibidem.reproduce.workspace import with_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.decode import Scorer
    from ibidem.model import BaseModel
    from ibidem.reproduce.workspace import Stage, Workspace

# The authors' decoding, as in their scripts: --beam 4 --lenpen 0.6 --max-len-a 1.2 --max-len-b 10. They split no
# lines, so every row translates with split="off" and piece_tokens=None.
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

    Attributes:
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

    Attributes:
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


class _AdaptedRow:
    """What the rows that translate a test set with a fine-tuned model or a default memory share."""

    test: str

    alone: ClassVar[bool] = False
    library: ClassVar[str | None] = None

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.test, "test"),)


@dataclass(frozen=True)
class FineTunedTranslation(_AdaptedRow):
    """Translate the test set of a domain with a fine-tuned model, without a memory.

    Attributes:
        model: Fine-tuned model.
        test: Domain of the test set.
        search: Settings of beam search.
    """

    model: FineTuned
    test: str
    search: SearchSettings = AUTHORS

    @property
    def name(self) -> str:
        settings = self.model.settings
        return f"{self.test}/test {self.model.name} seed={settings.seed}"

    @property
    def seed(self) -> int:
        return self.model.settings.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.model,)

    def estimate_seconds(self, _count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 50

    def measure(self, workspace: Workspace) -> Measured:
        sources, references = workspace.pairs(self.test, "test")
        tuned = load_model(workspace.folder(self.model) / MODEL, device=workspace.setting.device)
        translations = make_translator(workspace, tuned, self.search).translate(sources)
        return score_translations(translations, references, {"stages": {"finetuned": workspace.notes(self.model)}})


@dataclass(frozen=True)
class DefaultTranslation(_AdaptedRow):
    """Translate the test set of a domain with a memory of the defaults of `ibidem learn`, by exact search.

    Attributes:
        memory: Memory, of the base model or a fine-tuned one.
        test: Domain of the test set.
        combiner: Combiner of the memory: "contextual" (the default), "adaptive" or "fixed".
        search: Settings of beam search.
    """

    memory: DefaultMemory
    test: str
    combiner: str = "contextual"
    search: SearchSettings = AUTHORS

    @property
    def name(self) -> str:
        memory = self.memory
        words = [f"{self.test}/test"]
        if memory.model is not None:
            words.append(f"{memory.model.name} +")
        words.append(f"default memory of {'+'.join(memory.corpus)}")
        if memory.prune is not None:
            words.append(f"{memory.prune.strategy} {memory.prune.rate:g} groups={memory.prune.groups}")
        if self.combiner != "contextual":
            words.append(self.combiner)
        return " ".join([*words, f"seed={self.seed}"])

    @property
    def seed(self) -> int:
        return self.memory.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 60 + 3e-5 * count_pairs(self.memory.corpus)

    def measure(self, workspace: Workspace) -> Measured:
        sources, references = workspace.pairs(self.test, "test")
        model, memory = self.memory.load_model(workspace), Memory.open(workspace.folder(self.memory))
        scorer = load_memory_scorer(memory, model, combiner=load_combiner(memory, self.combiner), index=EXACT)
        translations = make_translator(workspace, model, self.search).translate(sources, scorer=scorer)
        return score_translations(translations, references, describe_stages(workspace, self.stages))


def open_scorer(workspace: Workspace, system: System) -> Scorer:
    """Open the scorer of a system in a workspace where its stages are built.

    Args:
        workspace: Model and folders.
        system: The system.

    Returns:
        The scorer of the base model alone where the system has no memory.
    """
    parts = assemble(system)
    if parts is None:
        return BaseScorer()
    combiner = load_combiner(Memory.open(workspace.folder(parts.tuned)), "adaptive")
    memory = Memory.open(workspace.folder(parts.memory))
    return load_memory_scorer(memory, workspace.model, combiner=combiner, index=system.index)


def make_translator(workspace: Workspace, model: BaseModel, search: SearchSettings) -> Translator:
    """Make a translator of a model without a memory, with the workspace's batch size.

    Args:
        workspace: Gives the batch size.
        model: Model that translates.
        search: Settings of beam search.
    """
    return Translator(model, settings=search, batch_size=workspace.batch_size, split="off", piece_tokens=None)


def score_translations(translations: list[str], references: list[str], notes: dict[str, Any]) -> Measured:
    """Score translations; their hash shows whether two runs gave the same ones.

    Args:
        translations: The translations.
        references: A reference for each, in the same order.
        notes: Further figures of the row.

    Returns:
        Scores, signatures and hash, the n-gram counts of every sentence, and the translations.
    """
    scores = score(translations, references)
    text = "\n".join(translations).encode()
    figures = {
        "sentences": len(references),
        "scores": {found.name: found.value for found in scores},
        "signatures": {found.name: found.signature for found in scores},
        "translations_sha256": hashlib.sha256(text).hexdigest(),
    }
    return Measured({**figures, **notes}, {MATCHES: count_bleu(translations, references)}, translations)


def describe_stages(workspace: Workspace, stages: tuple[Stage, ...]) -> dict[str, Any]:
    """Return the notes of all stages by kind, and the sizes of the searched memory, which is the first stage.

    Args:
        workspace: Workspace where the stages are built.
        stages: Stages of the row; empty for the base model alone.
    """
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
    """Return a short name of a system.

    Args:
        system: The system.

    Examples:
        >>> name_system(System()), name_system(System(("it",), "it", k=8, seed=2))
        ('base', 'it full k=8 seed=2')
    """
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


@dataclass(frozen=True)
class Timing:
    """Translate evenly chosen sentences of a test set with every system in every round, and time them.

    Attributes:
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
        translator = Translator(
            workspace.model, settings=self.search, batch_size=self.batch, split="off", piece_tokens=None
        )
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
    """Return at most `count` items, chosen at even distances.

    Args:
        items: Items to choose from.
        count: Maximum number of items, at least 1.

    Examples:
        >>> spread_evenly("abcdefgh", 4)
        ['a', 'c', 'e', 'g']
    """
    if count >= len(items):
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def speed_figures(rounds: Sequence[Speed]) -> dict[str, Any]:
    """Return medians over the rounds, and the tokens a second of each round.

    Args:
        rounds: Speed of each round, at least one.
    """
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
    """Return the bytes of the searched keys and their values (the paper's "original"), and of a stored index.

    Args:
        sizes: Bytes of each array of a memory, as `Memory.bytes_by_array` returns them.
    """
    keys = sizes["compact"] if "compact" in sizes else sizes["keys"]
    return {"keys_and_values": keys + sizes["values"], "index": sizes.get("index", 0)}
