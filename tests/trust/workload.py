"""Memories for the trust tests, the operations on them, and what a memory holds."""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.memory import Memory, ModelIdentity, SegmentData, back_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDENTITY = ModelIdentity("tiny", "model-a", "tokenizer-a", 4, 100, "de", "en")
MOMENT = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
SNAPSHOT = "unpruned"

Held = dict[int, tuple[Any, ...]]


def pairs(number: int, count: int = 1) -> SegmentData:
    """Return pairs with entries, always the same for a number."""
    random = np.random.default_rng(number)
    lengths = random.integers(1, 4, count)
    entries = int(lengths.sum())
    return SegmentData(
        keys=random.standard_normal((entries, 4)).astype(np.float16),
        values=random.integers(0, 100, entries, dtype=np.int32),
        log_probs=-random.random(entries, dtype=np.float32),
        lengths=lengths,
        sources=[f"Quelle {number}.{pair} ä" for pair in range(count)],
        targets=[f"target {number}.{pair} 한" for pair in range(count)],
        origins=[f"file-{number % 3}.tsv"] * count,
        locations=list(range(count)),
        source_vectors=random.integers(-127, 128, (count, 64), dtype=np.int8),
    )


def held(memory: Memory) -> Held:
    """Return everything that a memory holds of each pair, by id; all of it is read, and its checksums are checked."""
    values = np.concatenate([memory.values(), memory.tail.values])
    keys = np.concatenate([memory.search_keys.read(0, memory.entries), memory.tail_keys()])
    vectors = memory.source_vectors()
    found = {}
    for pair in memory.sentences():
        span = slice(pair.entries.start, pair.entries.stop)
        number = memory.number_of(pair.id)
        found[pair.id] = (
            *(pair.source, pair.target, pair.origin, pair.location),
            tuple(memory.tokens_of(number).tolist()),
            tuple(values[span].tolist()),
            keys[span].tobytes(),
            vectors[number].tobytes(),
        )
    return found


def read_all(folder: Path) -> tuple[Held, dict[str, bytes]]:
    """Open a memory and read all of it: the pairs, and the artefacts."""
    memory = Memory.open(folder)
    artefacts = {}
    for name in memory.manifest.artefacts:
        stored = memory.artefact(name)
        assert stored is not None
        artefacts[name] = stored.path.read_bytes()
    memory.token_log_probs()
    memory.token_offsets()
    memory.rows()
    return held(memory), artefacts


def digest(folder: Path) -> str:
    """Return a digest of everything that a memory holds, without generation numbers and times."""
    pairs_held, artefacts = read_all(folder)
    memory = Memory.open(folder)
    parts = [sorted(pairs_held.items()), sorted(artefacts.items()), memory.layout, memory.complete, memory.snapshots()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def create(folder: Path) -> Memory:
    if Memory.exists(folder):
        return Memory.open(folder)
    return Memory.create(folder, IDENTITY, seed=7, created=MOMENT, complete=True)


def record(folder: Path, added: SegmentData | None = None, removed: tuple[int, ...] = ()) -> Memory:
    with Memory.open(folder).writing() as writer:
        return writer.record(added, removed)


def append(folder: Path, number: int) -> None:
    """Commit a segment with an artefact, as extraction does."""
    with Memory.open(folder).edit() as edit:
        edit.append_segment(pairs(number, 3))
        edit.put_artefact("index", "bin", b"index %d" % number * 9, {})
        edit.commit(MOMENT)


def seal(folder: Path) -> None:
    Memory.open(folder).sealed()


def prune(folder: Path) -> None:
    with Memory.open(folder).edit() as edit:
        edit.keep_snapshot(SNAPSHOT)
        edit.keep_entries(np.arange(edit.memory.entries) % 3 != 0)
        edit.commit(MOMENT)


def restore(folder: Path) -> None:
    with Memory.open(folder).edit() as edit:
        edit.restore_snapshot(SNAPSHOT)
        edit.forget_snapshot(SNAPSHOT)
        edit.commit(MOMENT)


def merge(folder: Path) -> None:
    """Store an index over all entries, as `index_memory` does."""
    memory = Memory.open(folder).sealed()
    with memory.edit() as edit:
        edit.set_fitted(memory)
        edit.put_artefact("index", "bin", b"merged %d" % memory.entries, {})
        edit.commit(MOMENT)


def compact(folder: Path) -> None:
    """Store another array of the entries, as clustering does."""
    memory = Memory.open(folder).sealed()
    with memory.edit() as edit:
        clusters = np.arange(memory.entries, dtype=np.int32)
        edit.put_array("clusters", lambda start, stop: clusters[start:stop])
        edit.commit(MOMENT)


def first_id(folder: Path) -> int:
    return min(pair.id for pair in Memory.open(folder).sentences())


def import_pairs(folder: Path) -> None:
    """Add pairs in chunks, with a seal in between, as an import does."""
    record(folder, pairs(30, 3))
    seal(folder)
    record(folder, pairs(31, 3))


# The changes of a memory, by name. Each is one acknowledged change, except `import`, which has three.
OPERATIONS: dict[str, Callable[[Path], object]] = {
    "add": lambda folder: record(folder, pairs(20)),
    "remove": lambda folder: record(folder, removed=(first_id(folder),)),
    "replace": lambda folder: record(folder, pairs(21), removed=(first_id(folder),)),
    "seal": seal,
    "append": lambda folder: append(folder, 22),
    "prune": prune,
    "restore": restore,
    "merge": merge,
    "compact": compact,
    "import": import_pairs,
    "create": lambda folder: record(create(folder).path, pairs(23)),
    "backup": lambda folder: back_up(folder, folder.with_name("copy")),
}


def make_base(folder: Path, *, snapshot: bool = True) -> Path:
    """Make a memory with segments, removed pairs, a journal, and a snapshot, which does not allow more segments."""
    create(folder)
    append(folder, 1)
    append(folder, 2)
    record(folder, pairs(3, 2), removed=(0,))
    if snapshot:
        prune(folder)
    record(folder, pairs(4), removed=(2,))
    record(folder, pairs(5))
    return folder


def make_base_of(name: str, folder: Path) -> Path:
    """Make the memory from which an operation starts."""
    if name == "create":
        folder.mkdir()
        return folder
    return make_base(folder, snapshot=name != "append")


def copy(folder: Path, target: Path) -> Path:
    if target.exists():
        shutil.rmtree(target)
    return shutil.copytree(folder, target)


def in_child(act: Callable[[], object]) -> int:
    """Run a function in a forked process and return its exit status; 70 after an exception."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            act()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
