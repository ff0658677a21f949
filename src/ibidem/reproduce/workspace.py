"""The workspace of a run: model, data and folders of one process, and the stages that are built in it."""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ibidem.errors import IbidemError, MismatchError, UsageError
from ibidem.model import BaseModel, load_model, resolve_device
from ibidem.reproduce.data import Data, find_changed, write_joined
from ibidem.reproduce.results import agrees, describe, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ibidem.text import Corpus

DONE = "done.json"
MODEL = "model.json"
COMPACTORS = "compactors"


@dataclass(frozen=True)
class RunSettings:
    """Name the folders, the model and the device of a run; every process makes its own workspace of it.

    Attributes:
        data: Folder of parallel text.
        work: Folder of memories and other stages; large, and safe to delete.
        results: Folder of rows, tables and trained compactors.
        model: Name or folder of the base model; the shipped model where it is None.
        device: Name of the torch device, or "auto".
        threads: Number of torch threads; torch's default where it is None.
        jobs: Number of rows that run side by side.
        smoke: Whether this is a quick run whose figures mean nothing.
    """

    data: Path
    work: Path
    results: Path
    model: str | None = None
    device: str = "auto"
    threads: int | None = None
    jobs: int = 1
    smoke: bool = False


class Stage(ABC):
    """Build one intermediate result that rows share, such as a memory, a compactor or an index.

    A stage is a frozen dataclass; its digest names its folder.

    Attributes:
        resumes: Whether `make` continues in the folder that an interrupted run left.
        cheap: Whether it is built in seconds but takes much disk, so that it is removed after use.
        kept: Whether it is stored with the results and outlasts the work folder.
    """

    resumes: ClassVar[bool] = False
    cheap: ClassVar[bool] = False
    kept: ClassVar[bool] = False

    @property
    def sources(self) -> tuple[Stage, ...]:
        """Return the stages that it is built from."""
        return ()

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return the (domain, part) of every text that it reads itself."""
        return ()

    def required_library(self, device: torch.device) -> str | None:  # noqa: ARG002 - stages with a library override it
        """Return the optional library that it needs on a device; None where it needs none.

        Args:
            device: Device of the run.
        """
        return None

    @abstractmethod
    def estimate_seconds(self, count_pairs: Callable[[tuple[str, ...]], int]) -> float:
        """Estimate its seconds on a data-centre GPU shared by several processes.

        Args:
            count_pairs: Returns the number of sentence pairs of a corpus.
        """

    @abstractmethod
    def make(self, workspace: Workspace, folder: Path) -> dict[str, Any]:
        """Build it in an empty folder, or continue in one that an interrupted run left.

        Args:
            workspace: Workspace where its sources are built.
            folder: Its folder, which exists.

        Returns:
            Notes about it, as JSON can hold them.
        """


class Workspace:
    """Hold model, data and folders of a run, and build stages; the model is loaded when it is first needed.

    Args:
        setting: Folders, model and device.
    """

    def __init__(self, setting: RunSettings) -> None:
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
        """Return the base model on the device.

        Raises:
            MismatchError: The results folder holds results of another model.
        """
        model = load_model(self.setting.model, device=self.setting.device)
        claim_results(self.setting.results, model)
        return model

    @cached_property
    def fingerprint(self) -> str:
        """Return the base model's fingerprint as the results folder names it.

        For the first results the model is loaded on the CPU, so that planning takes no memory of the device.
        """
        if "model" not in self.__dict__ and not (self.setting.results / MODEL).exists():
            self.check_model()
        return str(read_claim(self.setting.results)["fingerprint"])

    def check_model(self) -> None:
        """Raise MismatchError where the results folder holds results of another model."""
        claim_results(self.setting.results, load_model(self.setting.model, device="cpu"))

    @property
    def model_name(self) -> str:
        """Return the model's name without the folder that holds it."""
        return short_name(self.model.name)

    def corpus(self, domain: str, part: str) -> Corpus:
        """Return a part of a domain.

        Args:
            domain: Name in lower case, such as "it".
            part: "train", "dev" or "test".

        Raises:
            UsageError: The part is missing.
        """
        return self.data.corpus(domain, part)

    def pairs(self, domain: str, part: str) -> tuple[list[str], list[str]]:
        """Return the sources and the references of a part.

        Args:
            domain: Name in lower case, such as "it".
            part: "train", "dev" or "test".

        Raises:
            UsageError: The part is missing.
        """
        found = list(self.corpus(domain, part))
        return [pair.source for pair in found], [pair.target for pair in found]

    def train(self, corpus: tuple[str, ...]) -> Corpus:
        """Return the training text of one or several domains.

        Args:
            corpus: Domains; the texts of several are joined in the work folder.
        """
        if len(corpus) == 1:
            return self.corpus(corpus[0], "train")
        parts = [self.corpus(domain, "train") for domain in corpus]
        texts = self.read_texts((domain, "train") for domain in corpus)
        return write_joined(parts, self.setting.work / f"text-{digest(corpus, texts)}")

    def count_pairs(self, corpus: tuple[str, ...]) -> int:
        """Return the number of sentence pairs of a training text.

        Args:
            corpus: Domains whose training texts are counted.
        """
        return sum(self.data.facts(domain, "train").lines for domain in corpus)

    def folder(self, stage: Stage) -> Path:
        """Return the folder of a stage, built or not: kept stages under the results, others under the work folder.

        The folder of a kept stage does not depend on the texts, which need not be present on every machine.

        Args:
            stage: The stage.
        """
        if stage not in self._folders:
            self._folders[stage] = self._choose_folder(stage)
        return self._folders[stage]

    def _choose_folder(self, stage: Stage) -> Path:
        if stage.kept:
            return self.setting.results / COMPACTORS / digest(stage, self.fingerprint)
        name = digest(describe(stage), self.fingerprint, sorted(self.texts(stage).items()))
        return self.setting.work / f"{type(stage).__name__.lower()}-{name}"

    def texts(self, stage: Stage) -> dict[str, str]:
        """Return the digest of every text that a stage and its sources were built from, by "domain/part".

        Args:
            stage: The stage; its texts must be present unless it is kept and built.
        """
        if stage.kept and self.is_made(stage):
            return dict(self.notes(stage)["texts"])
        return self.read_texts(stage.texts) | {
            text: found for source in stage.sources for text, found in self.texts(source).items()
        }

    def read_texts(self, texts: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Return the digests of some texts, by "domain/part".

        Args:
            texts: (domain, part) of each text, which must be present.
        """
        return {f"{domain}/{part}": self.data.facts(domain, part).digest for domain, part in texts}

    def is_made(self, stage: Stage) -> bool:
        """Return whether a stage is built.

        Args:
            stage: The stage.

        Raises:
            UsageError: A kept stage was trained on another state of a text.
        """
        if stage.kept and not (self.setting.results / COMPACTORS).is_dir():
            return False  # answered without loading the model
        notes = self.notes(stage)
        if not notes or not agrees(notes["stage"], stage):
            return False
        changed = find_changed(notes["texts"], self.data) if stage.kept else None
        if changed is not None:
            raise UsageError(
                f"{self.folder(stage)} was trained on another text of {changed} than the one in {self.data.folder}: "
                "name another folder with --results."
            )
        return True

    def notes(self, stage: Stage) -> dict[str, Any]:
        """Return the notes of a stage; empty where it is not built.

        Args:
            stage: The stage.
        """
        file = self.folder(stage) / DONE
        if file not in self._notes:
            if not file.is_file():
                return {}
            self._notes[file] = json.loads(file.read_text("utf-8"))
        return self._notes[file]

    def make(self, stage: Stage) -> None:
        """Build a stage whose sources are built, unless it is built itself.

        Args:
            stage: The stage.
        """
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
        """Build stages and all that they are built from.

        Args:
            stages: Stages; those that are built are left as they are.
        """
        for stage in stages:
            if not self.is_made(stage):
                self.make_all(stage.sources)
                self.make(stage)

    def remove(self, stage: Stage) -> None:
        """Remove the folder of a stage.

        Args:
            stage: The stage; nothing happens where it is not built.
        """
        self._notes.pop(self.folder(stage) / DONE, None)
        shutil.rmtree(self.folder(stage), ignore_errors=True)

    def free(self) -> None:
        """Release the device memory that torch caches, since other processes share the device."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def with_sources(stage: Stage) -> list[Stage]:
    """Return a stage and all stages that it is built from, the nearest first.

    Args:
        stage: The stage.

    Returns:
        The stages; one that is the source of several occurs several times.
    """
    return [stage, *(other for source in stage.sources for other in with_sources(source))]


def write_notes(file: Path, notes: dict[str, Any]) -> None:
    """Write notes as JSON in one step; the file's existence means that its folder is complete.

    Args:
        file: File to write or replace.
        notes: JSON values.
    """
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(notes, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)


def short_name(name: str) -> str:
    """Return a model's name on the hub, or the last part of its folder: results must hold no local path.

    Args:
        name: Name or folder of the model.

    Examples:
        >>> short_name("/models/opus-mt-de-en"), short_name("Helsinki-NLP/opus-mt-de-en")
        ('opus-mt-de-en', 'Helsinki-NLP/opus-mt-de-en')
    """
    return Path(name).name if Path(name).is_absolute() else name


def claim_results(results: Path, model: BaseModel) -> None:
    """Note in a results folder which model its results belong to.

    Args:
        results: Results folder; made where it is missing.
        model: The base model.

    Raises:
        MismatchError: The folder holds results of another model.
    """
    claim = {"name": short_name(model.name), "fingerprint": model.fingerprint, "dimension": model.dimension}
    if not (results / MODEL).exists():
        results.mkdir(parents=True, exist_ok=True)
        write_notes(results / MODEL, claim)
        return
    stored = read_claim(results)
    if stored["fingerprint"] != model.fingerprint:
        raise MismatchError(
            f"{results} holds results of the model '{stored['name']}', not of '{claim['name']}': "
            "name another folder with --results."
        )


def read_claim(results: Path) -> dict[str, Any]:
    """Return name, fingerprint and dimension of the model whose results a folder holds.

    Args:
        results: Results folder of at least one run.

    Raises:
        IbidemError: The note is damaged.
    """
    try:
        claim: dict[str, Any] = json.loads((results / MODEL).read_text("utf-8"))
        _ = claim["name"], claim["fingerprint"]
    except (ValueError, KeyError, TypeError) as error:
        raise IbidemError(f"{results / MODEL} cannot be read ({error}): remove it and run again.") from error
    return claim
