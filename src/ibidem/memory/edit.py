"""Changes to a memory that make a new generation."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

import ibidem
from ibidem.errors import CommittedError, DamagedMemoryError, MemoryFolderError, MismatchError, UsageError
from ibidem.memory.artefacts import (
    COMPACTOR_ARTEFACT,
    REMOVED_ENTRIES,
    REMOVED_PAIRS,
    is_index_artefact,
    json_copy,
    read_removed,
    serials_of,
    write_artefact,
)
from ibidem.memory.files import make_directory, remove_file, write_errors
from ibidem.memory.generations import (
    ARTEFACTS,
    SEGMENTS,
    WORK,
    commit_read_records,
    first_journal,
    keep_snapshot,
    load_snapshot,
    put_manifest,
    remove_unused_files,
    update_ends,
)
from ibidem.memory.journal_writer import check_vocabulary
from ibidem.memory.manifest import ARTEFACT_NAME, DTYPES, ENTRY_ARRAYS, SEGMENT_NAME, utc_timestamp
from ibidem.memory.pairs import SegmentContent, make_content
from ibidem.memory.sealed import check_sealed, layout_of, open_sealed, unique_path
from ibidem.memory.segment import Segment, derive_segment, write_segment
from ibidem.memory.tail import read_tail, seal_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.manifest import Layout, SegmentRecord, SnapshotRecord
    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import SegmentData


class Edit:
    """Changes to a memory that become a new generation with `commit`. `Memory.edit` makes one and holds the lock.

    Methods that write raise MemoryFolderError when a write fails: the memory stays at its last generation, and the call
    may be repeated.
    """

    def __init__(self, memory: Memory) -> None:
        """Start an edit.

        Args:
            memory: The generation to change; the caller holds the lock.
        """
        self._memory = memory
        self._draft = memory.manifest
        self._closed = False
        self._dirty = False
        names = [path.name for path in (memory.path / SEGMENTS).glob("[0-9]*")]
        self._last_name = max((int(name) for name in names if re.fullmatch(SEGMENT_NAME, name)), default=0)

    @property
    def memory(self) -> Memory:
        """The last committed generation."""
        return self._memory

    def set_fitted(self, known: Memory) -> None:
        """Record that the combiners and the index that are stored now were made for all entries of a generation.

        The current generation may have more entries at the end, and fewer entries because of removals.

        Args:
            known: The generation that the combiners or the index were made for.

        Raises:
            MismatchError: The memory was changed in another way since then.
        """
        now, then = self._memory, known
        removed = len(then.removed_entries)
        same = (now.manifest.numbering, now.layout) == (then.manifest.numbering, then.layout)
        same &= now.manifest.artefacts.get(COMPACTOR_ARTEFACT) == then.manifest.artefacts.get(COMPACTOR_ARTEFACT)
        if not same or not np.array_equal(now.removed_entries[:removed], then.removed_entries):
            raise MismatchError(f"{now.path} was changed by another process meanwhile: run this again")
        self._draft = replace(self._draft, merged=then.entries + removed)

    def append_segment(self, data: SegmentData) -> None:
        """Write a segment durably; the next commit makes it part of the memory.

        Args:
            data: The pairs and their entries.

        Raises:
            MismatchError: The keys or values do not match the model of the memory.
            UsageError: The memory stores other arrays of its entries, or has a snapshot.
        """
        self._check_open()
        self._check_no_snapshot()
        self._check_fit(data)
        self._dirty = True
        draft = self._draft
        origins = {name: number for number, name in enumerate(dict.fromkeys((*draft.origins, *data.origins)))}
        record = self._write(make_content(data, origins))
        self._draft = replace(draft, segments=(*draft.segments, record), origins=tuple(origins), layout=layout_of(data))

    def adopt_segment(self, folder: Path) -> None:
        """Add a segment that was sealed outside the memory; the next commit makes it part of the memory.

        Every byte is verified. The files are linked, or copied where the file system has no links, and the folder
        stays: it may be adopted again if the commit fails.

        Args:
            folder: The folder that `seal_segment` wrote.

        Raises:
            MismatchError: The segment was made for another model or compactor, or has other arrays or origins.
            DamagedMemoryError: A file of the segment is missing or changed.
            UsageError: The memory has a snapshot.
        """
        self._check_open()
        self._check_no_snapshot()
        sealed, draft = open_sealed(folder), self._draft
        stored = draft.artefacts.get(COMPACTOR_ARTEFACT)
        origins = check_sealed(sealed, draft, None if stored is None else stored.sha256, self._memory.path)
        record = self._derive(sealed.reader(), sealed.layout, {})
        self._draft = replace(draft, segments=(*draft.segments, record), origins=origins, layout=sealed.layout)

    def seal_journal(self) -> None:
        """Move the changes of the journals to segments at the next commit; removed pairs are left out."""
        self._check_open()
        folder, draft = self._memory.path, self._draft
        removed = read_removed(folder, draft, REMOVED_PAIRS)
        tail = read_tail(folder, draft.journal, draft.counts.pairs + len(removed))
        if not tail:
            return
        with write_errors(folder):
            commit_read_records(folder, tail.journals)
        self._dirty = True
        if draft.layout.keys and any(data.keys is None for data in tail.added):
            self.drop_array("keys")  # a restored snapshot has keys, and later pairs lack them
        entries = read_removed(folder, draft, REMOVED_ENTRIES)
        sealed = seal_tail(self._draft, self._segments(), tail, np.sort(removed), self._write)
        self._draft = sealed.manifest
        self._put_numbers(REMOVED_PAIRS, removed, sealed.removed_pairs)
        self._put_numbers(REMOVED_ENTRIES, entries, serials_of(sealed.removed_entries, np.sort(entries)))

    def put_array(self, name: str, part: Callable[[int, int], NDArray[Any]]) -> None:
        """Store an array of the entries; files of unchanged arrays are linked and not written again.

        Args:
            name: `keys`, `compact` or `clusters`.
            part: A function that returns the rows of the entries start:stop. It is called for each segment, in order.

        Raises:
            UsageError: Unknown name, or rows of another shape or dtype.
        """
        self._check_open()
        if name not in ENTRY_ARRAYS:
            raise UsageError(f"{name!r} is not an array of entries: use one of {', '.join(ENTRY_ARRAYS)}")
        starts = np.cumsum([0] + [record.entries for record in self._draft.segments]).tolist()
        arrays = (part(start, stop) for start, stop in pairwise(starts))
        first = next(arrays, None)
        width = None if first is None or first.ndim == 1 else int(first.shape[1])
        layout = self._draft.layout.with_array(name, width)
        records = []
        for segment, array in zip(self._segments(), chain([] if first is None else [first], arrays), strict=True):
            shape = layout.shapes(segment.record.counts, segment.dimension)[name]
            if array.shape != shape or array.dtype != DTYPES[name]:
                raise UsageError(f"invalid {name} for {segment.folder}: {array.dtype} {array.shape} instead of {shape}")
            records.append(self._derive(segment, layout, {name: array}))
        self._draft = replace(self._draft, segments=tuple(records), layout=layout)
        if name != "clusters":
            self._renumber()

    def drop_array(self, name: str) -> None:
        """Leave an array of the entries out of the next commit.

        Args:
            name: `keys`, `compact` or `clusters`.
        """
        self._check_open()
        layout = self._draft.layout.without_array(name)
        if layout != self._draft.layout:
            records = tuple(self._derive(segment, layout, {}) for segment in self._segments())
            self._draft = replace(self._draft, segments=records, layout=layout)
            if name == "compact":
                self._renumber()

    def keep_entries(self, kept: NDArray[np.bool_]) -> None:
        """Prune: leave entries out of the next commit; their tokens and pairs stay.

        Args:
            kept: [entries] True for the entries to keep.

        Raises:
            UsageError: The length of `kept` is not the number of entries.
        """
        self._check_open()
        if kept.shape != (self._draft.entries,):
            raise UsageError(
                f"{self._memory.path} has {self._draft.entries} entries: `kept` has the shape {kept.shape}"
            )
        records, start = [], 0
        for segment in self._segments():
            part = kept[start : start + segment.record.entries]
            start += segment.record.entries
            if part.all():
                records.append(segment.record)
            else:
                records.append(self._derive(segment, self._draft.layout, segment.select_entries(part), int(part.sum())))
        self._draft = replace(self._draft, segments=tuple(records))
        self._renumber()

    def keep_snapshot(self, name: str) -> None:
        """Keep the last committed generation under a name, from the next commit on.

        Args:
            name: The name of the snapshot: a-z, 0-9 and _.

        Raises:
            UsageError: Invalid name.
        """
        self._check_open()
        if not re.fullmatch(ARTEFACT_NAME, name):
            raise UsageError(f"{name!r} is not a valid name for a snapshot: use a-z, 0-9 and _")
        self._dirty = True
        with write_errors(self._memory.path):
            record = keep_snapshot(self._memory.path, name, self._memory.generation)
        self._draft = replace(self._draft, snapshots={**self._draft.snapshots, name: record})

    def restore_snapshot(self, name: str) -> None:
        """Make the next commit a copy of a snapshot, with all later changes of the journals.

        Args:
            name: The name of the snapshot.

        Raises:
            UsageError: There is no such snapshot.
        """
        self._check_open()
        record = self._snapshot(name)
        self._draft = replace(load_snapshot(self._memory.path, record), snapshots=self._draft.snapshots)
        self._dirty = True
        self.seal_journal()
        self._draft = replace(self._draft, numbering=self._memory.generation + 1)

    def forget_snapshot(self, name: str) -> None:
        """Leave a snapshot out of the next commit; the commit after that deletes its files.

        Args:
            name: The name of the snapshot.

        Raises:
            UsageError: There is no such snapshot.
        """
        self._check_open()
        self._snapshot(name)
        kept = {other: record for other, record in self._draft.snapshots.items() if other != name}
        self._draft = replace(self._draft, snapshots=kept)

    def workspace(self, stage: str, digest: str) -> Path:
        """Make a folder for the unfinished work of a stage; other folders of this stage are deleted.

        Args:
            stage: The name of the stage.
            digest: A digest of all inputs of the stage; the same digest gives the same folder again.

        Returns:
            The folder.
        """
        self._check_open()
        folder = self._memory.path / WORK
        wanted = folder / f"{stage}-{digest[:16]}"
        for other in folder.glob(f"{stage}-*"):
            if other != wanted:
                _remove_workspace(other)
        with write_errors(self._memory.path):
            make_directory(wanted)
        return wanted

    def clear_workspace(self, stage: str) -> None:
        """Delete the folders for the unfinished work of a stage.

        Args:
            stage: The name of the stage.
        """
        for folder in (self._memory.path / WORK).glob(f"{stage}-*"):
            _remove_workspace(folder)

    def put_artefact(
        self,
        name: str,
        extension: str,
        payload: bytes | Path,
        info: Mapping[str, Any],
        *,
        sha256: str | None = None,
    ) -> None:
        """Store an artefact at the next commit, in place of one with the same name.

        Args:
            name: The name of the artefact: a-z, 0-9 and _.
            extension: The ending of the file: a-z and 0-9.
            payload: The content, or a file to copy.
            info: A JSON object to store with it.
            sha256: The sha256 that the content must have; None for any content.

        Raises:
            UsageError: Invalid name, extension or info, or the file to copy does not exist.
            DamagedMemoryError: The content has another sha256.
        """
        self._check_open()
        self._dirty = True
        with write_errors(self._memory.path):
            record = write_artefact(
                self._memory.path / ARTEFACTS, name, self._memory.generation + 1, extension, payload, info
            )
        if sha256 is not None and record.sha256 != sha256:
            raise DamagedMemoryError(
                f"The file for the artefact {name!r} is damaged: its sha256 is not the one recorded; delete "
                f"{self._memory.path / WORK} and run the same command again."
            )
        self._draft = replace(self._draft, artefacts={**self._draft.artefacts, name: record})

    def remove_artefact(self, name: str) -> None:
        """Leave an artefact out of the next commit; a missing one is ignored.

        Args:
            name: The name of the artefact.
        """
        self._check_open()
        kept = {other: record for other, record in self._draft.artefacts.items() if other != name}
        self._draft = replace(self._draft, artefacts=kept)

    def remove_index(self) -> None:
        """Leave the index out of the next commit, whole or divided into parts."""
        for name in list(self._draft.artefacts):
            if is_index_artefact(name):
                self.remove_artefact(name)

    def set_stage(self, name: str, notes: Mapping[str, Any]) -> None:
        """Store the notes of a stage of learning (its settings and counts), in place of earlier ones.

        Args:
            name: The name of the stage.
            notes: A JSON object.

        Raises:
            UsageError: The notes contain a value that JSON cannot represent.
        """
        self._check_open()
        stage = json_copy(notes, f"the notes of stage {name!r}")
        self._draft = replace(self._draft, stages={**self._draft.stages, name: stage})

    def remove_stage(self, name: str) -> None:
        """Remove the notes of a stage of learning; missing ones are ignored.

        Args:
            name: The name of the stage.
        """
        self._check_open()
        kept = {other: notes for other, notes in self._draft.stages.items() if other != name}
        self._draft = replace(self._draft, stages=kept)

    def set_complete(self, complete: bool) -> None:
        """Record whether learning is complete.

        Args:
            complete: False leaves a memory that `learn` resumes and `check_complete` rejects.
        """
        self._check_open()
        self._draft = replace(self._draft, complete=complete)

    def commit(self, updated: datetime | None = None) -> Memory:
        """Make all changes so far a new generation, atomically. Further changes and commits may follow.

        Args:
            updated: The time of the commit, with a time zone; None is now.

        Returns:
            The new generation.

        Raises:
            MemoryFolderError: Nothing was committed.
            CommittedError: The generation was committed, and a later step failed; `memory` is the new generation if it
                could be opened.
        """
        self._check_open()
        path = self._memory.path
        manifest = replace(
            self._draft,
            generation=self._memory.generation + 1,
            updated=utc_timestamp(updated),
            ibidem_version=ibidem.__version__,
        )
        self._dirty = True
        with write_errors(path):
            update_ends(path, first_journal(path, manifest))
            try:
                put_manifest(path, manifest)
            except CommittedError:
                self._reopen(manifest.generation)
                raise
        return self._reopen(manifest.generation)

    def _reopen(self, generation: int) -> Memory:
        """Delete the files that the committed generation does not need, and continue from it."""
        path = self._memory.path
        try:
            remove_unused_files(path)
            self._dirty = False
            self._memory = self._memory.refresh()
        except (MemoryFolderError, OSError) as error:
            raise CommittedError(
                f"generation {generation} of the memory {path} is committed, and must not be repeated, but opening "
                f"it failed: {error}"
            ) from error
        self._draft = self._memory.manifest
        return self._memory

    def close(self) -> None:
        """Discard the changes that were not committed."""
        self._closed = True
        if self._dirty:
            remove_unused_files(self._memory.path)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"this edit of {self._memory.path} is closed: start another with memory.edit()")

    def _segments(self) -> list[Segment]:
        """Return readers of the draft's segments."""
        folder, draft = self._memory.path / SEGMENTS, self._draft
        return [Segment(folder / item.name, item, draft.layout, draft.identity.dimension) for item in draft.segments]

    def _derive(
        self, segment: Segment, layout: Layout, changed: Mapping[str, NDArray[Any]], entries: int | None = None
    ) -> SegmentRecord:
        self._dirty = True
        with write_errors(self._memory.path):
            return self._written(derive_segment(self._next_folder(), segment, layout, changed, entries))

    def _write(self, content: SegmentContent) -> SegmentRecord:
        self._dirty = True
        with write_errors(self._memory.path):
            return self._written(write_segment(self._next_folder(), content))

    def _put_numbers(self, name: str, before: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        """Append the numbers of removed pairs or entries to the stored ones."""
        if len(new):
            numbers = np.concatenate([before, new]).astype("<i8")
            self.put_artefact(name, "bin", numbers.tobytes(), {"count": len(numbers)})

    def _renumber(self) -> None:
        """Start a new numbering of the entries: numbers stored before are no longer valid."""
        self.remove_artefact(REMOVED_ENTRIES)
        self._draft = replace(self._draft, numbering=self._memory.generation + 1, merged=self._draft.entries)

    def _next_folder(self) -> Path:
        """Return a name that no segment of this generation, or of another one on disk, has."""
        return self._memory.path / SEGMENTS / f"{self._last_name + 1:06d}"

    def _written(self, record: SegmentRecord) -> SegmentRecord:
        self._last_name = int(record.name)
        return record

    def _snapshot(self, name: str) -> SnapshotRecord:
        kept = self._draft.snapshots
        if name not in kept:
            raise UsageError(
                f"{self._memory.path} has no snapshot {name!r}: its snapshots are {', '.join(kept) or 'none'}"
            )
        return kept[name]

    def _check_fit(self, data: SegmentData) -> None:
        identity = self._memory.identity
        if self._draft.segments and self._draft.layout != layout_of(data):
            raise UsageError(
                f"{self._memory.path} is compacted or clustered, and these pairs lack its arrays: learn a new memory"
            )
        if data.keys is None and data.compact is None:
            raise UsageError("a new segment has no keys: give the model's own or compact ones")
        if data.keys is not None and data.keys.shape[1] != identity.dimension:
            raise MismatchError(
                f"keys of {data.keys.shape[1]} dimensions do not fit {self._memory.path}, whose model "
                f"{identity.name!r} has {identity.dimension}: use that model, or learn a new memory"
            )
        check_vocabulary(data, self._memory)

    def _check_no_snapshot(self) -> None:
        """Raise UsageError where a restored snapshot, which keeps changes of journals only, would lose a segment."""
        if self._draft.snapshots:
            raise UsageError(
                f"{self._memory.path} has a snapshot ({', '.join(self._draft.snapshots)}), which would be restored "
                "without this segment: run `ibidem restore` first, or add the pairs with `ibidem add`"
            )


def _remove_workspace(folder: Path) -> None:
    """Delete a work folder while workers that were taken for dead may still write files of that path."""
    aside = unique_path(folder)
    try:
        folder.rename(aside)
    except OSError:  # on Windows, while a file of it is open
        aside = folder
    remove_file(aside)
