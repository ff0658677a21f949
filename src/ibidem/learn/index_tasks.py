"""A divided index in tasks: each builds the index of one part, and the driver stores them in order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ibidem.learn.jobs import Context, Job, Task, describe_environment
from ibidem.learn.maintenance import STAGE
from ibidem.learn.provenance import digest
from ibidem.memory import replace_file
from ibidem.retrieve import NativeIndex, PartPlan, RangeKeys, build_index, contents_digest, plan_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Edit, Memory
    from ibidem.progress import Progress

# A part does not hash files of this suffix, which may be larger than the RAM: its record of them has their sha256.
_INDEX, _RECORD = "index.bin", "index.json"


@dataclass(frozen=True)
class IndexOrder:
    """The argument of a task that builds a part of an index.

    Attributes:
        first: The first entry of the part.
        last: The entry after the last.
        setting: The setting of the index.
        threads: The most threads; None for as many as torch uses in the worker.
    """

    first: int
    last: int
    setting: str
    threads: int | None


def build_part(order: IndexOrder, context: Context, folder: Path) -> dict[str, Any]:
    """Build the index of one part.

    Args:
        order: The entries and the setting.
        context: The memory.
        folder: The folder of the part.

    Returns:
        The number of entries.
    """
    memory = context.memory
    assert memory is not None
    keys = RangeKeys(memory.search_keys, order.first, order.last)
    seed = memory.manifest.seed
    index = build_index(keys, order.setting, seed=seed, threads=order.threads, scratch=folder)
    info: dict[str, Any] = {}
    sha256 = None
    if isinstance(index, NativeIndex):
        info = index.save(folder / _INDEX)
        with (folder / _INDEX).open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    plan = asdict(plan_part(index, order.first, order.last, info))
    replace_file(folder / _RECORD, json.dumps({"plan": plan, "sha256": sha256}).encode("utf-8"))
    return {"entries": order.last - order.first}


def index_in_tasks(
    edit: Edit,
    memory: Memory,
    setting: str,
    ranges: Sequence[tuple[int, int]],
    threads: int | None,
    distribution: Distribution,
    progress: Progress,
) -> Iterator[tuple[PartPlan, Path, str | None]]:
    """Build the indexes of all parts.

    Args:
        edit: The edit of the memory, for the work folder.
        memory: The memory, whose generation the workers read.
        setting: The setting of the index.
        ranges: The first entry of each part, and the entry after its last.
        threads: The most threads of a worker; None for as many as it has.
        distribution: Runs the tasks.
        progress: Receives the number of keys.

    Yields:
        The description of each part, the file of its index, and the sha256 of this file; None for exact search, which
        has no file.
    """
    known = digest(contents_digest(memory), memory.manifest.seed, setting, list(ranges), describe_environment())
    folder = edit.workspace(STAGE, known)

    def tasks() -> Iterator[Task]:
        for number, (first, last) in enumerate(ranges):
            order, content = IndexOrder(first, last, setting, threads), digest(known, first, last)
            yield Task(number, content, build_part, order, last - first, last / max(1, ranges[-1][1]))

    job = Job(distribution, folder, "Building the index", "keys", memory=memory, progress=progress)
    for _, part in job.run(tasks()):
        record = json.loads(part.read(_RECORD))
        yield PartPlan(**record["plan"]), part.folder / _INDEX, record["sha256"]
