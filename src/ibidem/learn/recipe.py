"""The whole recipe: corpus in, ready memory out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.indexing import index_memory
from ibidem.learn.tuning import TuneSettings, tune
from ibidem.progress import Progress, silent
from ibidem.retrieve import open_index

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.text import Corpus


@dataclass(frozen=True)
class LearnSettings:
    """The settings of every stage."""

    extract: ExtractSettings = field(default_factory=ExtractSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)
    index: str = "auto"
    threads: int | None = None


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
    """Extract, index and tune; a stage that is done already is not done again, so a killed `learn` goes on.

    On a CUDA device the index is left out: exact search needs none there, and `ibidem index` builds one at
    any time.
    """
    settings = settings or LearnSettings()
    settings.tune.check(dev)
    memory = extract(model, train, path, seed=seed, settings=settings.extract, progress=progress)
    index = None
    if "index" not in memory.manifest.stages and model.device.type == "cpu":
        memory, index = index_memory(memory, settings.index, threads=settings.threads, progress=progress)
    if "tune" not in memory.manifest.stages:
        index = index or open_index(memory, None, model.device)
        memory = tune(memory, model, dev, settings=settings.tune, index=index, progress=progress)
    return memory
