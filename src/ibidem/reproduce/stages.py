"""Stages: extraction, clustering, compaction, pruning, indexing, tuning and fine-tuning, each built once and shared.

Memories that differ in one stage are hard-linked copies of each other.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ibidem.compact import store_compactor
from ibidem.learn import (
    AdaptSettings,
    ClusterSettings,
    CompactSettings,
    ContextualSettings,
    ExtractSettings,
    LearnSettings,
    MetaKSettings,
    NeighbourGraph,
    PruneSettings,
    TrainingData,
    TuneSettings,
    adapt_model,
    build_neighbour_graph,
    cluster_memory,
    compact_memory,
    extract,
    fit_key_coding,
    index_memory,
    learn,
    prune_memory,
    train_compactor,
    tune,
)
from ibidem.memory import LOCK, WORK, Memory, link_file
from ibidem.model import load_model
from ibidem.reproduce.workspace import Stage
from ibidem.retrieve import is_for_gpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from ibidem.model import BaseModel
    from ibidem.reproduce.workspace import Workspace

COMPACTOR = "compactor.safetensors"
MODEL = "model"
SHARED_SEED = 1
"""Seed of the stages that rows of all seeds share: extraction, clusters, indexes."""


@dataclass(frozen=True)
class Extracted(Stage):
    """Extract the memory of a corpus, which may join several domains, in the model's own space.

    Attributes:
        corpus: Domains whose training text is joined.
    """

    corpus: tuple[str, ...]

    resumes: ClassVar[bool] = True

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return tuple((domain, "train") for domain in self.corpus)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + count_pairs(self.corpus) * 2e-4

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        settings = ExtractSettings(batch_tokens=workspace.batch_tokens)
        memory = extract(workspace.model, workspace.train(self.corpus), folder, seed=SHARED_SEED, settings=settings)
        return {"pairs": memory.pairs, "entries": memory.entries}


@dataclass(frozen=True)
class Clustered(Stage):
    """Cluster the keys of a memory.

    Attributes:
        memory: Memory to cluster.
        settings: Settings of the clusters.
    """

    memory: Extracted
    settings: ClusterSettings

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + count_pairs(self.memory.corpus) * 6e-5

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(workspace.folder(self.memory), folder)
        memory = cluster_memory(memory, self.settings, device=workspace.device)
        notes = memory.manifest.stages["cluster"]
        return {name: notes[name] for name in ("families", "clusters", "noise_share", "unsampled_share")}


@dataclass(frozen=True)
class Trained(Stage):
    """Train a compactor on the keys of a memory; it is kept with the results, since training takes long.

    Attributes:
        memory: Memory to train on; clustered where the settings need clusters.
        settings: Method and settings of the compactor.
    """

    memory: Extracted | Clustered
    settings: CompactSettings

    resumes: ClassVar[bool] = True
    kept: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        seconds = 20 + count_pairs(_corpus(self.memory)) * 5e-5
        if self.settings.method == "network":
            names = [name for name, _ in self.settings.objectives]
            seconds += self.settings.updates * (0.008 if "prediction" in names else 0.005)
        return seconds

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = Memory.open(workspace.folder(self.memory))
        training = TrainingData(
            memory.keys,
            memory.values(),
            memory.clusters(),
            memory.identity.vocabulary_size,
            workspace.model.projection.weight.detach().float(),
        )
        trained = train_compactor(training, self.settings, device=workspace.device, workspace=folder)
        assert trained is not None  # the method is never "none"
        coding = fit_key_coding(trained.compactor, memory.keys, workspace.device)
        identity = memory.identity
        notes = {"model": workspace.model_name, "model_fingerprint": identity.model_fingerprint}
        for left in folder.iterdir():  # checkpoints of the training
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        (folder / COMPACTOR).write_bytes(store_compactor(trained.compactor, notes, coding))
        parameters = sum(tensor.numel() for tensor in trained.compactor.state_dict().values())
        return {**trained.report, "parameters": parameters}


@dataclass(frozen=True)
class Compacted(Stage):
    """Convert a memory to the space of a compactor and drop the model's own keys.

    Attributes:
        memory: Memory to convert.
        compactor: Compactor, trained on this memory or another one.
    """

    memory: Extracted | Clustered
    compactor: Trained

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory, self.compactor)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + count_pairs(_corpus(self.memory)) * 4e-5

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(workspace.folder(self.memory), folder)
        compactor = workspace.folder(self.compactor) / COMPACTOR
        compact_memory(memory, self.compactor.settings, compactor=compactor, device=workspace.device)
        return {}


@dataclass(frozen=True)
class Neighbourhoods(Stage):
    """Find the nearest entries of every entry of a memory, once for every k and every pruning rate.

    Attributes:
        memory: Memory to search.
        count: Number of neighbours of each entry.
    """

    memory: Extracted | Clustered | Compacted
    count: int

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + count_pairs(_corpus(self.memory)) * 1.5e-4

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = Memory.open(workspace.folder(self.memory))
        graph = build_neighbour_graph(memory, self.count, device=workspace.device)
        for name, array in graph._asdict().items():
            np.save(folder / f"{name}.npy", array)
        return {}

    def read(self, folder: Path) -> NeighbourGraph:
        """Map the stored neighbour graph into memory.

        Args:
            folder: Folder of this stage, built.
        """
        return NeighbourGraph(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in NeighbourGraph._fields))


@dataclass(frozen=True)
class Pruned(Stage):
    """Prune a memory; the copy is built in seconds and removed after use.

    Attributes:
        memory: Memory to prune.
        settings: Strategy and rate.
        neighbourhoods: Nearest entries, where the strategy needs them.
    """

    memory: Extracted | Clustered | Compacted | Tuned
    settings: PruneSettings
    neighbourhoods: Neighbourhoods | None = None

    cheap: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,) if self.neighbourhoods is None else (self.memory, self.neighbourhoods)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + count_pairs(_corpus(self.memory)) * 4e-5

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(workspace.folder(self.memory), folder)
        stage = self.neighbourhoods
        graph = None if stage is None else stage.read(workspace.folder(stage))
        memory = prune_memory(memory, self.settings, keep_unpruned=False, graph=graph, device=workspace.device)
        notes = memory.manifest.stages["prune"]
        return {name: notes[name] for name in ("entries_before", "entries", "achieved", "groups", "clusters")}


@dataclass(frozen=True)
class Indexed(Stage):
    """Index a memory; on a GPU the paper's index is built when it is opened, and nothing is stored.

    Attributes:
        memory: Memory to index.
        setting: Setting of `ibidem index`.
    """

    memory: Extracted | Clustered | Compacted | Pruned
    setting: str

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def required_library(self, device: torch.device) -> str | None:
        return None if self.is_made_on(device) else "faiss"

    def is_made_on(self, device: torch.device) -> bool:
        """Return whether the device has its own form of this index.

        Args:
            device: Device that searches.
        """
        return device.type == "cuda" and is_for_gpu(self.setting)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 60 + count_pairs(_corpus(self.memory)) * 2e-4

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(workspace.folder(self.memory), folder)
        if self.is_made_on(workspace.device):
            return {}
        memory, index = index_memory(memory, self.setting)
        return {"description": index.description, "bytes": memory.bytes_by_array().get("index", 0)}


@dataclass(frozen=True)
class Tuned(Stage):
    """Tune the combiners of a memory on a dev set, with exact search unless the memory has an index.

    Attributes:
        memory: Memory to tune.
        dev: Domain of the dev set.
        k: Number of neighbours.
        settings: Settings of the Meta-k Network.
    """

    memory: Extracted | Clustered | Compacted | Pruned | Indexed
    dev: str
    k: int
    settings: MetaKSettings

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.dev, "dev"),)

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 30 + count_pairs(_corpus(self.memory)) * 2e-5

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(workspace.folder(self.memory), folder)
        setting = self.memory.setting if isinstance(self.memory, Indexed) else "exact"
        # The paper's systems use the adaptive combiner only.
        settings = TuneSettings(k=self.k, metak=self.settings, contextual=ContextualSettings(updates=0))
        memory = tune(memory, workspace.model, workspace.corpus(self.dev, "dev"), settings=settings, setting=setting)
        notes = memory.manifest.stages["tune"]
        return {name: notes[name] for name in notes if name.startswith("loss_") or name in ("tokens", "adaptive")}


@dataclass(frozen=True)
class FineTuned(Stage):
    """Fine-tune the base model on a corpus, all weights or adapters, as `ibidem adapt` does.

    Attributes:
        corpus: Domains of the training text.
        dev: Domain of the dev set.
        settings: Settings of the training.
    """

    corpus: tuple[str, ...]
    dev: str
    settings: AdaptSettings

    resumes: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The kind of training, its text and its length."""
        kind = f"LoRA of rank {self.settings.lora_rank}" if self.settings.lora_rank else "fine-tuned"
        return f"{kind} on {'+'.join(self.corpus)} {self.settings.updates} updates"

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return (*((domain, "train") for domain in self.corpus), (self.dev, "dev"))

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 15 + self.settings.updates / 10 + count_pairs(self.corpus) * 1e-4

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        model = load_model(workspace.setting.model, device=workspace.setting.device)
        train, dev = workspace.train(self.corpus), workspace.corpus(self.dev, "dev")
        report = adapt_model(model, train, folder / MODEL, dev=dev, settings=self.settings).report
        kept = (
            "updates",
            "best_update",
            "averaged",
            "dev_loss",
            "dev_loss_before",
            "training_seconds",
            "pairs",
            "history",
        )
        return {name: report[name] for name in kept}


@dataclass(frozen=True)
class DefaultMemory(Stage):
    """Learn a memory as `ibidem learn` does by default: general compactor and contextual combiner.

    Memories that differ in the seed or the pruning share their entries: all are made from a copy of that of the first
    seed.

    Attributes:
        corpus: Domains of the training text.
        dev: Domain of the dev set.
        model: Fine-tuned model; None for the base model.
        metak: Settings of the Meta-k Network.
        contextual: Settings of the contextual combiner.
        prune: Pruning after tuning; None for none.
        seed: Seed of what is trained and pruned.
    """

    corpus: tuple[str, ...]
    dev: str
    model: FineTuned | None = None
    metak: MetaKSettings = field(default_factory=MetaKSettings)
    contextual: ContextualSettings = field(default_factory=ContextualSettings)
    prune: PruneSettings | None = None
    seed: int = SHARED_SEED

    resumes: ClassVar[bool] = True

    @property
    def copied(self) -> DefaultMemory | None:
        """The memory that this one is made from: the same before pruning, or that of the first seed."""
        if self.prune is not None:
            return replace(self, prune=None)
        # A fine-tuned model has a seed of its own, so memories of several ones share nothing.
        return None if self.seed == SHARED_SEED or self.model is not None else replace(self, seed=SHARED_SEED)

    @property
    def sources(self) -> tuple[Stage, ...]:
        copied = () if self.copied is None else (self.copied,)
        return copied if self.model is None else (*copied, self.model)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return (*((domain, "train") for domain in self.corpus), (self.dev, "dev"))

    @property
    def tuning(self) -> TuneSettings:
        """The settings of the combiners.

        The fixed one, whose rows are those of the first seed and the base model, is chosen by BLEU, since likelihood
        gives the neighbours too little weight.
        """
        return TuneSettings(
            objective="bleu" if self.model is None and self.seed == SHARED_SEED else "likelihood",
            metak=replace(self.metak, seed=self.seed),
            contextual=replace(self.contextual, seed=self.seed),
        )

    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 40 + count_pairs(self.corpus) * (3e-4 if self.copied is None else 5e-5)

    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        if self.copied is not None:
            shutil.rmtree(folder)  # a copy may be incomplete, and the rest takes little time
            copy_memory(workspace.folder(self.copied), folder)
        settings = LearnSettings(extract=ExtractSettings(batch_tokens=workspace.batch_tokens), tune=self.tuning)
        if self.prune is not None:
            settings = replace(settings, prune=replace(self.prune, seed=self.seed))
        train, dev = workspace.train(self.corpus), workspace.corpus(self.dev, "dev")
        memory = learn(self.load_model(workspace), train, folder, dev=dev, seed=SHARED_SEED, settings=settings)
        return {"pairs": memory.pairs, "entries": memory.entries}

    def load_model(self, workspace: Workspace) -> BaseModel:
        """Return the model of the memory.

        Args:
            workspace: Has the base model, and the folder of the fine-tuned one.
        """
        if self.model is None:
            return workspace.model
        return load_model(workspace.folder(self.model) / MODEL, device=workspace.setting.device)


def copy_memory(source: Path, target: Path) -> Memory:
    """Copy a memory by hard links, since its files never change; the lock and unfinished work are left out.

    Args:
        source: Folder of the memory.
        target: Folder of the copy, on the same file system; made where it is missing.

    Returns:
        The copy, opened.
    """
    for path in source.rglob("*"):
        relative = path.relative_to(source)
        if relative.parts[0] in (LOCK, WORK):
            continue
        if path.is_dir():
            (target / relative).mkdir(parents=True, exist_ok=True)
        else:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            link_file(path, target / relative)
    return Memory.open(target)


def _corpus(stage: Stage) -> tuple[str, ...]:
    while not isinstance(stage, Extracted | FineTuned):
        stage = stage.sources[0]
    return stage.corpus
