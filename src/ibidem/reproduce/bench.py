"""The bench: one process's model, data and folders, on which stages are made and rows are measured."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ibidem.errors import IbidemError, MismatchError, UsageError
from ibidem.model import BaseModel, load_model, resolve_device
from ibidem.reproduce.data import Data, find_changed, write_joined
from ibidem.reproduce.declaration import agrees, describe, digest
from ibidem.reproduce.stages import Stage, Trained, write_notes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.text import Corpus

DONE = "done.json"
MODEL = "model.json"
COMPACTORS = "compactors"


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


class Workspace:
    """Made of a setting; the model is loaded when it is first needed."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.data = Data(setting.data)
        self.device = resolve_device(setting.device)
        on_cuda = self.device.type == "cuda"
        self.batch_tokens = 32_768 if on_cuda else 4096
        self.batch_size = 128 if on_cuda else 32
        self._folders: dict[Stage, Path] = {}
        self._notes: dict[Path, dict[str, Any]] = {}
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
        """The base model's, as the results name it; a model for the first results is weighed on the CPU.

        So planning takes no room on the device; whoever then loads the model finds out if it is another one.
        """
        if "model" not in self.__dict__ and not (self.setting.results / MODEL).exists():
            self.check_model()
        return str(read_claim(self.setting.results)["fingerprint"])

    def check_model(self) -> None:
        """Raise MismatchError where the results are another model's."""
        claim_results(self.setting.results, load_model(self.setting.model, device="cpu"))

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
        texts = self.read_texts((domain, "train") for domain in corpus)
        return write_joined(parts, self.setting.work / f"text-{digest(corpus, texts)}")

    def count_pairs(self, corpus: tuple[str, ...]) -> int:
        """The lines of a training text."""
        return sum(self.data.facts(domain, "train").lines for domain in corpus)

    def folder(self, stage: Stage) -> Path:
        """Where a stage is, or will be: compactors among the results, all else among the work.

        Compactors are found without the texts they were trained on, which need not lie on every machine.
        """
        if stage not in self._folders:
            self._folders[stage] = self._choose_folder(stage)
        return self._folders[stage]

    def _choose_folder(self, stage: Stage) -> Path:
        if isinstance(stage, Trained):
            return self.setting.results / COMPACTORS / digest(stage, self.fingerprint)
        name = digest(describe(stage), self.fingerprint, sorted(self.texts(stage).items()))
        return self.setting.work / f"{type(stage).__name__.lower()}-{name}"

    def texts(self, stage: Stage) -> dict[str, str]:
        """The digest of every text that a stage and its sources were made from, by domain/part."""
        if isinstance(stage, Trained) and self.is_made(stage):
            return dict(self.notes(stage)["texts"])
        return self.read_texts(stage.texts) | {
            text: found for source in stage.sources for text, found in self.texts(source).items()
        }

    def read_texts(self, texts: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The digests of some texts."""
        return {f"{domain}/{part}": self.data.facts(domain, part).digest for domain, part in texts}

    def is_made(self, stage: Stage) -> bool:
        """Whether a stage is there; raises UsageError for a compactor that was trained on another text."""
        if isinstance(stage, Trained) and not (self.setting.results / COMPACTORS).is_dir():
            return False  # which can be told without a look at the model
        notes = self.notes(stage)
        if not notes or not agrees(notes["stage"], stage):
            return False
        changed = find_changed(notes["texts"], self.data) if isinstance(stage, Trained) else None
        if changed is not None:
            raise UsageError(
                f"{self.folder(stage)} was trained on another text of {changed} than lies in {self.data.folder}: "
                "name another folder with --results."
            )
        return True

    def notes(self, stage: Stage) -> dict[str, Any]:
        """What was noted of a stage; nothing where it is not there."""
        file = self.folder(stage) / DONE
        if file not in self._notes:
            if not file.is_file():
                return {}
            self._notes[file] = json.loads(file.read_text("utf-8"))
        return self._notes[file]

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
        facts = {"stage": describe(stage), "texts": self.texts(stage), "seconds": seconds}
        write_notes(folder / DONE, {**notes, **facts})
        self.free()

    def make_all(self, stages: Iterable[Stage]) -> None:
        """Make stages and all that they need."""
        for stage in stages:
            if not self.is_made(stage):
                self.make_all(stage.sources)
                self.make(stage)

    def remove(self, stage: Stage) -> None:
        """Remove a stage that nothing needs any more."""
        self._notes.pop(self.folder(stage) / DONE, None)
        shutil.rmtree(self.folder(stage), ignore_errors=True)

    def free(self) -> None:
        """Give back what torch keeps of the device, since other processes share it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def below(stage: Stage) -> list[Stage]:
    """A stage and all that it is made from."""
    return [stage, *(other for source in stage.sources for other in below(source))]


def short_name(name: str) -> str:
    """A model's name on the hub, or the last part of its folder: results travel, folders do not."""
    return Path(name).name if Path(name).is_absolute() else name


def claim_results(results: Path, model: BaseModel) -> None:
    """Note whose results a folder holds; raises MismatchError where they are another model's."""
    claim = {"name": short_name(model.name), "fingerprint": model.fingerprint, "dimension": model.dimension}
    if not (results / MODEL).exists():
        results.mkdir(parents=True, exist_ok=True)
        write_notes(results / MODEL, claim)
        return
    stored = read_claim(results)
    if stored["fingerprint"] != model.fingerprint:
        raise MismatchError(
            f"{results} holds results of the model '{stored['name']}', not of this '{claim['name']}': "
            "name another folder with --results."
        )


def read_claim(results: Path) -> dict[str, Any]:
    """Name, fingerprint and dimension of the model whose results a folder holds."""
    try:
        claim: dict[str, Any] = json.loads((results / MODEL).read_text("utf-8"))
        _ = claim["name"], claim["fingerprint"]
    except (ValueError, KeyError, TypeError) as error:
        raise IbidemError(f"{results / MODEL} cannot be read ({error}): remove it and run again.") from error
    return claim
