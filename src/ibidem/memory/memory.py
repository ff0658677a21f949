"""A memory: the folder that stores everything that was learned of one domain."""

from __future__ import annotations

import contextlib
import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import ibidem
from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory.artefacts import (
    COMPACTOR_ARTEFACT,
    REMOVED_ENTRIES,
    REMOVED_PAIRS,
    SOURCE_PROJECTION_ARTEFACT,
    Artefact,
    open_artefact,
    read_removed,
)
from ibidem.memory.columns import Columns
from ibidem.memory.creation import create_folder
from ibidem.memory.edit import Edit
from ibidem.memory.generations import MANIFEST, PREVIOUS, SEGMENTS, remove_unused_files
from ibidem.memory.integrity import verify
from ibidem.memory.journal_writer import JournalWriter, check_fit
from ibidem.memory.key_coding import KeyCoding
from ibidem.memory.lock import writer_lock
from ibidem.memory.lookup import KeyView, Lookup
from ibidem.memory.manifest import DTYPES, SEEDS, Layout, Manifest, ModelIdentity, utc_timestamp
from ibidem.memory.segment import Segment
from ibidem.memory.source_projection import SourceProjection
from ibidem.memory.tail import State, read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from os import PathLike

    from numpy.typing import NDArray

    from ibidem.memory.files import Damage
    from ibidem.memory.pairs import StoredPair
    from ibidem.memory.tail import Tail


class Memory:
    """One generation of a memory with the changes of its journals, read-only.

    `create` and `open` make one, `edit` and `writing` change the folder, and `refresh` returns the newest state.
    `entries`, `tokens`, `pairs`, the arrays and `keys` are those of the sealed segments. Later changes are in `tail`;
    its pairs and entries are numbered after those of the segments. `sentences`, `find` and the other lookups cover
    both.

    Files are read when they are needed, and their checksums are checked before the content is used: every method may
    raise DamagedMemoryError. The examples of the methods continue the one below.

    Examples:
        >>> import numpy as np
        >>> from ibidem.memory import Memory, ModelIdentity, SegmentData
        >>> identity = ModelIdentity("tiny", "model", "tokenizer", 2, 100, "de", "en")
        >>> memory = Memory.create("memory", identity)
        >>> data = SegmentData(
        ...     keys=np.zeros((3, 2), np.float16),
        ...     values=np.array([5, 6, 0], np.int32),
        ...     log_probs=np.zeros(3, np.float32),
        ...     lengths=np.array([3]),
        ...     sources=["Guten Morgen!"],
        ...     targets=["Good morning!"],
        ...     origins=["examples.tsv"],
        ...     locations=[1],
        ... )
        >>> with memory.edit() as edit:
        ...     edit.append_segment(data)
        ...     memory = edit.commit()
        >>> memory
        Memory('memory', generation 2, 3 entries, 1 pairs)

    Attributes:
        path: The folder.
        manifest: The manifest of the generation.
        tail: The changes of the journals since the generation was committed.
    """

    def __init__(self, path: Path, state: State, known: Memory | None = None) -> None:
        """Wrap a state that was read from a folder; callers use `open`.

        Args:
            path: The folder.
            state: The manifest and the tail.
            known: An older generation, whose open files are reused.
        """
        self.path = path
        self.manifest = manifest = state.manifest
        self.tail = state.tail
        self._state = state
        # Segments never change: a newer generation keeps the open files and verified blocks of an older one.
        opened = {segment.record: segment for segment in known._segments} if known is not None else {}
        self._segments: Sequence[Segment] = [
            opened.get(record)
            or Segment(path / SEGMENTS / record.name, record, manifest.layout, manifest.identity.dimension)
            for record in manifest.segments
        ]
        self._sound_artefacts: set[str] = set(known._sound_artefacts) if known is not None else set()
        self._columns = Columns(self._segments)
        for data in self.tail.added:
            check_fit(data, self)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        identity: ModelIdentity,
        *,
        seed: int = 0,
        created: datetime | None = None,
        stages: Mapping[str, Mapping[str, Any]] | None = None,
        complete: bool = False,
        source_projection: SourceProjection | None = None,
        compactor: tuple[bytes, Mapping[str, object]] | None = None,
    ) -> Self:
        """Make an empty memory, generation 1.

        Args:
            path: A new or empty folder.
            identity: The base model of the memory.
            seed: The seed of learning.
            created: The time of creation, with a time zone; None is now.
            stages: The notes of stages of learning.
            complete: Whether learning is complete.
            source_projection: The map from mean encoder states to source vectors, to be stored.
            compactor: The file of a compactor with the coding of its keys, and its summary. The memory then stores
                compact keys only.

        Raises:
            MemoryFolderError: The folder is not empty or cannot be written.
            UsageError: Invalid seed or time.

        Examples:
            >>> Memory.create("another", identity, seed=7).entries
            0
        """
        if not SEEDS.start <= seed < SEEDS.stop:
            raise UsageError(f"invalid seed {seed}: give one from {SEEDS.start} to {SEEDS.stop - 1}")
        now = utc_timestamp(created)
        manifest = Manifest(
            generation=1,
            created=now,
            updated=now,
            ibidem_version=ibidem.__version__,
            identity=identity,
            seed=seed,
            origins=(),
            segments=(),
            artefacts={},
            stages=stages or {},
            complete=complete,
        )
        create_folder(Path(path), manifest, source_projection, compactor)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open the current generation.

        Args:
            path: The folder of the memory.

        Raises:
            MemoryFolderError: There is no memory, or it has a newer format.
            DamagedMemoryError: The manifest, a snapshot or a journal is damaged.

        Examples:
            >>> Memory.open("memory").pairs
            1
        """
        return cls(Path(path), read_state(Path(path)))

    @staticmethod
    def exists(path: str | PathLike[str]) -> bool:
        """Return whether a folder contains a manifest, the current or the previous one.

        Args:
            path: The folder; it need not exist.

        Examples:
            >>> Memory.exists("memory"), Memory.exists("nowhere")
            (True, False)
        """
        return any((Path(path) / name).is_file() for name in (MANIFEST, PREVIOUS))

    def refresh(self) -> Self:
        """Return the newest state of this memory; the same object if nothing has changed.

        Without a change this costs two calls of `stat`; of the journal only new records are read.
        """
        return self._refreshed(uncommitted=False)

    def _refreshed(self, *, uncommitted: bool) -> Self:
        """Return the newest state; `uncommitted` is for writers (see `read_tail`)."""
        state = read_state(self.path, self._state, uncommitted=uncommitted)
        if state.stamp == self._state.stamp and state.tail is self.tail:
            return self
        if state.manifest is self.manifest:
            return self.with_tail(state.tail)
        return type(self)(self.path, state, self)

    def pinned(self) -> Self:
        """Return the newest state with all files open, so that later commits of other processes cannot remove them."""
        newest = self.refresh()
        while True:
            try:
                for segment in newest._segments:
                    segment.open_arrays()
                return newest
            except MemoryFolderError:
                newer = newest.refresh()  # other processes may have committed twice since, and deleted files
                if newer is newest:
                    raise
                newest = newer

    def with_tail(self, tail: Tail) -> Self:
        """Return this generation with another tail of its journals.

        Args:
            tail: The changes of the journals; those that this object has come first.

        Raises:
            MismatchError: An added pair does not match the model or the layout.
        """
        newer = copy.copy(self)
        newer.tail = tail
        newer._state = self._state._replace(tail=tail)
        newer.__dict__.pop("lookup", None)
        for data in tail.added[len(self.tail.added) :]:
            check_fit(data, newer)
        return newer

    @contextlib.contextmanager
    def edit(self) -> Iterator[Edit]:
        """Hold the writer's lock and change the newest generation; only committed changes persist.

        The journal is sealed first, so that the changes apply to all pairs.

        Yields:
            The edit; `commit` makes a new generation.

        Raises:
            LockedMemoryError: Another writer holds the lock.

        Examples:
            >>> with memory.edit() as edit:
            ...     edit.set_complete(True)
            ...     memory = edit.commit()
            >>> memory.complete
            True
        """
        with writer_lock(self.path):
            newest = self._refreshed(uncommitted=True)
            remove_unused_files(self.path)
            edit = Edit(newest)
            try:
                if newest.tail:
                    edit.seal_journal()
                    edit.commit()
                yield edit
            finally:
                edit.close()

    @contextlib.contextmanager
    def writing(self, lock_timeout: float = 10.0) -> Iterator[JournalWriter]:
        """Hold the writer's lock and record changes in the journal; each one is committed at once.

        Args:
            lock_timeout: Seconds to wait while another writer holds the lock.

        Yields:
            The writer; `record` adds and removes pairs.

        Raises:
            LockedMemoryError: Another writer still holds the lock.

        Examples:
            >>> with memory.writing() as writer:
            ...     changed = writer.record(data)
            >>> changed.active_pairs
            2
        """
        with writer_lock(self.path, lock_timeout):
            newest = self._refreshed(uncommitted=True)
            yield JournalWriter(newest)

    def sealed(self) -> Memory:
        """Return the newest generation, after the changes of its journals were moved to segments."""
        newest = self.refresh()
        if not newest.tail:
            return newest
        with newest.edit() as edit:
            return edit.memory

    @property
    def identity(self) -> ModelIdentity:
        """The base model of this memory."""
        return self.manifest.identity

    @property
    def generation(self) -> int:
        """The number of this generation, from 1."""
        return self.manifest.generation

    @property
    def complete(self) -> bool:
        """Whether learning is complete."""
        return self.manifest.complete

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.manifest.entries

    @property
    def fitted_entries(self) -> int:
        """The number of entries that the combiners and the index were made for; later entries were added."""
        merged = self.manifest.merged
        return min(merged - int((self.removed_entries < merged).sum()), self.entries)

    @property
    def tokens(self) -> int:
        """The number of target tokens; more than the entries of a pruned memory."""
        return self._columns.tokens

    @property
    def pairs(self) -> int:
        """The number of sentence pairs in the segments."""
        return self.manifest.counts.pairs

    @property
    def active_pairs(self) -> int:
        """The number of sentence pairs in the segments and the tail, without removed ones."""
        return self.pairs + self.tail.pairs - len(self.tail.removed)

    @property
    def layout(self) -> Layout:
        """The arrays that are stored for the entries."""
        return self.manifest.layout

    @property
    def dimension(self) -> int:
        """The dimension of `search_keys`."""
        return self.layout.compact or self.identity.dimension

    @cached_property
    def keys(self) -> KeyView:
        """The base model's own states; raises UsageError if they were dropped."""
        if not self.layout.keys:
            raise UsageError(
                f"{self.path} has only compact keys, not those of its model: remove the folder and learn the memory "
                "again with --set keep_keys=true"
            )
        return KeyView(self._segments, self.identity.dimension)

    @cached_property
    def search_keys(self) -> KeyView:
        """The keys for the search: the compact ones if there are any, else the model's own."""
        if self.layout.compact is None:
            return self.keys
        return KeyView(self._segments, self.layout.compact, self.key_coding)

    @cached_property
    def key_coding(self) -> KeyCoding | None:
        """The codes of the compact keys, from the compactor's file; None if there are no compact keys.

        Raises:
            DamagedMemoryError: The compactor is missing, changed, or of another dimension.
        """
        if self.layout.compact is None:
            return None
        stored = self.artefact(COMPACTOR_ARTEFACT)
        if stored is None:
            raise DamagedMemoryError(f"{self.path} has compact keys, but no compactor: restore it from a copy.")
        coding = KeyCoding.read(stored.path.read_bytes())
        if coding.dimension != self.layout.compact:
            raise DamagedMemoryError(
                f"The compactor of {self.path} is not the one of its keys: restore it from a copy."
            )
        return coding

    def values(self) -> NDArray[np.int32]:
        """Return [entries] the target token id of each entry, read-only."""
        return self._columns.of_entries("values", np.int32)

    def log_probs(self) -> NDArray[np.float32]:
        """Return [entries] the base model's log-probability of each entry's value, read-only."""
        return self._columns.of_entries("log_probs", np.float32)

    def source_vectors(self) -> NDArray[np.int8]:
        """Return [pairs, 64] the source vector of each pair, sealed ones and those of the tail, by number; read-only.

        Removed pairs keep their rows until the journal is sealed.
        """
        return self._columns.source_vectors(self.tail.source_vectors)

    def sentence_of_entries(self) -> NDArray[np.int32]:
        """Return [entries] the number of each entry's pair, for the sealed entries and those of the tail."""
        return self._columns.pair_numbers(self.tail.offsets)

    @cached_property
    def source_projection(self) -> SourceProjection:
        """The map from mean encoder states to source vectors; a fixed random one where the memory stores none.

        Raises:
            DamagedMemoryError: The artefact is missing, changed, or of another dimension.
        """
        stored = self.artefact(SOURCE_PROJECTION_ARTEFACT)
        if stored is None:
            return SourceProjection.random(self.identity.dimension)
        return SourceProjection.read(stored.path.read_bytes())

    def clusters(self) -> NDArray[np.int32] | None:
        """Return [entries] the cluster of each entry (negative: none), read-only; None before clustering."""
        return self._columns.stored("clusters", np.int32) if self.layout.clusters else None

    def token_values(self) -> NDArray[np.int32]:
        """Return [tokens] the id of each target token, read-only; pruned entries are included."""
        return self._columns.stored("values", np.int32)

    def token_log_probs(self) -> NDArray[np.float32]:
        """Return [tokens] the base model's log-probability of each target token, read-only."""
        return self._columns.stored("log_probs", np.float32)

    def token_offsets(self) -> NDArray[np.int64]:
        """Return [pairs + 1] the first token of each pair."""
        return self._columns.token_offsets()

    def rows(self) -> NDArray[np.int64]:
        """Return [entries] the token number of each entry, ascending."""
        return self._columns.rows()

    @cached_property
    def removed_entries(self) -> NDArray[np.int64]:
        """Serial numbers of the entries that were removed since the last renumbering, in the order of their removal."""
        return read_removed(self.path, self.manifest, REMOVED_ENTRIES)

    @cached_property
    def _removed_pairs(self) -> NDArray[np.int64]:
        return np.sort(read_removed(self.path, self.manifest, REMOVED_PAIRS))

    @cached_property
    def lookup(self) -> Lookup:
        return Lookup(self._segments, self.manifest.origins, self.tail, self._removed_pairs)

    def sentence(self, index: int) -> StoredPair:
        """Return the sentence pair with a number.

        Args:
            index: The number, from 0; the pairs of the tail follow the sealed ones, and removed pairs count.

        Raises:
            UsageError: The number is out of range.

        Examples:
            >>> memory.sentence(0).target
            'Good morning!'
        """
        return self.lookup.pair(index)

    def sentences(self) -> Iterator[StoredPair]:
        """Yield all sentence pairs that were not removed, in the order of their arrival.

        Examples:
            >>> for pair in memory.sentences():
            ...     print(pair.source, "->", pair.target)
            Guten Morgen! -> Good morning!
        """
        return self.lookup.pairs()

    def tokens_of(self, index: int) -> NDArray[np.int32]:
        """Return the target token ids of the pair with a number.

        Args:
            index: The number of the pair, from 0.

        Returns:
            [tokens] int32, read-only; pruned tokens are included.

        Raises:
            UsageError: The number is out of range.
        """
        return self.lookup.tokens(index)

    def locate(self, entry: int) -> tuple[int, int]:
        """Find the sentence pair of an entry.

        Args:
            entry: The number of the entry, from 0; the entries of the tail follow the sealed ones.

        Returns:
            The number of the pair, and the entry's position among its target tokens.

        Raises:
            UsageError: The number is out of range.
        """
        return self.lookup.locate(entry)

    def number_of(self, id: int) -> int:
        """Return the number of the pair with an id.

        Args:
            id: The id, as `find` returns it.

        Raises:
            UsageError: The pair does not exist or was removed.
        """
        return self.lookup.number_of(id)

    def find(self, source: str, target: str | None = None) -> list[int]:
        """Return the ids of the pairs with given texts.

        Args:
            source: The source text, compared exactly.
            target: The target text, compared exactly; None accepts any.

        Examples:
            >>> memory.find("Guten Morgen!")
            [0]
            >>> memory.find("Guten Morgen!", "Hello!")
            []
        """
        return self.lookup.find(source, target)

    def find_origin(self, origin: str) -> list[int]:
        """Return the ids of the pairs of an origin, without removed ones.

        Args:
            origin: The name of the origin; an unknown one has no pairs.
        """
        return self.lookup.find_origin(origin)

    def excluded_entries(self) -> NDArray[np.int64]:
        """Return the numbers of sealed entries, ascending, whose pairs the tail removes."""
        return self.lookup.entries(self.tail.removed_sealed)

    def tail_keys(self) -> NDArray[np.float16]:
        """Return [entries of the tail, dimension] the keys of the tail for the search."""
        return self.tail.keys(self.key_coding, self.dimension)

    def artefact(self, name: str) -> Artefact | None:
        """Return an artefact; its file is verified at the first call.

        Args:
            name: The name of the artefact.

        Returns:
            The artefact; None if the memory has none of this name.

        Raises:
            DamagedMemoryError: The file is missing or changed.
        """
        return open_artefact(self.path, self.manifest, name, self._sound_artefacts)

    def snapshots(self) -> list[str]:
        """Return the names of the snapshots."""
        return list(self.manifest.snapshots)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[Damage]:
        """Check every byte of this generation and of the snapshots.

        Args:
            progress: A function that is called with the bytes read so far and the total bytes.

        Returns:
            The damaged files; empty if there are none.

        Examples:
            >>> memory.verify()
            []
        """
        return verify(self.path, self.manifest, progress)

    def bytes_by_array(self) -> dict[str, int]:
        """Return the bytes on disk of each kind of array over all segments, and of each artefact."""
        names = self.layout.shapes(self.manifest.counts, self.identity.dimension)
        arrays = {name: self._columns.bytes_on_disk(name) for name in DTYPES if name in names}
        journal = sum(journal.size() for journal in self.tail.journals)
        return (
            arrays
            | ({"journal": journal} if journal else {})
            | {name: record.bytes for name, record in self.manifest.artefacts.items()}
        )

    def __repr__(self) -> str:
        tail = f" and {self.tail.pairs} added, {len(self.tail.removed)} removed since" if self.tail else ""
        counts = f"generation {self.generation}, {self.entries} entries, {self.pairs} pairs{tail}"
        return f"Memory({str(self.path)!r}, {counts})"
