"""Changes of a memory: edits that make a new generation, single journal records, and removal of pairs."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

import ibidem
from ibidem.errors import CommittedError, MemoryFolderError, MismatchError, UsageError
from ibidem.memory.artefacts import REMOVED_ENTRIES, REMOVED_PAIRS, json_copy, read_removed, serials_of, write_artefact
from ibidem.memory.files import make_directory, remove_file, write_errors
from ibidem.memory.generations import (
    ARTEFACTS,
    SEGMENTS,
    WORK,
    append_change,
    commit_leftovers,
    first_journal,
    keep_snapshot,
    listed_snapshots,
    load_snapshot,
    put_manifest,
    remove_unused_files,
    update_ends,
)
from ibidem.memory.journal import Change
from ibidem.memory.manifest import ARTEFACT_NAME, DTYPES, ENTRY_ARRAYS, FORMAT, SEGMENT_NAME, Layout, utc_timestamp
from ibidem.memory.pairs import SegmentContent, make_content
from ibidem.memory.segment import Segment, derive_segment, write_segment
from ibidem.memory.tail import read_tail, seal_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.memory.manifest import Manifest, SegmentRecord, SnapshotRecord
    from ibidem.memory.memory import Memory
    from ibidem.memory.pairs import SegmentData


class Edit:
    """Changes to a memory that become a new generation with `commit`; made by `Memory.edit`, which holds the lock.

    Raises MemoryFolderError when the disk refuses a write: the memory stays at its last generation, and the
    same call may be tried again.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._draft = self._start_draft(memory)
        self._closed = False
        self._dirty = False
        names = [path.name for path in (memory.path / SEGMENTS).glob("[0-9]*")]
        self._last_name = max((int(name) for name in names if re.fullmatch(SEGMENT_NAME, name)), default=0)

    @property
    def memory(self) -> Memory:
        """The last committed generation."""
        return self._memory

    def set_merged(self, known: Memory) -> None:
        """Say that what is stored now, combiners or an index, was made for all entries of `known`.

        Entries that were added at the end since `known` was read change nothing for those before them, and of
        those that were taken out it is known which they were. Raises MismatchError for any other change.
        """
        now, then = self._memory, known
        removed = len(then.removed_entries)
        same = (now.manifest.numbering, now.layout) == (then.manifest.numbering, then.layout)
        same &= now.manifest.artefacts.get("compactor") == then.manifest.artefacts.get("compactor")
        if not same or not np.array_equal(now.removed_entries[:removed], then.removed_entries):
            raise MismatchError(f"{now.path} was changed by another process meanwhile: run this again")
        self._draft = replace(self._draft, merged=then.entries + removed)

    def append_segment(self, data: SegmentData) -> None:
        """Write a segment durably now; the next commit makes it part of the memory."""
        self._check_open()
        self._check_fit(data)
        self._dirty = True
        draft = self._draft
        origins = {name: number for number, name in enumerate(dict.fromkeys((*draft.origins, *data.origins)))}
        record = self._write(make_content(data, origins))
        self._draft = replace(
            draft, segments=(*draft.segments, record), origins=tuple(origins), layout=_layout_of(data)
        )

    def seal_journal(self) -> None:
        """Put what the journals say into segments, from the next commit on; what was removed is left out of them."""
        self._check_open()
        folder, draft = self._memory.path, self._draft
        removed = read_removed(folder, draft, REMOVED_PAIRS)
        protected = self._memory.manifest.format > 3
        tail = read_tail(folder, draft.journal, draft.counts.pairs + len(removed), protected=protected)
        if not tail:
            return
        with write_errors(folder):
            commit_leftovers(folder, tail.journals, required=protected)
        self._dirty = True
        if draft.layout.keys and any(data.keys is None for data in tail.added):
            self.drop_array("keys")  # of a generation from before the later ones did without them
        entries = read_removed(folder, draft, REMOVED_ENTRIES)
        sealed = seal_tail(self._draft, self._segments(), tail, np.sort(removed), self._write)
        self._draft = sealed.manifest
        self._put_numbers(REMOVED_PAIRS, removed, sealed.removed_pairs)
        self._put_numbers(REMOVED_ENTRIES, entries, serials_of(sealed.removed_entries, np.sort(entries)))

    def put_array(self, name: str, part: Callable[[int, int], NDArray[Any]]) -> None:
        """Give every entry a row of `compact` or `clusters`; part(start, stop) gives the rows of these entries.

        It is called for one segment after another, in order. Unchanged arrays are linked, not written again.
        """
        self._check_open()
        if name not in ENTRY_ARRAYS:
            raise UsageError(f"{name!r} is no array of entries: give one of {', '.join(ENTRY_ARRAYS)}")
        starts = np.cumsum([0] + [record.entries for record in self._draft.segments]).tolist()
        arrays = (part(start, stop) for start, stop in pairwise(starts))
        first = next(arrays, None)
        width = None if first is None or first.ndim == 1 else int(first.shape[1])
        layout = self._draft.layout.with_array(name, width)
        records = []
        for segment, array in zip(self._segments(), chain([] if first is None else [first], arrays), strict=True):
            shape = layout.shapes(segment.record.counts, segment.dimension)[name]
            if array.shape != shape or array.dtype != DTYPES[name]:
                raise UsageError(f"{name} of {segment.folder} came as {array.dtype} {array.shape}, not as {shape}")
            records.append(self._derive(segment, layout, {name: array}))
        self._draft = replace(self._draft, segments=tuple(records), layout=layout)
        if name != "clusters":
            self._renumber()

    def drop_array(self, name: str) -> None:
        """Leave an array of the entries out of the next commit."""
        self._check_open()
        layout = self._draft.layout.without_array(name)
        if layout != self._draft.layout:
            records = tuple(self._derive(segment, layout, {}) for segment in self._segments())
            self._draft = replace(self._draft, segments=records, layout=layout)
            if name == "compact":
                self._renumber()

    def keep_entries(self, kept: NDArray[np.bool_]) -> None:
        """Leave entries out of the next commit; kept: [entries]. Their tokens and pairs stay."""
        self._check_open()
        if kept.shape != (self._draft.entries,):
            raise UsageError(f"{self._memory.path} has {self._draft.entries} entries, not {kept.shape}")
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
        """Keep the last committed generation by name, from the next commit on, so that one can go back to it."""
        self._check_open()
        if not re.fullmatch(ARTEFACT_NAME, name):
            raise UsageError(f"{name!r} cannot name a snapshot: use a-z, 0-9 and _")
        self._dirty = True
        with write_errors(self._memory.path):
            record = keep_snapshot(self._memory.path, name, self._memory.generation)
        self._draft = replace(self._draft, snapshots={**self._draft.snapshots, name: record})

    def restore_snapshot(self, name: str) -> None:
        """Make the next commit a copy of the generation kept by this name, with all that journals say since then."""
        self._check_open()
        record = self._snapshot(name)
        self._draft = replace(load_snapshot(self._memory.path, record), snapshots=self._draft.snapshots)
        self._dirty = True
        self.seal_journal()
        self._draft = replace(self._draft, numbering=self._memory.generation + 1)

    def forget_snapshot(self, name: str) -> None:
        """Leave a snapshot out of the next commit; its files stay as long as the generation before that is kept."""
        self._check_open()
        self._snapshot(name)
        kept = {other: record for other, record in self._draft.snapshots.items() if other != name}
        self._draft = replace(self._draft, snapshots=kept)

    def workspace(self, stage: str, digest: str) -> Path:
        """A folder for the unfinished work of a stage, found again by the same digest of all that it depends on."""
        self._check_open()
        folder = self._memory.path / WORK
        wanted = folder / f"{stage}-{digest[:16]}"
        for other in folder.glob(f"{stage}-*"):
            if other != wanted:
                remove_file(other)
        with write_errors(self._memory.path):
            make_directory(wanted)
        return wanted

    def clear_workspace(self, stage: str) -> None:
        """Remove the unfinished work of a stage that is done."""
        for folder in (self._memory.path / WORK).glob(f"{stage}-*"):
            remove_file(folder)

    def put_artefact(self, name: str, extension: str, payload: bytes | Path, info: Mapping[str, Any]) -> None:
        """Write bytes, or a copy of a file, as the artefact of this name from the next commit on."""
        self._check_open()
        self._dirty = True
        with write_errors(self._memory.path):
            record = write_artefact(
                self._memory.path / ARTEFACTS, name, self._memory.generation + 1, extension, payload, info
            )
        self._draft = replace(self._draft, artefacts={**self._draft.artefacts, name: record})

    def remove_artefact(self, name: str) -> None:
        """Leave an artefact out of the next commit; one that is not there is already out."""
        self._check_open()
        kept = {other: record for other, record in self._draft.artefacts.items() if other != name}
        self._draft = replace(self._draft, artefacts=kept)

    def set_stage(self, name: str, notes: Mapping[str, Any]) -> None:
        """Note the settings and counts of a stage of learning, in place of its earlier notes."""
        self._check_open()
        stage = json_copy(notes, f"the notes of stage {name!r}")
        self._draft = replace(self._draft, stages={**self._draft.stages, name: stage})

    def remove_stage(self, name: str) -> None:
        """Forget the notes of a stage whose result is no longer there; one without notes is forgotten already."""
        self._check_open()
        kept = {other: notes for other, notes in self._draft.stages.items() if other != name}
        self._draft = replace(self._draft, stages=kept)

    def set_complete(self, complete: bool) -> None:
        """Say whether learning came to its end."""
        self._check_open()
        self._draft = replace(self._draft, complete=complete)

    def commit(self, updated: datetime | None = None) -> Memory:
        """Make all changes so far a new generation at once; may be called again for the next.

        Raises MemoryFolderError where nothing was committed, and CommittedError for a failure after the commit point:
        the generation counts then, and `memory` is that one where it could be opened.
        """
        self._check_open()
        path = self._memory.path
        manifest = replace(
            self._draft,
            generation=self._memory.generation + 1,
            updated=utc_timestamp(updated),
            ibidem_version=ibidem.__version__,
            format=FORMAT,
        )
        self._dirty = True
        with write_errors(path):
            update_ends(path, first_journal(path, manifest), required=self._memory.manifest.format > 3)
            try:
                put_manifest(path, manifest)
            except CommittedError:
                self._reopen(manifest.generation)
                raise
        return self._reopen(manifest.generation)

    def _reopen(self, generation: int) -> Memory:
        """Remove what the committed generation does not need, and go on from it."""
        path = self._memory.path
        try:
            remove_unused_files(path)
            self._dirty = False
            self._memory = self._memory.refresh()
        except (MemoryFolderError, OSError) as error:
            raise CommittedError(
                f"generation {generation} of the memory {path} is committed, and need not be made again, but opening "
                f"it failed: {error}"
            ) from error
        self._draft = self._start_draft(self._memory)
        return self._memory

    def close(self) -> None:
        """Drop what was not committed."""
        self._closed = True
        if self._dirty:
            remove_unused_files(self._memory.path)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"this edit of {self._memory.path} is over: open another with memory.edit()")

    def _segments(self) -> list[Segment]:
        """Readers of the draft's segments."""
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
        """Keep the numbers of what was removed, after those that were before."""
        if len(new):
            numbers = np.concatenate([before, new]).astype("<i8")
            self.put_artefact(name, "bin", numbers.tobytes(), {"count": len(numbers)})

    def _renumber(self) -> None:
        """Start a new numbering of the entries: numbers stored before are no longer valid."""
        self.remove_artefact(REMOVED_ENTRIES)
        self._draft = replace(self._draft, numbering=self._memory.generation + 1, merged=self._draft.entries)

    def _next_folder(self) -> Path:
        """A name that no segment has, of this generation or of another that is kept."""
        return self._memory.path / SEGMENTS / f"{self._last_name + 1:06d}"

    def _written(self, record: SegmentRecord) -> SegmentRecord:
        self._last_name = int(record.name)
        return record

    @staticmethod
    def _start_draft(memory: Memory) -> Manifest:
        """The draft of the next generation before any change."""
        return replace(memory.manifest, snapshots=listed_snapshots(memory.path, memory.manifest))

    def _snapshot(self, name: str) -> SnapshotRecord:
        kept = self._draft.snapshots
        if name not in kept:
            raise UsageError(f"{self._memory.path} has no snapshot {name!r}: it has {', '.join(kept) or 'none'}")
        return kept[name]

    def _check_fit(self, data: SegmentData) -> None:
        identity = self._memory.identity
        if self._draft.segments and self._draft.layout != _layout_of(data):
            raise UsageError(
                f"{self._memory.path} holds other arrays of its entries (it is compacted, or clustered), and takes no "
                "such pairs: learn a new memory"
            )
        if data.keys is None and data.compact is None:
            raise UsageError("a new segment needs keys, the model's own or compact ones")
        if data.keys is not None and data.keys.shape[1] != identity.dimension:
            raise MismatchError(
                f"keys of {data.keys.shape[1]} dimensions do not fit {self._memory.path}, whose model "
                f"{identity.name!r} has {identity.dimension}: use that model, or learn a new memory"
            )
        if data.entries and (largest := int(data.values.max())) >= identity.vocabulary_size:
            raise MismatchError(
                f"the token id {largest} does not fit {self._memory.path}, whose model {identity.name!r} has "
                f"a vocabulary of {identity.vocabulary_size}: use its own tokenizer, or learn a new memory"
            )


def _layout_of(data: SegmentData) -> Layout:
    """The arrays that a new segment brings."""
    return Layout(keys=data.keys is not None, compact=None if data.compact is None else int(data.compact.shape[1]))


class JournalWriter:
    """Writes changes to the journal; made by `Memory.writing`, which holds the lock."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @property
    def memory(self) -> Memory:
        """The memory with all that was recorded so far, by anybody."""
        return self._memory

    def record(self, added: SegmentData | None = None, removed: Sequence[int] = ()) -> Memory:
        """Add pairs and remove the pairs with these ids, both or neither; it is on disk when this returns.

        Raises UsageError for an id that there is not, and MismatchError for pairs that do not fit the memory.
        """
        memory = self._memory
        if len(set(removed)) < len(removed):
            raise UsageError("a pair can be removed once: an id was given twice")
        for id in removed:
            memory.number_of(id)
        if added is not None:
            check_fit(added, memory)
        change = Change(added, tuple(removed))
        *done, last = memory.tail.journals
        try:
            with write_errors(memory.path):
                last = append_change(memory.path, last, change)
        except CommittedError:
            self._memory = memory.refresh()
            raise
        self._memory = memory.with_tail(memory.tail.extended([change], (*done, last)))
        return self._memory


def check_fit(data: SegmentData, memory: Memory) -> None:
    """Refuse pairs whose keys or values are not those of the memory's model and layout."""
    identity, layout = memory.identity, memory.layout
    for name, keys, width in (
        ("keys", data.keys, identity.dimension if layout.keys else None),
        ("compact keys", data.compact, layout.compact),
    ):
        found = None if keys is None else keys.shape[1]
        if found != width:
            raise MismatchError(
                f"pairs came with {name} of {found or 'no'} dimensions, and {memory.path} keeps {width or 'none'}: "
                f"make them with its own model {identity.name!r} and compactor"
            )
    if data.entries and (largest := int(data.values.max())) >= identity.vocabulary_size:
        raise MismatchError(
            f"the token id {largest} does not fit {memory.path}, whose model {identity.name!r} has a vocabulary of "
            f"{identity.vocabulary_size}: use its own tokenizer"
        )


def remove_pairs(
    memory: Memory,
    *,
    ids: Sequence[int] | None = None,
    texts: tuple[str, str] | None = None,
    origin: str | None = None,
    patience: float = 10.0,
) -> list[int]:
    """Remove the pairs with these ids, or with this source and target, or of this origin: all of them, or none.

    Gives their ids, once it is on disk; raises UsageError where there is no such pair.
    """
    with memory.writing(patience) as writer:
        newest = writer.memory
        found = list(ids or ())
        if texts is not None:
            found = newest.find(*texts)
            if not found:
                source, target = (text[:60] for text in texts)
                raise UsageError(
                    f"{memory.path} has no such pair ({source!r}, {target!r}): give both texts letter for letter."
                )
        if origin is not None:
            found = newest.find_origin(origin)
            if not found:
                raise UsageError(f"{memory.path} has no pair of the origin {origin!r}: `ibidem inspect` lists them.")
        if found:
            writer.record(removed=found)
        return found
