"""The recipe: run all stages that turn a corpus into a memory (the summary of the paper's section 3.2)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ibidem.compact import GENERAL_COMPACTOR
from ibidem.errors import LockedMemoryError, UsageError
from ibidem.learn.cluster import ClusterSettings, cluster_digest, cluster_memory
from ibidem.learn.compact import (
    CompactSettings,
    compact_digest,
    compact_memory,
    drop_keys,
    read_given,
    uncompact_memory,
)
from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.maintenance import check_index, index_digest, index_memory
from ibidem.learn.provenance import UNPRUNED, extracted, stored
from ibidem.learn.prune import PruneSettings, prune_digest, prune_memory, restore_memory
from ibidem.learn.tuning import DevSet, TuneSettings, read_dev, tune, tune_digest
from ibidem.memory import WORK
from ibidem.progress import Progress, silent
from ibidem.retrieve import build_index, with_compactor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.retrieve import Index
    from ibidem.text import Corpus

TUNED_ON = ("unpruned", "pruned")
_WORK_FOLDERS = ("extract", "cluster", "compact", "reconstruct", "neighbours", "index")
# Dimensions of the PCA of a model without a general compactor.
_PCA_DIMENSION = 96


@dataclass(frozen=True)
class LearnSettings:
    """Settings of all stages; by default keys are compacted by the model's general compactor, and nothing is pruned.

    Attributes:
        extract: The settings of extraction.
        cluster: The settings of clustering.
        compact: The settings of the compactor's training.
        compactor: The file of a compactor that was trained on another memory of the same model, to use instead.
        keep_keys: Keep the model's own keys as well as the compact ones.
        tune: The settings of tuning.
        tuned_on: Tune the combiners before pruning ("unpruned", the paper's order) or after it ("pruned").
        prune: The settings of pruning.
        keep_unpruned: Keep a snapshot of the unpruned memory.
        index: The setting of the index; None chooses "auto" on a CPU, and builds none on CUDA.
        index_shards: The number of parts that the index is divided into.
        threads: The number of threads that build the index; None uses all.

    Raises:
        UsageError: A setting is invalid.

    Examples:
        >>> LearnSettings(compact=CompactSettings(dimension=64), prune=PruneSettings(rate=0.3)).compacts
        True
    """

    extract: ExtractSettings = field(default_factory=ExtractSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    compact: CompactSettings = field(default_factory=lambda: CompactSettings(method="general"))
    compactor: Path | None = None
    keep_keys: bool = False
    tune: TuneSettings = field(default_factory=TuneSettings)
    tuned_on: str = "unpruned"
    prune: PruneSettings = field(default_factory=lambda: PruneSettings("redundant", rate=0.0))
    keep_unpruned: bool = True
    index: str | None = None
    index_shards: int = 1
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.tuned_on not in TUNED_ON:
            raise UsageError(f"Unknown value '{self.tuned_on}' of tuned_on: use one of {', '.join(TUNED_ON)}.")
        if self.prune.rate > 0 and self.prune.strategy == "redundant" and self.tuned_on != "unpruned":
            raise UsageError(
                "The strategy redundant needs a tuned combiner: tune on the unpruned memory first (tuned_on)."
            )

    @property
    def compacts(self) -> bool:
        """Whether the memory is searched in a compact space."""
        return self.compactor is not None or self.compact.method != "none"

    @property
    def needs_no_keys(self) -> bool:
        """Whether the model's own keys are never used, so that extraction stores compact keys only."""
        return self.compactor is not None and not self.keep_keys and not self.clusters

    @property
    def clusters(self) -> bool:
        """Whether a later stage needs clusters."""
        trained = self.compactor is None and self.compact.needs_clusters
        return trained or (self.prune.rate > 0 and self.prune.strategy == "spatial")


def resolve_general(settings: LearnSettings, model: BaseModel) -> LearnSettings:
    """Replace the compaction method "general" by what it means for a model.

    Args:
        settings: The settings; any other method is kept.
        model: The base model. One without a general compactor gets a PCA of the memory's own keys, or none where its
            states are small already.
    """
    if settings.compactor is not None or settings.compact.method != "general":
        return settings
    if model.general is not None:
        none = replace(settings.compact, method="none")
        return replace(settings, compactor=model.general / GENERAL_COMPACTOR, compact=none)
    method = "pca" if model.dimension >= 2 * _PCA_DIMENSION else "none"
    return replace(settings, compact=replace(settings.compact, method=method, dimension=_PCA_DIMENSION))


@dataclass(frozen=True)
class Step:
    """A stage after extraction.

    Attributes:
        name: The name of the stage.
        digest: The digest that its result must have; None: the memory must not have this stage.
        run: Runs the stage.
    """

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
    distribution: Distribution | None = None,
    progress: Progress = silent,
) -> Memory:
    """Learn a memory from a corpus: extract, cluster, compact, tune, prune and index.

    Stages that were completed with the same settings are skipped: an interrupted call continues with the same call,
    and a call with a changed setting repeats only the stages that depend on it. On a CUDA device no index is built
    unless one is named, since exact search needs none there; `ibidem index` builds one at any time.

    Args:
        model: The base model.
        train: The parallel text to learn.
        path: The folder of the memory.
        dev: The dev set of the combiners; None samples pairs of the memory itself.
        seed: The seed of all stages.
        settings: The settings of all stages.
        distribution: Runs extraction, clustering, compaction, the searches of pruning and the parts of a divided index
            in tasks; None runs them in this process, with the same result.
        progress: Receives the progress.

    Returns:
        The memory, ready for translation.

    Raises:
        MismatchError: The folder holds a memory of another model, corpus or seed, or the compactor belongs to another
            model.
        TextError: A corpus has no usable pair.
        UsageError: A setting is invalid, or a changed setting needs keys or entries that were not kept.

    Examples:
        >>> from pathlib import Path
        >>> from ibidem import Translator
        >>> from ibidem.learn import LearnSettings, TuneSettings, learn
        >>> from ibidem.model import load_model
        >>> from ibidem.text import Corpus
        >>> model = load_model()
        >>> settings = LearnSettings(tune=TuneSettings(k=4))
        >>> train, dev = Corpus(["train.tsv"]), Corpus(["dev.tsv"])
        >>> memory = learn(model, train, Path("memories/mine"), dev=dev, settings=settings)
        >>> list(memory.manifest.stages)
        ['extract', 'compact', 'index', 'tune']
        >>> translations = Translator(model, memory).translate(["Guten Morgen"])
    """
    settings = resolve_general(settings or LearnSettings(), model)
    settings.tune.check(dev)
    if settings.compactor is not None:
        read_given(settings.compactor, model.name, model.fingerprint)
    dev_set = None if dev is None else read_dev(dev)
    space = settings.compactor if settings.needs_no_keys else None
    memory = extract(
        model,
        train,
        path,
        seed=seed,
        settings=settings.extract,
        compactor=space,
        distribution=distribution,
        progress=progress,
    )
    steps = _plan(memory, model, dev_set, settings, distribution, progress)
    pruning = next(number for number, step in enumerate(steps) if step.name == "prune")
    for number, step in enumerate(steps):
        if step.name == "prune" and settings.compacts and not settings.keep_keys and memory.layout.keys:
            memory = drop_keys(memory)  # not earlier: a failed stage could then not be repeated with other settings
        if stored(memory, step.name) == step.digest:
            continue
        if step.name in ("cluster", "compact"):
            _ = memory.keys  # raises UsageError where there are none, before anything is changed
        if number <= pruning and stored(memory, "prune") is not None:
            memory = _restore(memory, step.name)
        if stored(memory, step.name) != step.digest:
            memory = step.run(memory)
    _remove_work(memory)
    return memory


def _remove_work(memory: Memory) -> None:
    """Delete the work of finished stages: a process that is killed after its last commit leaves it."""
    if not any(path for name in _WORK_FOLDERS for path in (memory.path / WORK).glob(f"{name}-*")):
        return
    with suppress(LockedMemoryError), memory.edit() as edit:
        for name in _WORK_FOLDERS:
            edit.clear_workspace(name)


def _plan(
    memory: Memory,
    model: BaseModel,
    dev: DevSet | None,
    settings: LearnSettings,
    distribution: Distribution | None,
    progress: Progress,
) -> list[Step]:
    """Return the stages of these settings in order, each with the digest that its result must have."""
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
        return cluster_memory(
            memory, settings.cluster, device=model.device, distribution=distribution, progress=progress
        )

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
            distribution=distribution,
            progress=progress,
        )

    def run_tune(memory: Memory) -> Memory:
        index = _temporary_index(memory, model, setting, settings.threads) if first_tuned else None
        return tune(memory, model, dev, settings=settings.tune, setting=settings.index, index=index, progress=progress)

    def run_prune(memory: Memory) -> Memory:
        kept, device = settings.keep_unpruned, model.device
        return prune_memory(
            memory,
            settings.prune,
            keep_unpruned=kept,
            device=device,
            distribution=distribution,
            progress=progress,
        )

    def run_index(memory: Memory) -> Memory:
        return index_memory(
            memory,
            setting or "auto",
            shards=settings.index_shards,
            threads=settings.threads,
            distribution=distribution,
            progress=progress,
        )[0]

    cluster_step = [Step("cluster", clusters, run_cluster)] if clusters is not None else []
    index_step = [Step("index", index_digest(setting, settings.index_shards), run_index)] if setting is not None else []
    compact_step, prune_step = Step("compact", compact, run_compact), Step("prune", pruned, run_prune)
    tune_step = Step("tune", tuned, run_tune)
    if first_tuned:
        return [*cluster_step, compact_step, tune_step, prune_step, *index_step]
    return [*cluster_step, compact_step, prune_step, *index_step, tune_step]


def _restore(memory: Memory, stage: str) -> Memory:
    """Restore the memory before pruning, since a stage before it must be repeated."""
    if memory.entries < memory.tokens and UNPRUNED not in memory.snapshots():
        raise UsageError(
            f"{memory.path} is pruned without a snapshot: the stage {stage} cannot be repeated with other settings. "
            "Give the same ones, or learn it in another folder."
        )
    return restore_memory(memory)


def _temporary_index(memory: Memory, model: BaseModel, setting: str | None, threads: int | None) -> Index | None:
    """Build an index of the unpruned keys for tuning only: the memory's own index is built after pruning."""
    if setting is None:
        return None
    check_index(memory, setting)
    seed = memory.manifest.seed
    built = build_index(memory.search_keys, setting, seed=seed, threads=threads, device=model.device)
    return with_compactor(built, memory, model.device)
