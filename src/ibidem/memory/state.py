"""The newest state of a memory on disk: its manifest, and the tail that its journals give."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory.generations import MANIFEST, current_manifest, listed_snapshots, load_snapshot
from ibidem.memory.removals import REMOVED_PAIRS
from ibidem.memory.tail import Tail, read_tail

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory.manifest import Manifest

_TRIES = 100
_ID_BYTES = 8


class State(NamedTuple):
    """A manifest, its tail, and a stamp that another manifest in its place would not have."""

    manifest: Manifest
    tail: Tail
    stamp: tuple[int, ...]


def next_id(manifest: Manifest) -> int:
    """The id of the first pair that is not in the segments of this manifest."""
    removed = manifest.artefacts.get(REMOVED_PAIRS)
    return manifest.counts.pairs + (0 if removed is None else removed.bytes // _ID_BYTES)


def read_state(folder: Path, known: State | None = None, *, beyond: bool = True) -> State:
    """The state on disk; what is in `known` and did not change since then is not read again.

    beyond: see `read_tail`. Raises DamagedMemoryError for a manifest, a snapshot or a journal that is not as written.
    """
    for _ in range(_TRIES):
        stamp = stamp_of(folder)
        if known is not None and stamp and stamp == known.stamp:
            manifest, tail = known.manifest, known.tail
        else:
            manifest, tail = current_manifest(folder), None
        try:
            if tail is None:
                for record in listed_snapshots(folder, manifest).values():
                    load_snapshot(folder, record)
            protected = manifest.format > 3
            found = read_tail(folder, manifest.journal, next_id(manifest), tail, protected=protected, beyond=beyond)
        except DamagedMemoryError:
            if stamp_of(folder) == stamp:
                raise
            continue  # a writer has committed since, and removed what the manifest before it named
        # A writer seals a journal before it removes it: an unchanged manifest means that none was missed.
        if stamp_of(folder) == stamp:
            return State(manifest, found, stamp)
    raise MemoryFolderError(f"{folder} is changed faster than it can be read: wait for its writers, and run again")


def stamp_of(folder: Path) -> tuple[int, ...]:
    """What the file system says of the manifest; nothing where it says nothing."""
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)
