"""Tuning: choose or train the combiners of a memory on a dev set, and store them in the memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ibidem.combine import (
    ContextualCombiner,
    FixedCombiner,
    StoredCombiner,
    load_entry_table,
    load_general_combiner,
    neighbour_counts,
    store_adaptive,
    store_contextual,
    store_fixed,
)
from ibidem.compact import is_general
from ibidem.decode import Translator
from ibidem.errors import TextError, UsageError
from ibidem.evaluate import score
from ibidem.learn.combiner_training import (
    ContextualSettings,
    MetaKSettings,
    average_networks,
    fixed_loss,
    train_by_temperature,
    train_contextual,
    tune_fixed,
)
from ibidem.learn.confidence import tune_confidence
from ibidem.learn.examples import gather_examples
from ibidem.learn.limits import check_room
from ibidem.learn.provenance import contents, digest, is_done, stored, write_card
from ibidem.memory import (
    ADAPTIVE_COMBINER_ARTEFACT,
    CONFIDENCE_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
    check_complete,
    check_identity,
)
from ibidem.progress import Progress, silent
from ibidem.retrieve import Index, open_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ibidem.decode import ConfidenceModel
    from ibidem.learn.combiner_training import TrainedContextual
    from ibidem.learn.examples import Examples
    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.text import Corpus

OBJECTIVES = ("likelihood", "bleu")


@dataclass(frozen=True)
class TuneSettings:
    """Settings of tuning.

    Attributes:
        k: The number of neighbours, a power of 2.
        objective: What the fixed combiner is chosen by: the "likelihood" of the dev set, or the "bleu" of its
            translation.
        bleu_sentences: The most sentences that are translated for "bleu".
        sampled_pairs: The number of pairs that are sampled from the memory if there is no dev set; the entries of each
            pair are hidden while the pair is scored.
        confidence_sentences: The most sentences that are translated to fit the model of confidence; 0 for none.
        metak: The settings of the adaptive combiner's training.
        contextual: The settings of the contextual combiner's training.

    Raises:
        UsageError: A setting is invalid.

    Examples:
        >>> TuneSettings(k=16, metak=MetaKSettings(updates=2000)).metak.updates
        2000
    """

    k: int = 8
    objective: str = "likelihood"
    bleu_sentences: int = 500
    sampled_pairs: int = 2000
    confidence_sentences: int = 300
    metak: MetaKSettings = field(default_factory=MetaKSettings)
    contextual: ContextualSettings = field(default_factory=ContextualSettings)

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UsageError(f"Unknown objective '{self.objective}': use one of {', '.join(OBJECTIVES)}.")
        if self.confidence_sentences < 0:
            raise UsageError(f"Invalid confidence_sentences {self.confidence_sentences}: give 0 or more.")
        neighbour_counts(self.k)

    def check(self, dev: object | None) -> None:
        """Check, before any work is done, that the objective has the dev set that it needs.

        Args:
            dev: The dev set; None if none was given.

        Raises:
            UsageError: The objective is "bleu", and there is no dev set.
        """
        if self.objective == "bleu" and dev is None:
            raise UsageError("The objective bleu needs a dev set of its own: give one with --dev.")


class DevSet(NamedTuple):
    """Sentence pairs to tune on.

    Attributes:
        sources: The sources.
        targets: The targets.
        description: Where the pairs come from.
        hidden: For each pair, its own entries of the memory; None for a dev set that is not from the memory.
    """

    sources: list[str]
    targets: list[str]
    description: str
    hidden: list[range] | None


def read_dev(corpus: Corpus) -> DevSet:
    """Read a dev set from a corpus.

    Args:
        corpus: The corpus; it is read once.

    Raises:
        TextError: The corpus has no pair.
    """
    pairs = list(corpus)
    if not pairs:
        raise TextError(
            f"The dev set ({corpus.description}) holds no pair: {corpus.counts.describe()}. Check the files, their "
            "format and the languages."
        )
    return DevSet([pair.source for pair in pairs], [pair.target for pair in pairs], corpus.description, None)


def sample_dev(memory: Memory, count: int) -> DevSet:
    """Sample a dev set from the memory's own pairs, with the memory's seed.

    Only pairs that share neither side with another pair are sampled: the entries of a duplicate would contain the
    reference.

    Args:
        memory: The memory, whose own entries of the sampled pairs are hidden in tuning.
        count: The most pairs to sample.

    Raises:
        UsageError: The memory has fewer than two such pairs.
    """
    hashes = np.fromiter(
        chain.from_iterable((hash(pair.source), hash(pair.target)) for pair in memory.sentences()), np.int64
    ).reshape(-1, 2)
    unique = np.flatnonzero(_occurs_once(hashes[:, 0]) & _occurs_once(hashes[:, 1]))
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


def _occurs_once(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which numbers [n] occur once."""
    order = np.argsort(numbers, kind="stable")
    changes = np.ones(len(numbers) + 1, np.bool_)
    changes[1:-1] = numbers[order[1:]] != numbers[order[:-1]]
    once = np.empty(len(numbers), np.bool_)
    once[order] = changes[1:] & changes[:-1]
    return once


def tune_digest(settings: TuneSettings, dev: DevSet | None, setting: str | None, pruned: str | None) -> str:
    """Return the digest of the combiners: of the settings, the dev set, the named index, and the pruning.

    Args:
        settings: The settings of tuning.
        dev: The dev set; None samples one from the memory.
        setting: The named index; None for the memory's own.
        pruned: The digest of the pruning; None for an unpruned memory.
    """
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
    """Tune the fixed, the adaptive and the contextual combiner of a memory on a dev set, and store them.

    The base model stays unchanged. If the memory was last tuned with the same settings, dev set and index, and nothing
    was added or removed since, nothing is done.

    Args:
        memory: A complete memory.
        model: Its base model.
        dev: The dev set; None samples pairs of the memory itself.
        settings: The settings of tuning.
        setting: The setting of the index to search; None searches the index of the memory.
        index: That index, if it is open already.
        again: Tune even if nothing has changed.
        progress: Receives the progress.

    Returns:
        The memory with its combiners, committed.

    Raises:
        MismatchError: The memory belongs to another model, or another process changed its keys meanwhile.
        TextError: The dev set has no usable pair.
        UsageError: The memory is empty, incomplete or too small to sample from, or the objective needs a dev set.

    Examples:
        >>> from ibidem.learn import TuneSettings, tune
        >>> from ibidem.memory import Memory
        >>> from ibidem.model import load_model
        >>> from ibidem.text import Corpus
        >>> memory = Memory.open("memories/mine")
        >>> tuned = tune(memory, load_model(), Corpus(["dev.tsv"]), settings=TuneSettings(k=4))
        >>> tuned.artefact("combiner_fixed") is not None, tuned.artefact("combiner_adaptive") is not None
        (True, True)
    """
    settings = settings or TuneSettings()
    settings.check(dev)
    memory = memory.sealed()
    check_complete(memory)
    check_identity(memory, model)
    if not memory.entries:
        raise UsageError(f"{memory.path} has no entries to tune with: add pairs first.")
    given = dev if dev is None or isinstance(dev, DevSet) else read_dev(dev)
    wanted = tune_digest(settings, given, setting, stored(memory, "prune"))
    written = [FIXED_COMBINER_ARTEFACT, ADAPTIVE_COMBINER_ARTEFACT]
    if CONTEXTUAL_COMBINER_ARTEFACT in memory.manifest.artefacts:
        written.append(CONTEXTUAL_COMBINER_ARTEFACT)
    done = is_done(memory, "tune", wanted, *written)
    if done and not again and memory.manifest.stages["tune"]["index_digest"] == stored(memory, "index"):
        write_card(memory)
        return memory
    check_room("tune", memory.entries, memory.path)
    dev_set = given or sample_dev(memory, settings.sampled_pairs)
    searched = index or open_index(memory, setting, model.device)
    examples = gather_examples(
        model,
        searched,
        load_entry_table(memory, model.device),
        dev_set.sources,
        dev_set.targets,
        settings.k,
        hidden=dev_set.hidden,
        progress=progress,
    )
    fixed = tune_fixed(examples)[0].combiner
    widest = tune_fixed(examples, k=settings.k)[0].combiner
    bleu: list[dict[str, float]] = []
    if settings.objective == "bleu":
        fixed, bleu = choose_by_bleu(memory, model, searched, dev_set, widest, settings.bleu_sentences, progress)
    trained = train_by_temperature(examples, widest.temperature, settings.metak, progress)
    contextual = tune_contextual(examples, model, memory, settings, sampled=dev is None, progress=progress)
    confidence = tune_confidence(
        memory,
        model,
        searched,
        trained.combiner if contextual is None else contextual.combiner,
        dev_set.sources,
        dev_set.targets,
        hidden=dev_set.hidden,
        sentences=settings.confidence_sentences,
        progress=progress,
    )
    report: dict[str, object] = {
        "digest": wanted,
        "contents": contents(memory),
        "index_digest": stored(memory, "index"),
        "dev": dev_set.description,
        "sampled": dev is None,
        "tokens": len(examples),
        "index": searched.description,
        "typical_distance": examples.typical_distance(),
        "loss_base": float(-examples.base_gold.mean()),
        "loss_fixed": fixed_loss(examples, fixed),
        "loss_adaptive_validation": trained.loss,
        "adaptive_updates": trained.updates,
        "loss_contextual_validation": None if contextual is None else contextual.loss,
        "loss_general_validation": None if contextual is None else contextual.start_loss,
        "contextual_updates": None if contextual is None else contextual.updates,
        "objective": settings.objective,
        "bleu_search": bleu,
        "confidence": None if confidence is None else confidence.info,
        "settings": asdict(settings),
    }
    combiners = {
        FIXED_COMBINER_ARTEFACT: store_fixed(fixed),
        ADAPTIVE_COMBINER_ARTEFACT: store_adaptive(trained.combiner),
    }
    if contextual is not None:
        combiners[CONTEXTUAL_COMBINER_ARTEFACT] = store_contextual(contextual.combiner)
    return _store(memory, combiners, confidence, report)


def tune_contextual(
    examples: Examples, model: BaseModel, memory: Memory, settings: TuneSettings, *, sampled: bool, progress: Progress
) -> TrainedContextual | None:
    """Train the contextual combiner, from the model's general one where there is one.

    Args:
        examples: The examples of the dev set.
        model: The base model.
        memory: The memory.
        settings: The settings of tuning.
        sampled: Whether the examples are pairs of the memory itself.
        progress: Receives the number of updates.

    Returns:
        The combiner; None where the memory has no source vectors, or there is neither a network to start from nor an
        update.
    """
    if examples.context is None:
        return None
    start = None
    if model.general is not None:
        general = load_general_combiner(model).network
        if general.k == settings.k:
            start = general
            if not is_general(memory, model):
                start.scale.fill_(examples.typical_distance())
    if start is None and not settings.contextual.updates:
        return None
    trained = train_contextual(examples, settings.contextual, start=start, progress=progress)
    if start is None:
        return trained
    network = trained.combiner.network
    general_share = settings.contextual.general_share
    if sampled:
        with torch.no_grad():
            network.base.bias.sub_(settings.contextual.sampled_shift)
        pairs = len(torch.unique(examples.sentences))
        general_share = max(0.0, 1 - pairs / settings.contextual.trusted_pairs)
    network = average_networks(start, network, general_share)
    return replace(trained, combiner=ContextualCombiner(network))


def choose_by_bleu(
    memory: Memory,
    model: BaseModel,
    index: Index,
    dev: DevSet,
    start: FixedCombiner,
    sentences: int,
    progress: Progress,
) -> tuple[FixedCombiner, list[dict[str, float]]]:
    """Choose a fixed combiner by the BLEU of the translated dev set: first its weight, then its temperature.

    Args:
        memory: The memory.
        model: Its base model.
        index: The index to search.
        dev: The dev set.
        start: The combiner whose k and temperature the search begins with.
        sentences: The most sentences to translate.
        progress: Receives the number of combiners that are done.

    Returns:
        The best combiner; and all that were tried, each with its BLEU.
    """
    sources, references = dev.sources[:sentences], dev.targets[:sentences]
    tried: list[dict[str, float]] = []

    def measure(combiner: FixedCombiner) -> float:
        translator = Translator(model, memory, combiner=combiner, index=index, batch_size=64, split="off")
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


def _store(
    memory: Memory,
    combiners: Mapping[str, StoredCombiner],
    confidence: ConfidenceModel | None,
    report: dict[str, object],
) -> Memory:
    """Commit all combiners and the model of confidence in one generation."""
    with memory.edit() as edit:
        edit.set_fitted(memory)
        for name, combiner in combiners.items():
            edit.put_artefact(name, combiner.extension, combiner.payload, combiner.summary)
        if CONTEXTUAL_COMBINER_ARTEFACT not in combiners:
            edit.remove_artefact(CONTEXTUAL_COMBINER_ARTEFACT)  # it was trained on another dev set or index
        if confidence is not None:
            edit.put_artefact(CONFIDENCE_ARTEFACT, "json", confidence.store(), confidence.info)
        else:
            edit.remove_artefact(CONFIDENCE_ARTEFACT)  # it was fitted with other combiners
        summaries = {name.removeprefix("combiner_"): combiner.summary for name, combiner in combiners.items()}
        edit.set_stage("tune", {**report, **summaries})
        memory = edit.commit()
    write_card(memory)
    return memory
