"""The bench: one process's model, data and folders, on which stages are made and rows are measured."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ibidem.errors import MismatchError
from ibidem.model import BaseModel, load_model, resolve_device
from ibidem.reproduce.data import Data, write_joined
from ibidem.reproduce.declaration import digest
from ibidem.reproduce.stages import Stage, Trained, write_notes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ibidem.text import Corpus

DONE = "done.json"
MODEL = "model.json"


@dataclass(frozen=True)
class Setting:
    """Where everything lies and on what it runs; every process makes its own bench of it."""

    data: Path
    work: Path
    results: Path
    model: str | None = None
    device: str = "auto"
    threads: int | None = None
    jobs: int = 1
    smoke: bool = False


class Bench:
    """Made of a setting; the model is loaded when it is first needed."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.data = Data(setting.data)
        self.device = resolve_device(setting.device)
        on_cuda = self.device.type == "cuda"
        self.batch_tokens = 32_768 if on_cuda else 4096
        self.batch_size = 128 if on_cuda else 32
        if setting.threads is not None:
            torch.set_num_threads(setting.threads)

    @cached_property
    def model(self) -> BaseModel:
        """The base model on the device; raises MismatchError where the results are another model's."""
        model = load_model(self.setting.model, device=self.setting.device)
        claim_results(self.setting.results, model)
        return model

    @cached_property
    def fingerprint(self) -> str:
        """The base model's; weighed on the CPU, so that who only plans takes no room on the device."""
        if "model" in self.__dict__:
            return self.model.fingerprint
        model = load_model(self.setting.model, device="cpu")
        claim_results(self.setting.results, model)
        return model.fingerprint

    @property
    def model_name(self) -> str:
        """The model's name without the folder it lies in."""
        return short_name(self.model.name)

    def corpus(self, domain: str, part: str) -> Corpus:
        """A part of a domain."""
        return self.data.corpus(domain, part)

    def pairs(self, domain: str, part: str) -> tuple[list[str], list[str]]:
        """Sources and references of a part."""
        found = list(self.corpus(domain, part))
        return [pair.source for pair in found], [pair.target for pair in found]

    def train(self, corpus: tuple[str, ...]) -> Corpus:
        """The training text of one or several domains."""
        if len(corpus) == 1:
            return self.corpus(corpus[0], "train")
        parts = [self.corpus(domain, "train") for domain in corpus]
        return write_joined(parts, self.setting.work / f"text-{digest(corpus, self._texts(corpus))}")

    def count_pairs(self, corpus: tuple[str, ...]) -> int:
        """The lines of a training text."""
        return sum(self.data.facts(domain, "train").lines for domain in corpus)

    def folder(self, stage: Stage) -> Path:
        """Where a stage is, or will be: compactors among the results, all else among the work."""
        texts = sorted({text for source in below(stage) for text in source.texts})
        facts = [[*text, self.data.facts(*text).digest] for text in texts]
        name = digest(stage, self.fingerprint, facts)
        if isinstance(stage, Trained):
            return self.setting.results / "compactors" / name
        return self.setting.work / f"{type(stage).__name__.lower()}-{name}"

    def is_made(self, stage: Stage) -> bool:
        """Whether a stage is there."""
        return (self.folder(stage) / DONE).is_file()

    def notes(self, stage: Stage) -> dict[str, Any]:
        """What was noted of a stage that is there."""
        notes: dict[str, Any] = json.loads((self.folder(stage) / DONE).read_text("utf-8"))
        return notes

    def make(self, stage: Stage) -> None:
        """Make a stage whose sources are there, unless it is there itself."""
        folder = self.folder(stage)
        if self.is_made(stage):
            return
        if folder.exists() and not stage.resumes:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        notes = stage.make(self, folder)
        seconds = time.perf_counter() - started
        write_notes(folder / DONE, {"stage": type(stage).__name__, "seconds": seconds, **notes})
        self.free()

    def make_all(self, stages: Iterable[Stage]) -> None:
        """Make stages and all that they need."""
        for stage in stages:
            if not self.is_made(stage):
                self.make_all(stage.sources)
                self.make(stage)

    def remove(self, stage: Stage) -> None:
        """Remove a stage that nothing needs any more."""
        shutil.rmtree(self.folder(stage), ignore_errors=True)

    def free(self) -> None:
        """Give back what torch keeps of the device, since other processes share it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _texts(self, corpus: tuple[str, ...]) -> list[str]:
        return [self.data.facts(domain, "train").digest for domain in corpus]


def below(stage: Stage) -> list[Stage]:
    """A stage and all that it is made from."""
    return [stage, *(other for source in stage.sources for other in below(source))]


def short_name(name: str) -> str:
    """A model's name on the hub, or the last part of its folder: results travel, folders do not."""
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] if name.startswith(("/", ".", "~")) else name


def claim_results(results: Path, model: BaseModel) -> None:
    """Note whose results a folder holds; raises MismatchError where they are another model's."""
    file = results / MODEL
    claim = {"name": short_name(model.name), "fingerprint": model.fingerprint, "dimension": model.dimension}
    if not file.exists():
        results.mkdir(parents=True, exist_ok=True)
        write_notes(file, claim)
        return
    stored = json.loads(file.read_text("utf-8"))
    if stored["fingerprint"] != model.fingerprint:
        raise MismatchError(
            f"{results} holds results of the model '{stored['name']}', not of this '{claim['name']}': "
            "name another folder with --results."
        )
