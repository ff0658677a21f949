"""Configurations of learning for the tests of jobs, and the content of a memory without its times.

`main` learns a memory on an executor, as a driver that the tests kill.

    python -c "from learn.jobs.configurations import main; main()" MODEL CORPUS MEMORY CONFIGURATION ON [COMPACTOR]
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ibidem.errors import MemoryFolderError
from ibidem.executor import LocalExecutor, RayExecutor, SlurmExecutor
from ibidem.learn import (
    ClusterSettings,
    CompactSettings,
    ContextualSettings,
    Distribution,
    ExtractSettings,
    LearnSettings,
    MetaKSettings,
    PruneSettings,
    TuneSettings,
    learn,
)
from ibidem.learn.compact import compaction
from ibidem.learn.prune import neighbour_graph
from ibidem.model import load_model
from ibidem.native import native
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ibidem.executor import Executor, Result
    from ibidem.learn.jobs import Context
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

BASE = LearnSettings(
    extract=ExtractSettings(segment_bytes=1 << 14),
    tune=TuneSettings(
        k=4,
        metak=MetaKSettings(updates=10, validate_every=5, validation="same"),
        contextual=ContextualSettings(updates=10),
    ),
    cluster=ClusterSettings(smallest=3, min_samples=2),
)
NONE = CompactSettings(method="none")
CONFIGURATIONS = {
    # With a compactor's file: the way of the default configuration.
    "given": replace(BASE, compact=NONE, index="exact" if native() is None else "native;lists=8", index_shards=2),
    "none": replace(
        BASE, compact=NONE, prune=PruneSettings(rate=0.3, groups="consistent", consistent_neighbours=1), index="Flat"
    ),
    "pca": replace(BASE, compact=CompactSettings(method="pca", dimension=8), keep_keys=True),
    "network": replace(
        BASE,
        compact=CompactSettings(dimension=6, batch=16, updates=20, validate_every=10, seed=3),
        prune=PruneSettings(rate=0.3, strategy="redundant", seed=3),
        index="IVF4,SQ8;nprobe=4",
    ),
}
# So that a small memory has several tasks in every stage. They are constants of the arithmetic: all runs need the same.
BLOCK_ROWS, ROWS_PER_SEARCH = 128, 128
# The tasks of a tiny model take milliseconds: too little to kill them in between.
TASK_SECONDS = 0.2


def set_block_sizes() -> None:
    compaction.BLOCK_ROWS = BLOCK_ROWS
    neighbour_graph.ROWS_PER_SEARCH = ROWS_PER_SEARCH


def slowly(function: Callable[[Any, Context, Path], Mapping[str, Any]], *arguments: Any) -> Mapping[str, Any]:
    """Run a task after a pause, in which it can be killed."""
    time.sleep(TASK_SECONDS)
    return function(*arguments)


class SlowExecutor:
    """Delays every task of an executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, number: int, function: Callable[[Any], Any], argument: Any) -> None:
        self._executor.submit(number, function, replace(argument, function=partial(slowly, argument.function)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


class DoublingExecutor:
    """Gives every task to two workers, as if the first one had been taken for dead though it was not."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._numbers: dict[int, int] = {}
        self._outer: dict[int, int] = {}
        self._finished: set[int] = set()
        self.repeated = self.late = 0

    def submit(self, number: int, function: Callable[[Any], Any], argument: Any) -> None:
        for place in range(2):
            inner = len(self._numbers)
            self._numbers[inner] = inner - place  # both attempts by the number of the first one
            self._executor.submit(inner, function, argument)
            self._outer[inner - place] = number

    def wait(self, timeout: float | None = None) -> Result | None:
        while True:
            try:
                result = self._executor.wait(timeout)
            except MemoryFolderError as error:
                place = re.search(r"\(task (\d+) on", str(error))
                if place is None or self._numbers[int(place[1])] not in self._finished:
                    raise
                self.late += 1  # the stage was over, and its folder deleted
                continue
            if result is None:
                return None
            first = self._numbers[result.number]
            if first in self._finished:
                self.repeated += 1
                continue
            self._finished.add(first)
            return replace(result, number=self._outer[first])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def distribute(executor: Executor) -> Distribution:
    return Distribution(executor, threads=1, task_rows=256, task_pairs=5000, report_seconds=1.0)


def run(
    model: BaseModel,
    corpus: Path,
    path: Path,
    name: str,
    executor: Executor | None = None,
    compactor: Path | None = None,
    **others: Any,
) -> Memory:
    settings = CONFIGURATIONS[name]
    if compactor is not None:
        settings = replace(settings, compactor=compactor)
    distribution = None if executor is None else distribute(executor)
    return learn(model, Corpus([corpus]), path, seed=1, settings=settings, distribution=distribution, **others)


def content(path: Path) -> dict[str, Any]:
    """Return all files of a memory by name, without times and without the card, which repeats them."""
    found: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if not file.is_file() or name in ("lock", "lock.holder", "README.md", "manifest.previous.json"):
            continue
        if name == "manifest.json" or name.startswith("snapshots/"):  # a snapshot is a copy of an earlier manifest
            document = json.loads(file.read_bytes())
            for key in ("checksum", "created", "updated"):
                document.pop(key)
            document["snapshots"] = {kept: record["file"] for kept, record in document["snapshots"].items()}
            for notes in document["stages"].values():
                notes.pop("seconds", None)
            found[name] = document
        else:
            found[name] = file.read_bytes()
    return found


def main() -> None:
    model, corpus, path, name, on, *compactor = sys.argv[1:]
    torch.set_num_threads(1)
    set_block_sizes()
    loaded = load_model(model, device="cpu")
    executor: Executor
    if on == "slurm":
        executor = SlurmExecutor(2, Path(path).with_suffix(".jobs"), threads=1, cluster="local")
    elif on.startswith("ray"):
        executor = RayExecutor(2, address=on[4:] or None, attempts=20)
    else:
        executor = LocalExecutor(int(on.partition(":")[2] or 2), threads=1, attempts=20)
    print("ready", flush=True)
    with executor:
        slow: Any = SlowExecutor(executor)
        run(loaded, Path(corpus), Path(path), name, slow, Path(compactor[0]) if compactor else None)
    print("done", flush=True)
