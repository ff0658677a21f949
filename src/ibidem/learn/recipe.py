"""The whole recipe: corpus in, ready memory out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.learn.cluster import ClusterSettings, cluster_digest, cluster_memory
from ibidem.learn.compact import (
    CompactSettings,
    compact_digest,
    compact_memory,
    drop_keys,
    read_given,
    uncompact_memory,
)
from ibidem.learn.digests import UNPRUNED, extracted, stored
from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.indexing import index_digest, index_memory
from ibidem.learn.prune import PruneSettings, prune_digest, prune_memory, restore_memory
from ibidem.learn.tuning import DevSet, TuneSettings, read_dev, tune, tune_digest
from ibidem.progress import Progress, silent
from ibidem.retrieve import accept_states, build_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.retrieve import Index
    from ibidem.text import Corpus

TUNED_ON = ("unpruned", "pruned")


@dataclass(frozen=True)
class LearnSettings:
    """The settings of every stage; as they stand here, nothing is compacted or pruned.

    compactor: a compactor's file, trained on another memory of the same model, to be used instead of training
    one. keep_keys: keep the model's own keys beside the compact ones. tuned_on: the combiners are tuned before
    pruning ("unpruned", the paper's order) or after it.
    """

    extract: ExtractSettings = field(default_factory=ExtractSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    compact: CompactSettings = field(default_factory=lambda: CompactSettings(method="none"))
    compactor: Path | None = None
    keep_keys: bool = False
    tune: TuneSettings = field(default_factory=TuneSettings)
    tuned_on: str = "unpruned"
    prune: PruneSettings = field(default_factory=lambda: PruneSettings(rate=0.0))
    keep_unpruned: bool = True
    index: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.tuned_on not in TUNED_ON:
            raise UsageError(f"Combiners cannot be tuned on '{self.tuned_on}': use one of {', '.join(TUNED_ON)}.")
        if self.prune.rate > 0 and self.prune.strategy == "covered" and self.tuned_on != "unpruned":
            raise UsageError("What is covered is told by a tuned combiner: tune on the unpruned memory first.")

    @property
    def compacts(self) -> bool:
        """Whether the memory is to be searched in a compact space."""
        return self.compactor is not None or self.compact.method != "none"

    @property
    def needs_no_keys(self) -> bool:
        """Whether the model's own keys are of no use once they are compacted, so that they need not be stored."""
        return self.compactor is not None and not self.keep_keys and not self.clusters

    @property
    def clusters(self) -> bool:
        """Whether clusters are needed by what comes after them."""
        trained = self.compactor is None and self.compact.needs_clusters
        return trained or (self.prune.rate > 0 and self.prune.strategy == "spatial")


@dataclass(frozen=True)
class Step:
    """A stage after extraction: the digest of what its result depends on (None: it must not be there), and how."""

    name: str
    digest: str | None
    run: Callable[[Memory], Memory]


def learn(
    model: BaseModel,
    train: Corpus,
    path: Path,
    *,
    dev: Corpus | None = None,
    seed: int = 0,
    settings: LearnSettings | None = None,
    progress: Progress = silent,
) -> Memory:
    """Extract, cluster, compact, tune, prune and index; what is done already, with these settings, is not done again.

    So a killed `learn` goes on, and one with a changed setting does only what depends on it anew. On a CUDA device
    no index is built unless one is named: exact search needs none there, and `ibidem index` builds one at any time.
    """
    settings = settings or LearnSettings()
    settings.tune.check(dev)
    if settings.compactor is not None:
        read_given(settings.compactor, model.name, model.fingerprint)
    dev_set = None if dev is None else read_dev(dev)
    space = settings.compactor if settings.needs_no_keys else None
    memory = extract(model, train, path, seed=seed, settings=settings.extract, compactor=space, progress=progress)
    steps = _plan(memory, model, dev_set, settings, progress)
    last = next(number for number, step in enumerate(steps) if step.name == "prune")
    for number, step in enumerate(steps):
        if step.name == "prune" and settings.compacts and not settings.keep_keys and memory.layout.keys:
            memory = drop_keys(memory)  # no sooner, so that what went wrong before can be done again otherwise
        if stored(memory, step.name) == step.digest:
            continue
        if step.name in ("cluster", "compact"):
            _ = memory.keys  # which says what to do where there are none, before anything is changed
        if number <= last and stored(memory, "prune") is not None:
            memory = _unpruned(memory, step.name)
        if stored(memory, step.name) != step.digest:
            memory = step.run(memory)
    return memory


def _plan(
    memory: Memory, model: BaseModel, dev: DevSet | None, settings: LearnSettings, progress: Progress
) -> list[Step]:
    """The stages that these settings ask for, in order, each with the digest its result must have."""
    base = extracted(memory)
    clusters = cluster_digest(settings.cluster, base) if settings.clusters else None
    compact = compact_digest(settings.compact, settings.compactor, clusters, base) if settings.compacts else None
    setting = settings.index or ("auto" if model.device.type == "cpu" else None)
    first_tuned = settings.prune.rate > 0 and settings.tuned_on == "unpruned"
    whole_tuned = tune_digest(settings.tune, dev, settings.index, None)
    pruned = None
    if settings.prune.rate > 0:
        pruned = prune_digest(settings.prune, compact or base, clusters, whole_tuned)
    tuned = whole_tuned if first_tuned else tune_digest(settings.tune, dev, settings.index, pruned)

    def run_cluster(memory: Memory) -> Memory:
        return cluster_memory(memory, settings.cluster, device=model.device, progress=progress)

    def run_compact(memory: Memory) -> Memory:
        if compact is None:
            return uncompact_memory(memory)
        return compact_memory(
            memory,
            settings.compact,
            model=model,
            compactor=settings.compactor,
            keep_keys=True,
            device=model.device,
            progress=progress,
        )

    def run_tune(memory: Memory) -> Memory:
        index = _temporary_index(memory, model, setting, settings.threads) if first_tuned else None
        return tune(memory, model, dev, settings=settings.tune, setting=settings.index, index=index, progress=progress)

    def run_prune(memory: Memory) -> Memory:
        kept, device = settings.keep_unpruned, model.device
        return prune_memory(memory, settings.prune, keep_unpruned=kept, device=device, progress=progress)

    def run_index(memory: Memory) -> Memory:
        return index_memory(memory, setting or "auto", threads=settings.threads, progress=progress)[0]

    cluster_step = [Step("cluster", clusters, run_cluster)] if clusters is not None else []
    index_step = [Step("index", index_digest(setting), run_index)] if setting is not None else []
    compact_step, prune_step = Step("compact", compact, run_compact), Step("prune", pruned, run_prune)
    tune_step = Step("tune", tuned, run_tune)
    if first_tuned:
        return [*cluster_step, compact_step, tune_step, prune_step, *index_step]
    return [*cluster_step, compact_step, prune_step, *index_step, tune_step]


def _unpruned(memory: Memory, stage: str) -> Memory:
    """The memory before pruning, since a stage that comes first is to be done anew."""
    if memory.entries < memory.tokens and UNPRUNED not in memory.snapshots():
        raise UsageError(
            f"{memory.path} is pruned, and what was there before was not kept: {stage} cannot be done again with "
            "other settings. Give the same ones, or learn it in another folder."
        )
    return restore_memory(memory)


def _temporary_index(memory: Memory, model: BaseModel, setting: str | None, threads: int | None) -> Index | None:
    """An index of the unpruned keys for tuning alone: the memory's own is built from what pruning leaves."""
    if setting is None:
        return None
    seed = memory.manifest.seed
    built = build_index(memory.search_keys, setting, seed=seed, threads=threads, device=model.device)
    return accept_states(built, memory, model.device)
