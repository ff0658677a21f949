"""Tuning of both combiners on a dev set, and storing them in the memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.combine import FixedCombiner, StoredCombiner, neighbour_counts, store_adaptive, store_fixed
from ibidem.decode import Translator
from ibidem.errors import TextError, UsageError
from ibidem.evaluate import score
from ibidem.learn.card import write_card
from ibidem.learn.digests import contents, digest, is_done, stored
from ibidem.learn.examples import Examples, gather_examples
from ibidem.learn.grid import fixed_loss, tune_fixed
from ibidem.learn.metak import MetaKSettings, TrainedMetaK, train_adaptive
from ibidem.memory import check_complete, check_identity, load_values
from ibidem.progress import Progress, silent
from ibidem.retrieve import Index, open_index

if TYPE_CHECKING:
    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.text import Corpus

OBJECTIVES = ("likelihood", "bleu")
_MOST_DOUBLINGS = 5


@dataclass(frozen=True)
class TuneSettings:
    """`objective` chooses the fixed combiner: by likelihood of the dev set, or by BLEU of translating it.

    Without a dev set, `borrowed` pairs of the memory stand in for one, each with its own entries hidden.
    """

    k: int = 8
    objective: str = "likelihood"
    bleu_sentences: int = 500
    borrowed: int = 500
    metak: MetaKSettings = field(default_factory=MetaKSettings)

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UsageError(f"Unknown objective '{self.objective}': use one of {', '.join(OBJECTIVES)}.")
        neighbour_counts(self.k)

    def check(self, dev: object | None) -> None:
        """Refuse, before any work is done, what cannot be tuned without a dev set."""
        if self.objective == "bleu" and dev is None:
            raise UsageError("The objective bleu needs a dev set of its own: give one with --dev.")


class DevSet(NamedTuple):
    """Sentence pairs to tune on, where they came from, and the entries each must not see."""

    sources: list[str]
    targets: list[str]
    description: str
    hidden: list[range] | None


def read_dev(corpus: Corpus) -> DevSet:
    """A dev set from a corpus."""
    pairs = list(corpus)
    if not pairs:
        raise TextError(f"The dev set ({corpus.description}) holds no pair: {corpus.counts.describe()}.")
    return DevSet([pair.source for pair in pairs], [pair.target for pair in pairs], corpus.description, None)


def sample_dev(memory: Memory, count: int) -> DevSet:
    """A seeded sample of the memory's own pairs; each one's own entries are hidden while it is scored.

    Only pairs that share neither side with another one: a twin elsewhere in the memory would give the answer away.
    """
    sources = Counter(hash(pair.source) for pair in memory.sentences())
    targets = Counter(hash(pair.target) for pair in memory.sentences())
    unique = [
        number
        for number, pair in enumerate(memory.sentences())
        if sources[hash(pair.source)] == targets[hash(pair.target)] == 1
    ]
    if len(unique) < 2:
        raise UsageError(f"{memory.path} has too few pairs of its own to tune on: give a dev set with --dev.")
    random = np.random.default_rng(memory.manifest.seed)
    chosen = np.sort(random.permutation(unique)[:count])
    pairs = [memory.sentence(int(i)) for i in chosen]
    return DevSet(
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        f"{len(pairs)} pairs of the memory itself, their own entries hidden",
        [pair.entries for pair in pairs],
    )


def tune_digest(settings: TuneSettings, dev: DevSet | None, setting: str | None, pruned: str | None) -> str:
    """What the combiners depend on beside the space: settings, dev set, named index, and how it was pruned."""
    return digest(settings, None if dev is None else [dev.sources, dev.targets], setting, pruned)


def tune(
    memory: Memory,
    model: BaseModel,
    dev: Corpus | DevSet | None = None,
    *,
    settings: TuneSettings | None = None,
    setting: str | None = None,
    index: Index | None = None,
    again: bool = False,
    progress: Progress = silent,
) -> Memory:
    """Tune the fixed and the adaptive combiner and commit both; the base model stays as it is.

    It searches the index of `setting`, or the one the memory has; `index` is that one where it is open already. Where
    these settings, dev set and index were used last, and nothing was added or removed since, nothing is done, unless
    `again`.
    """
    settings = settings or TuneSettings()
    settings.check(dev)
    memory = memory.sealed()
    check_complete(memory)
    check_identity(memory, model)
    if not memory.entries:
        raise UsageError(f"{memory.path} has no entries to tune with: learn a memory that has some.")
    given = dev if dev is None or isinstance(dev, DevSet) else read_dev(dev)
    wanted = tune_digest(settings, given, setting, stored(memory, "prune"))
    known = is_done(memory, "tune", wanted, "combiner_fixed", "combiner_adaptive")
    if known and not again and memory.manifest.stages["tune"]["index_digest"] == stored(memory, "index"):
        write_card(memory)
        return memory
    dev_set = given or sample_dev(memory, settings.borrowed)
    found = index or open_index(memory, setting, model.device)
    values = load_values(memory, model.device)
    examples = gather_examples(
        model,
        found,
        values,
        dev_set.sources,
        dev_set.targets,
        settings.k,
        hidden=dev_set.hidden,
        progress=progress,
    )
    grid = tune_fixed(examples)
    widest = tune_fixed(examples, k=settings.k)[0].combiner
    fixed = grid[0].combiner
    bleu: list[dict[str, float]] = []
    if settings.objective == "bleu":
        fixed, bleu = choose_by_bleu(memory, model, found, dev_set, widest, settings.bleu_sentences, progress)
    trained = train_by_temperature(examples, widest.temperature, settings.metak, progress)
    report: dict[str, object] = {
        "digest": wanted,
        "contents": contents(memory),
        "index_digest": stored(memory, "index"),
        "dev": dev_set.description,
        "borrowed": dev is None,
        "tokens": len(examples),
        "index": found.description,
        "typical_distance": examples.typical_distance(),
        "loss_base": float(-examples.base_gold.mean()),
        "loss_fixed": fixed_loss(examples, fixed),
        "loss_adaptive_validation": trained.loss,
        "adaptive_updates": trained.updates,
        "objective": settings.objective,
        "bleu_search": bleu,
        "settings": asdict(settings),
    }
    return store(memory, store_fixed(fixed), store_adaptive(trained.combiner), report)


def choose_by_bleu(
    memory: Memory,
    model: BaseModel,
    index: Index,
    dev: DevSet,
    start: FixedCombiner,
    sentences: int,
    progress: Progress,
) -> tuple[FixedCombiner, list[dict[str, float]]]:
    """The best weight at the start's temperature, then the best temperature about it, by dev BLEU."""
    sources, references = dev.sources[:sentences], dev.targets[:sentences]
    tried: list[dict[str, float]] = []

    def measure(combiner: FixedCombiner) -> float:
        translator = Translator(model, memory, combiner=combiner, index=index, batch_size=64)
        bleu = score(translator.translate(sources), references)[0].value
        tried.append({**asdict(combiner), "bleu": bleu})
        progress("Translating the dev set", None, len(tried), "settings")
        return bleu

    weights = sorted({start.weight, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9})
    best = max((FixedCombiner(start.k, weight, start.temperature) for weight in weights), key=measure)
    others = [FixedCombiner(best.k, best.weight, best.temperature * factor) for factor in (0.5, 2.0)]
    scores = {combiner: measure(combiner) for combiner in others}
    scores[best] = max(row["bleu"] for row in tried if row["temperature"] == best.temperature)
    return max(scores, key=lambda combiner: scores[combiner]), tried


def train_by_temperature(
    examples: Examples, temperature: float, settings: MetaKSettings, progress: Progress
) -> TrainedMetaK:
    """The Meta-k Network with the best validation loss, its temperature doubled or halved as long as that helps."""
    best = first = train_adaptive(examples, temperature, settings, progress=progress)
    for factor in (2.0, 0.5):
        for _ in range(_MOST_DOUBLINGS):
            trial = train_adaptive(examples, best.combiner.temperature * factor, settings, progress=progress)
            if trial.loss >= best.loss:
                break
            best = trial
        if best is not first:
            break
    return best


def store(memory: Memory, fixed: StoredCombiner, adaptive: StoredCombiner, report: dict[str, object]) -> Memory:
    """Commit both combiners in one generation."""
    with memory.edit() as edit:
        edit.set_merged(memory)
        for name, stored in (("fixed", fixed), ("adaptive", adaptive)):
            edit.put_artefact(f"combiner_{name}", stored.extension, stored.payload, stored.summary)
        edit.set_stage("tune", {**report, "fixed": fixed.summary, "adaptive": adaptive.summary})
        memory = edit.commit()
    write_card(memory)
    return memory
