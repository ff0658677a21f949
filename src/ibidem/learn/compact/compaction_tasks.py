"""Compaction in tasks: each computes the compact keys of some consecutive blocks of entries."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.compact import compact_keys
from ibidem.learn.compact import compaction
from ibidem.learn.compact.compaction import read_stored
from ibidem.learn.jobs import Context, Job, Task, save_array
from ibidem.learn.provenance import digest
from ibidem.memory import replace_file
from ibidem.retrieve import RangeKeys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Memory
    from ibidem.progress import Progress

_COMPACTOR = "compactor.safetensors"


@dataclass(frozen=True)
class BlockOrder:
    """The argument of a task of compaction.

    Attributes:
        start: The first entry.
        stop: The entry after the last.
        rows: The entries of a block.
    """

    start: int
    stop: int
    rows: int


def compact_part(order: BlockOrder, context: Context, folder: Path) -> dict[str, Any]:
    """Compute the compact keys of consecutive entries.

    Args:
        order: The entries.
        context: The memory and the work folder.
        folder: The folder of the part.

    Returns:
        The number of entries.
    """
    assert context.memory is not None
    compactor, coding = read_stored((context.folder / _COMPACTOR).read_bytes())
    keys = RangeKeys(context.memory.keys, order.start, order.stop)
    blocks = compact_keys(compactor, keys, rows=order.rows, device=context.device)
    save_array(folder, "compact", np.concatenate([coding.encode(block) for block in blocks]))
    return {"entries": order.stop - order.start}


def compact_in_tasks(
    memory: Memory,
    payload: bytes,
    folder: Path,
    device: torch.device,
    distribution: Distribution,
    progress: Progress,
) -> Iterator[NDArray[np.int8]]:
    """Compute the compact keys of all entries.

    Args:
        memory: The memory, whose generation the workers read.
        payload: The file of the compactor with its coding.
        folder: The work folder of the tasks.
        device: Where to compute.
        distribution: Runs the tasks.
        progress: Receives the number of keys.

    Yields:
        The codes of consecutive entries, [n, c].
    """
    replace_file(folder / _COMPACTOR, payload)
    rows, size = compaction.BLOCK_ROWS, memory.entries
    step = max(1, distribution.task_rows // rows) * rows  # whole blocks: those of one process
    known = sha256(payload).hexdigest()

    def tasks() -> Iterator[Task]:
        for number, start in enumerate(range(0, size, step)):
            stop = min(start + step, size)
            content = digest(start, stop, rows, known)
            yield Task(number, content, compact_part, BlockOrder(start, stop, rows), stop - start, stop / size)

    job = Job(distribution, folder, "Compacting", "keys", memory=memory, device=device.type, progress=progress)
    for _, part in job.run(tasks()):
        yield part.array("compact")
