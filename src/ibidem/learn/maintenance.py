"""Maintenance of a memory: build its index, seal its journal, include added entries in the index, and repair it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ibidem.errors import LockedMemoryError
from ibidem.learn.limits import LARGEST_NATIVE_INDEX, check_count, check_room
from ibidem.learn.provenance import digest, write_card
from ibidem.memory import (
    INDEX_ARTEFACT,
    INDEX_PLAN_ARTEFACT,
    TEMPORARY,
    Memory,
    check_complete,
    index_part_artefact,
    repair_folder,
)
from ibidem.progress import Progress, silent
from ibidem.retrieve import (
    EXACT_BELOW,
    FaissIndex,
    Index,
    IndexPlan,
    NativeIndex,
    RangeKeys,
    build_index,
    contents_digest,
    divide,
    open_index,
    plan_part,
    with_compactor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Repair
    from ibidem.retrieve import PartPlan

# The keys of the journal are copied for every pair that is added: a longer journal would delay additions noticeably.
SEAL_BYTES = 4 << 20
SEAL_REMOVED = 1000
# Every step scans all added entries, in addition to the index, which probes a part of the others.
MERGE_SHARE = 50
STAGE = "index"
_PROGRESS_LABELS = {"train": "Training the index", "add": "Adding keys", "measure": "Measuring recall"}


def index_digest(setting: str, shards: int = 1) -> str:
    """Return the digest of an index: of its setting only, since every change of the keys removes the index.

    Args:
        setting: The setting of `index_memory`.
        shards: The number of parts that it is divided into.
    """
    return digest(setting) if shards == 1 else digest(setting, shards)


def index_memory(
    memory: Memory,
    setting: str = "auto",
    *,
    shards: int = 1,
    threads: int | None = None,
    distribution: Distribution | None = None,
    progress: Progress = silent,
) -> tuple[Memory, Index]:
    """Build an index over all entries of a memory, and store it there.

    Args:
        memory: A complete memory.
        setting: "auto", "exact", or the description of a native or faiss index. An exact index needs no file.
        shards: Divide the index into this many parts over consecutive entries, which several processes can serve.
        threads: The number of threads; None uses all.
        distribution: Builds the parts of a divided index in tasks, and holds the lock meanwhile; None builds them in
            this process, with the same result.
        progress: Receives the number of keys that are done.

    Returns:
        The memory with the index, committed; and the index, which accepts states of the base model as queries.

    Raises:
        UsageError: The memory is incomplete, or the setting is invalid.
        MismatchError: Another process changed the keys meanwhile; nothing is stored.
    """

    def report(stage: str, done: int, total: int) -> None:
        progress(_PROGRESS_LABELS[stage], done / max(1, total), done, "keys")

    memory = memory.sealed()
    check_complete(memory)
    check_index(memory, setting, shards)
    if shards > 1:
        return _index_parts(memory, setting, shards, threads, distribution, progress, report)
    removals = len(memory.removed_entries)  # counted now: other processes may remove pairs while the index is built
    index = build_index(
        memory.search_keys, setting, seed=memory.manifest.seed, threads=threads, progress=report, scratch=memory.path
    )
    # The next writer deletes files with this prefix, which a killed process may leave.
    with memory.edit() as edit, tempfile.TemporaryDirectory(dir=memory.path, prefix=TEMPORARY) as scratch:
        edit.set_fitted(memory)
        edit.remove_index()
        if isinstance(index, FaissIndex | NativeIndex):
            kind = "faiss" if isinstance(index, FaissIndex) else "native"
            file = Path(scratch) / f"index.{kind}"
            edit.put_artefact(INDEX_ARTEFACT, kind, file, index.save(file) | {"removals": removals})
        notes: dict[str, object] = {"setting": setting, "description": index.description}
        if isinstance(index, FaissIndex | NativeIndex) and index.recall is not None:
            notes["recall@16"] = round(index.recall, 4)
        edit.set_stage("index", {"digest": index_digest(setting), **notes})
        memory = edit.commit()
    write_card(memory)
    return memory, with_compactor(index, memory, torch.device("cpu"))


def _index_parts(
    memory: Memory,
    setting: str,
    shards: int,
    threads: int | None,
    distribution: Distribution | None,
    progress: Progress,
    report: Callable[[str, int, int], None],
) -> tuple[Memory, Index]:
    """Build an index of each part of the entries, and store them; see `index_memory`."""
    removals, contents = len(memory.removed_entries), contents_digest(memory)
    ranges = divide(memory.entries, shards)
    built: list[Index] = []
    for first, last in ranges if distribution is None else ():
        keys = RangeKeys(memory.search_keys, first, last)
        index = build_index(
            keys, setting, seed=memory.manifest.seed, threads=threads, progress=report, scratch=memory.path
        )
        # A copy without what searched the file, since that holds the arrays in RAM.
        built.append(replace(index) if isinstance(index, NativeIndex) else index)
    with memory.edit() as edit, tempfile.TemporaryDirectory(dir=memory.path, prefix=TEMPORARY) as scratch:
        edit.set_fitted(memory)
        edit.remove_index()
        if distribution is None:
            made = _save_parts(built, ranges, Path(scratch) / "part.native")
        else:
            from ibidem.learn.index_tasks import index_in_tasks

            made = index_in_tasks(edit, memory, setting, ranges, threads, distribution, progress)
        parts: list[PartPlan] = []
        for number, (part, file, sha256) in enumerate(made, start=1):
            parts.append(part)
            if part.info:  # exact search has no file
                edit.put_artefact(index_part_artefact(number), "native", file, part.info, sha256=sha256)
        plan = IndexPlan(memory.dimension, removals, contents, tuple(parts))
        info = {"kind": "shards", "parts": shards, "size": plan.size}
        edit.put_artefact(INDEX_PLAN_ARTEFACT, "json", plan.to_bytes(), info)
        kinds = ", ".join(sorted({part.kind for part in parts}))
        notes: dict[str, object] = {
            "setting": setting,
            "shards": shards,
            "description": f"{shards} shards, {kinds}, {plan.size} keys of {plan.dimension} dimensions",
        }
        recalls = [part.info["recall"] for part in parts if part.info.get("recall") is not None]
        if recalls:
            notes["least recall@16 of a shard"] = round(min(recalls), 4)
        edit.set_stage("index", {"digest": index_digest(setting, shards), **notes})
        memory = edit.commit()
        edit.clear_workspace(STAGE)
    write_card(memory)
    return memory, open_index(memory, None, torch.device("cpu"))


def _save_parts(
    built: Sequence[Index], ranges: Sequence[tuple[int, int]], file: Path
) -> Iterator[tuple[PartPlan, Path, str | None]]:
    """Save the indexes of all parts one after another, all to one file; see `index_in_tasks`."""
    for index, (first, last) in zip(built, ranges, strict=True):
        yield plan_part(index, first, last, index.save(file) if isinstance(index, NativeIndex) else {}), file, None


def check_index(memory: Memory, setting: str, shards: int = 1) -> None:
    """Check that an index can be built over all entries of a memory.

    Args:
        memory: The memory.
        setting: The setting of the index.
        shards: The number of parts that it is divided into.

    Raises:
        UsageError: The index would need more RAM or larger numbers.
    """
    if setting.strip() == "exact":
        return
    if shards > 1:
        divide(memory.entries, shards)
    check_room("index", -(-memory.entries // shards), memory.path)
    remedy = "divide the index with --shards, learn several smaller memories, or give the index setting exact"
    check_count("entries of an index", -(-memory.entries // shards), LARGEST_NATIVE_INDEX, remedy)


def repair_memory(
    folder: Path, *, accept_loss: bool = False, source: Path | None = None, progress: Progress = silent
) -> Repair:
    """Repair a damaged memory, and build its index again if that was damaged.

    Args:
        folder: The folder of the memory.
        accept_loss: Whether damaged records of journals, snapshots and a damaged manifest may be dropped.
        source: A backup of this memory, of any age.
        progress: Receives the progress of building the index.

    Returns:
        What was mended, what was lost, and what is still damaged; see `repair_folder`.

    Raises:
        DamagedMemoryError: The manifest is damaged, and the previous one too, or the loss was not accepted.
        LockedMemoryError: Another writer holds the lock.

    Examples:
        >>> repair_memory(Path("memories/mine"), source=Path("backups/monday")).left
        []
    """
    done = repair_folder(folder, accept_loss=accept_loss, source=source)
    if not done.index_dropped or done.left:
        return done
    memory = Memory.open(folder)
    stage = memory.manifest.stages.get("index", {})
    setting, shards = str(stage.get("setting", "auto")), int(stage.get("shards", 1))
    index_memory(memory, setting, shards=shards, progress=progress)
    mended = [
        replace(row, reason="it was damaged, and built again") if row.file.startswith("artefacts/index") else row
        for row in done.mended
    ]
    return done._replace(mended=mended)


def is_seal_due(memory: Memory) -> bool:
    """Return whether the journal exceeds SEAL_BYTES, or the removed pairs exceed SEAL_REMOVED.

    Args:
        memory: The memory in its current state.
    """
    return memory.tail.bytes > SEAL_BYTES or len(memory.tail.removed) > SEAL_REMOVED


def is_merge_due(memory: Memory) -> bool:
    """Return whether more entries were added than EXACT_BELOW and than 1 / MERGE_SHARE of the indexed ones.

    Args:
        memory: The memory in its current state.
    """
    merged = memory.fitted_entries
    return memory.entries - merged > max(EXACT_BELOW, merged // MERGE_SHARE)


def maintain(memory: Memory, device: torch.device, progress: Progress = silent) -> Memory:
    """Seal the journal and rebuild the index where that is due.

    The index is rebuilt with its own setting and without the lock: pairs may be added and removed meanwhile. From then
    on a tuned combiner weights the added entries like those it was tuned with; `ibidem tune` adapts it to them. If
    another writer holds the lock, the work is left for the next call.

    Args:
        memory: The memory.
        device: The device that searches it; on CUDA an exact index is not rebuilt.
        progress: Receives the progress.

    Returns:
        The newest state of the memory.
    """
    try:
        return _maintain(memory.refresh(), device, progress)
    except LockedMemoryError:
        return memory.refresh()


def _maintain(memory: Memory, device: torch.device, progress: Progress) -> Memory:
    if is_seal_due(memory):
        progress("Sealing the journal", None, memory.tail.entries, "entries")
        memory = memory.sealed()
    if not is_merge_due(memory):
        return memory
    stage = memory.manifest.stages.get("index", {})
    if stage.get("shards", 1) > 1:  # the processes that serve the shards would have to be restarted
        return memory
    setting = stage.get("setting")
    if setting is None and device.type == "cuda":  # exact search on CUDA needs no index
        with memory.edit() as edit:
            edit.set_fitted(edit.memory)
            return edit.commit()
    return index_memory(memory, setting or "auto", progress=progress)[0]
