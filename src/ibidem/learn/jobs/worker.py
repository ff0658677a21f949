"""The side of the workers: the check of a worker's environment, its model and memory, and the performance of a task."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import ibidem
from ibidem.errors import MemoryFolderError, MismatchError
from ibidem.learn.jobs.parts import find_part, seal_part
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.native import loaded_instructions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ibidem.model import BaseModel

_CODE = (".py", ".so", ".dll", ".dylib")


@dataclass(frozen=True)
class ModelSource:
    """How a worker loads the driver's model, and how it recognises it.

    Attributes:
        name: The name of the model, or its folder, which all machines see.
        device: "cpu" or "cuda".
        arithmetic: The number format of the states.
        source_language: The source language.
        target_language: The target language.
        source_prefix: Text before every source.
        fingerprint: The fingerprint of the weights.
        tokenizer_fingerprint: The fingerprint of the tokenizer.
    """

    name: str
    device: str
    arithmetic: str
    source_language: str | None
    target_language: str | None
    source_prefix: str
    fingerprint: str
    tokenizer_fingerprint: str

    @classmethod
    def of(cls, model: BaseModel) -> ModelSource:
        """Describe a loaded model.

        Args:
            model: The model.
        """
        tokens = model.tokens
        return cls(
            model.name,
            model.device.type,
            model.arithmetic,
            tokens.source_language,
            tokens.target_language,
            tokens.source_prefix,
            model.fingerprint,
            model.tokenizer_fingerprint,
        )


@dataclass(frozen=True)
class Context:
    """What a task finds in its worker.

    Attributes:
        folder: The work folder of the stage, with the files that the driver wrote for all tasks.
        model: The base model; None for a stage that needs none.
        memory: The memory; None for a stage that reads none.
        device: Where to compute.
    """

    folder: Path
    model: BaseModel | None
    memory: Memory | None
    device: torch.device


@dataclass(frozen=True)
class TaskRequest:
    """A task as it is sent to a worker.

    Attributes:
        folder: The work folder of the stage.
        number: The number of the task.
        digest: The digest of its input.
        function: Takes the argument, the context and a folder, into which it writes the files of the part, and returns
            what is stored with them.
        argument: The argument of the function.
        environment: What the worker must have in common with the driver.
        model: The model that the task needs.
        memory: The folder and generation of the memory that the task reads.
        device: Where to compute: "cpu" or "cuda".
        threads: The threads of torch; None keeps the default of the worker.
    """

    folder: str
    number: int
    digest: str
    function: Callable[[Any, Context, Path], Mapping[str, Any]]
    argument: object
    environment: Mapping[str, str]
    model: ModelSource | None
    memory: tuple[str, int] | None
    device: str
    threads: int | None


def perform(request: TaskRequest) -> dict[str, Any]:
    """Perform a task in a worker, unless its part is sealed already.

    Args:
        request: The task.

    Returns:
        The info of the part.

    Raises:
        MismatchError: The worker has another model, code or arithmetic than the driver.
        MemoryFolderError: The part cannot be written, or the memory is not the driver's.
    """
    folder = Path(request.folder)
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    check_environment(request.environment)
    if (known := find_part(folder, request.number, request.digest)) is not None:
        return dict(known.info)
    model = None if request.model is None else _load_model(request.model)
    memory = None if request.memory is None else _open_memory(*request.memory)
    context = Context(folder, model, memory, torch.device(request.device))
    try:
        mark = folder / f"running-{request.number:09d}.json"
        mark.write_text(json.dumps({"worker": worker_name()}), "utf-8")
        part = seal_part(
            folder, request.number, request.digest, lambda place: request.function(request.argument, context, place)
        )
        mark.unlink(missing_ok=True)
    except OSError as error:
        raise MemoryFolderError(
            f"{error.filename or folder} could not be written on {worker_name()}: {error.strerror}. All workers need "
            "the folder of the memory under the same path, with free space; then run the same command again."
        ) from error
    return dict(part.info)


def worker_name() -> str:
    """Return the name of this process: its host and its number."""
    return f"{socket.gethostname()}:{os.getpid()}"


def describe_environment() -> dict[str, str]:
    """Return what must be equal in all processes, so that they compute the same bytes, by name."""
    return dict(_environment())


@lru_cache(maxsize=1)
def _environment() -> Mapping[str, str]:
    return {
        "version of ibidem": ibidem.__version__,
        "code of ibidem": _digest_code()[:16],
        "version of torch": str(torch.__version__),
        "version of numpy": np.__version__,
        "native library": loaded_instructions() or "none",
        "instruction set": torch.backends.cpu.get_cpu_capability(),
    }


def _digest_code() -> str:
    """Return the sha256 of all modules and libraries of the package."""
    root = Path(str(files("ibidem")))
    total = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.suffix in _CODE):
        total.update(file.relative_to(root).as_posix().encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def check_environment(wanted: Mapping[str, str]) -> None:
    """Check that this worker computes like the driver.

    Args:
        wanted: The environment of the driver.

    Raises:
        MismatchError: Something differs; the message names the worker.
    """
    own = describe_environment()
    for name, value in wanted.items():
        if own.get(name) != value:
            raise _refusal(name, own.get(name, "missing"), value)


def _refusal(name: str, found: str, wanted: str) -> MismatchError:
    return MismatchError(
        f"The worker {worker_name()} is refused: its {name} is {found}, and the job was started with {wanted}. Install "
        "the same ibidem with the same libraries on machines of one kind, or leave this one out"
    )


@lru_cache(maxsize=1)
def _load_model(source: ModelSource) -> BaseModel:
    model = load_model(
        source.name,
        device=source.device,
        dtype=source.arithmetic,
        source_language=source.source_language,
        target_language=source.target_language,
        source_prefix=source.source_prefix,
    )
    for name, found, wanted in (
        ("model fingerprint", model.fingerprint, source.fingerprint),
        ("tokenizer fingerprint", model.tokenizer_fingerprint, source.tokenizer_fingerprint),
        ("arithmetic", model.arithmetic, source.arithmetic),
    ):
        if found != wanted:
            raise _refusal(name, found[:16], wanted[:16])
    return model


@lru_cache(maxsize=1)
def _open_memory(path: str, generation: int) -> Memory:
    memory = Memory.open(path)
    if memory.generation != generation:
        raise _refusal(f"generation of {path}", str(memory.generation), str(generation))
    return memory
