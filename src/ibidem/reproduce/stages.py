"""Stages: what rows are made from. Each names its sources, so that rows with the same ones share them.

Memories that differ a little are hard-linked copies of one another. pairs(corpus) counts sentence pairs.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors.torch import save_file

from ibidem.compact import store_compactor
from ibidem.learn import (
    ClusterSettings,
    CompactSettings,
    ExtractSettings,
    MetaKSettings,
    NeighbourGraph,
    PruneSettings,
    TrainingData,
    TuneSettings,
    build_neighbour_graph,
    cluster_memory,
    compact_memory,
    extract,
    index_memory,
    prune_memory,
    train_compactor,
    tune,
)
from ibidem.memory import LOCK, WORK, Memory, link_file
from ibidem.model import load_model
from ibidem.reproduce.finetuning import Encoded, FineTuningSettings, fine_tune
from ibidem.retrieve import is_for_gpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from ibidem.reproduce.bench import Workspace

COMPACTOR = "compactor.safetensors"
WEIGHTS = "weights.safetensors"
SHARED_SEED = 1
"""The seed of what rows of all seeds share: extraction, clusters, indexes."""


class Stage(ABC):
    """What rows are made from.

    resumes: a folder that a killed run left is gone on in. cheap: it takes seconds to make and much room, so that it is
    removed after use.
    """

    resumes: ClassVar[bool] = False
    cheap: ClassVar[bool] = False

    @property
    def sources(self) -> tuple[Stage, ...]:
        """The stages that it is made from."""
        return ()

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """The texts that it reads itself, each a domain and its part."""
        return ()

    @abstractmethod
    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        """A guess at its seconds, from what an H200 took with several processes side by side."""

    @abstractmethod
    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        """Make it in an empty folder, or go on in one that a killed run left; what should be known of it."""


@dataclass(frozen=True)
class Extracted(Stage):
    """The memory of a corpus in the model's own space; several domains make one corpus."""

    corpus: tuple[str, ...]

    resumes: ClassVar[bool] = True

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return tuple((domain, "train") for domain in self.corpus)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + pairs(self.corpus) * 2e-4

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        settings = ExtractSettings(batch_tokens=bench.batch_tokens)
        memory = extract(bench.model, bench.train(self.corpus), folder, seed=SHARED_SEED, settings=settings)
        return {"pairs": memory.pairs, "entries": memory.entries}


@dataclass(frozen=True)
class Clustered(Stage):
    """A memory with its keys clustered."""

    memory: Extracted
    settings: ClusterSettings

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + pairs(self.memory.corpus) * 6e-5

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(bench.folder(self.memory), folder)
        memory = cluster_memory(memory, self.settings, device=bench.device)
        notes = memory.manifest.stages["cluster"]
        return {name: notes[name] for name in ("families", "clusters", "noise_share", "unsampled_share")}


@dataclass(frozen=True)
class Trained(Stage):
    """A compactor, trained on the keys of a memory; it outlives the work folder, since training takes long."""

    memory: Extracted | Clustered
    settings: CompactSettings

    resumes: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        seconds = 20 + pairs(_corpus(self.memory)) * 5e-5
        if self.settings.method == "network":
            names = [name for name, _ in self.settings.objectives]
            seconds += self.settings.updates * (0.008 if "prediction" in names else 0.005)
        return seconds

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = Memory.open(bench.folder(self.memory))
        material = TrainingData(
            memory.keys,
            memory.values(),
            memory.clusters(),
            memory.identity.vocabulary_size,
            bench.model.projection.weight.detach().float(),
        )
        trained = train_compactor(material, self.settings, device=bench.device, workspace=folder)
        assert trained is not None  # the method is never "none"
        identity = memory.identity
        notes = {"model": bench.model_name, "model_fingerprint": identity.model_fingerprint}
        for left in folder.iterdir():  # the workspace of the training
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        (folder / COMPACTOR).write_bytes(store_compactor(trained.compactor, notes))
        parameters = sum(tensor.numel() for tensor in trained.compactor.state_dict().values())
        return {**trained.report, "parameters": parameters}


@dataclass(frozen=True)
class Compacted(Stage):
    """A memory in the space of a compactor, without the model's own keys."""

    memory: Extracted | Clustered
    compactor: Trained

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory, self.compactor)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + pairs(_corpus(self.memory)) * 4e-5

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(bench.folder(self.memory), folder)
        compactor = bench.folder(self.compactor) / COMPACTOR
        compact_memory(memory, self.compactor.settings, compactor=compactor, device=bench.device)
        return {}


@dataclass(frozen=True)
class Surrounded(Stage):
    """The nearest entries of every entry of a memory, found once for every k and every rate that asks for them."""

    memory: Extracted | Clustered | Compacted
    count: int

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + pairs(_corpus(self.memory)) * 1.5e-4

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = Memory.open(bench.folder(self.memory))
        surroundings = build_neighbour_graph(memory, self.count, device=bench.device)
        for name, array in surroundings._asdict().items():
            np.save(folder / f"{name}.npy", array)
        return {}

    def read(self, folder: Path) -> NeighbourGraph:
        """What was found, as it lies on the disk."""
        return NeighbourGraph(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in NeighbourGraph._fields))


@dataclass(frozen=True)
class Pruned(Stage):
    """A memory with entries left out. It takes seconds to make and room for each rate: it is removed after use."""

    memory: Extracted | Clustered | Compacted | Tuned
    settings: PruneSettings
    surroundings: Surrounded | None = None

    cheap: ClassVar[bool] = True

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,) if self.surroundings is None else (self.memory, self.surroundings)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 5 + pairs(_corpus(self.memory)) * 4e-5

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(bench.folder(self.memory), folder)
        around = self.surroundings
        surroundings = None if around is None else around.read(bench.folder(around))
        memory = prune_memory(
            memory, self.settings, keep_unpruned=False, surroundings=surroundings, device=bench.device
        )
        notes = memory.manifest.stages["prune"]
        return {name: notes[name] for name in ("entries_before", "entries", "achieved", "groups", "clusters")}


@dataclass(frozen=True)
class Indexed(Stage):
    """A memory with an index; on a GPU the paper's is made when it is opened, and nothing is stored."""

    memory: Extracted | Clustered | Compacted | Pruned
    setting: str

    @property
    def sources(self) -> tuple[Stage, ...]:
        return (self.memory,)

    def is_made_on(self, device: torch.device) -> bool:
        """Whether the device has a form of its own of this index."""
        return device.type == "cuda" and is_for_gpu(self.setting)

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 60 + pairs(_corpus(self.memory)) * 2e-4

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(bench.folder(self.memory), folder)
        if self.is_made_on(bench.device):
            return {}
        memory, index = index_memory(memory, self.setting)
        return {"description": index.description, "bytes": memory.bytes_by_array().get("index", 0)}


@dataclass(frozen=True)
class Tuned(Stage):
    """A memory with combiners tuned on a dev set; searched exactly, unless its source has an index."""

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

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 30 + pairs(_corpus(self.memory)) * 2e-5

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        memory = copy_memory(bench.folder(self.memory), folder)
        setting = self.memory.setting if isinstance(self.memory, Indexed) else "exact"
        settings = TuneSettings(k=self.k, metak=self.settings)
        memory = tune(memory, bench.model, bench.corpus(self.dev, "dev"), settings=settings, setting=setting)
        notes = memory.manifest.stages["tune"]
        return {name: notes[name] for name in notes if name.startswith("loss_") or name in ("tokens", "adaptive")}


@dataclass(frozen=True)
class FineTuned(Stage):
    """The weights of the base model after full fine-tuning on a corpus."""

    corpus: tuple[str, ...]
    dev: str
    settings: FineTuningSettings

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return (*((domain, "train") for domain in self.corpus), (self.dev, "dev"))

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 15 + self.settings.updates / 10 + pairs(self.corpus) * 1e-4

    def make(self, bench: Workspace, folder: Path) -> dict[str, Any]:
        model = load_model(bench.setting.model, device=bench.setting.device)
        train, dev = (
            Encoded.of(model, [p.source for p in pairs], [p.target for p in pairs], bench.batch_tokens // 4)
            for pairs in (list(bench.train(self.corpus)), list(bench.corpus(self.dev, "dev")))
        )
        report = fine_tune(model, train, dev, self.settings)
        weights = {name: tensor.cpu().clone() for name, tensor in model.network.state_dict().items()}
        save_file(weights, folder / WEIGHTS)
        return {**report, "pairs": len(train.sources), "batch_tokens": bench.batch_tokens // 4}


def copy_memory(source: Path, target: Path) -> Memory:
    """A memory of its own that shares the files, which never change, but neither the lock nor unfinished work."""
    for path in source.rglob("*"):
        below = path.relative_to(source)
        if below.parts[0] in (LOCK, WORK):
            continue
        if path.is_dir():
            (target / below).mkdir(parents=True, exist_ok=True)
        else:
            (target / below).parent.mkdir(parents=True, exist_ok=True)
            link_file(path, target / below)
    return Memory.open(target)


def write_notes(file: Path, notes: dict[str, Any]) -> None:
    """Notes of a stage as JSON, which also say that it is done."""
    beside = file.with_suffix(".tmp")
    beside.write_text(json.dumps(notes, indent=1) + "\n", encoding="utf-8")
    beside.replace(file)


def _corpus(stage: Stage) -> tuple[str, ...]:
    while not isinstance(stage, Extracted | FineTuned):
        stage = stage.sources[0]
    return stage.corpus
