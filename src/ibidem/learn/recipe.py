"""The whole recipe: corpus in, ready memory out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.indexing import index_memory
from ibidem.learn.tuning import TuneSettings, is_tuned, tune
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
    index: str | None = None
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
    """Extract, index and tune; a stage that is done already, with these settings, is not done again.

    So a killed `learn` goes on, and one with another dev set or index does only that anew. On a CUDA device no
    index is built unless one is named: exact search needs none there, and `ibidem index` builds one at any time.
    """
    settings = settings or LearnSettings()
    settings.tune.check(dev)
    memory = extract(model, train, path, seed=seed, settings=settings.extract, progress=progress)
    index = None
    setting = settings.index or ("auto" if model.device.type == "cpu" else None)
    if setting is not None and memory.manifest.stages.get("index", {}).get("setting") != setting:
        memory, index = index_memory(memory, setting, threads=settings.threads, progress=progress)
    if index is not None or not is_tuned(memory, dev, settings.tune):
        index = index or open_index(memory, settings.index, model.device)
        memory = tune(memory, model, dev, settings=settings.tune, index=index, progress=progress)
    return memory
