"""A memory: the folder that holds all that was learned of one domain, as one generation of it."""

from __future__ import annotations

import contextlib
import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import ibidem
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.memory.artefacts import REMOVED_ENTRIES, REMOVED_PAIRS, Artefact, check_artefact, read_removed
from ibidem.memory.edit import Edit, JournalWriter, check_fit
from ibidem.memory.files import Damage, DamagedFile, make_directory, replace_file, write_errors
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    PREVIOUS,
    SEGMENTS,
    check_empty_folder,
    current_manifest,
    listed_snapshots,
    put_manifest,
    remove_unused_files,
)
from ibidem.memory.integrity import verify
from ibidem.memory.journal import ENDS, Ends, encode_ends
from ibidem.memory.lock import writer_lock
from ibidem.memory.lookup import KeyView, Lookup
from ibidem.memory.manifest import DTYPES, FORMAT, SEEDS, Layout, Manifest, ModelIdentity, utc_timestamp
from ibidem.memory.segment import Segment
from ibidem.memory.tail import State, read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from os import PathLike

    from numpy.typing import NDArray

    from ibidem.memory.pairs import StoredPair
    from ibidem.memory.tail import Tail


class Memory:
    """One generation of a memory and its tail, read-only; `edit` makes the next one, `refresh` opens the newest.

    `entries`, `tokens`, `pairs`, the arrays and `keys` are those of the sealed segments. What was added or removed
    since is in `tail`: its pairs and entries are numbered on from there. Sentences are looked up in both.

    Nothing is read before it is needed, and nothing is used before its checksum was found right: every method
    may raise DamagedMemoryError. Made by `create` and `open`.
    """

    def __init__(self, path: Path, state: State, known: Memory | None = None) -> None:
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
        self._columns: dict[str, NDArray[np.generic]] = {}
        self._first_tokens = np.cumsum([0] + [record.tokens for record in manifest.segments], dtype=np.int64)
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
    ) -> Self:
        """Make an empty memory, generation 1, in a folder that is new or empty; `complete`: nothing is to be learnt."""
        if not SEEDS.start <= seed < SEEDS.stop:
            raise UsageError(f"the seed {seed} cannot be stored: give one from {SEEDS.start} to {SEEDS.stop - 1}")
        folder = Path(path)
        check_empty_folder(folder)
        with write_errors(folder):
            make_directory(folder)
        with writer_lock(folder), write_errors(folder):
            check_empty_folder(folder)  # another process may have made one before the lock was taken
            make_directory(folder / SEGMENTS)
            make_directory(folder / ARTEFACTS)
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
            replace_file(folder / ENDS, encode_ends(Ends()))
            put_manifest(folder, manifest)
            remove_unused_files(folder)
            return cls(folder, read_state(folder))

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open the current generation; raises MemoryFolderError if there is none, or a newer format."""
        return cls(Path(path), read_state(Path(path)))

    @staticmethod
    def exists(path: str | PathLike[str]) -> bool:
        """Whether there is a manifest, be it only the previous one."""
        return any((Path(path) / name).is_file() for name in (MANIFEST, PREVIOUS))

    def refresh(self) -> Self:
        """The newest state of this memory; this very object where nothing has changed.

        Looking costs two calls of stat, and what was added to the journal is read from where this one ends.
        """
        return self._refreshed(uncommitted=False)

    def _refreshed(self, *, uncommitted: bool) -> Self:
        """The newest state; uncommitted: with a record that a killed writer did not commit, for the next writer."""
        state = read_state(self.path, self._state, uncommitted=uncommitted)
        if state.stamp == self._state.stamp and state.tail is self.tail:
            return self
        if state.manifest is self.manifest:
            return self.with_tail(state.tail)
        return type(self)(self.path, state, self)

    def held(self) -> Self:
        """The newest state of this memory with all its files open: what others commit from now on takes none away."""
        newest = self.refresh()
        while True:
            try:
                for segment in newest._segments:
                    segment.open_arrays()
                return newest
            except MemoryFolderError:
                newer = newest.refresh()  # others may have committed twice since it was read, and swept
                if newer is newest:
                    raise
                newest = newer

    def with_tail(self, tail: Tail) -> Self:
        """This generation with another tail, which its journals give."""
        newer = copy.copy(self)
        newer.tail = tail
        newer._state = self._state._replace(tail=tail)
        newer.__dict__.pop("_lookup", None)
        for data in tail.added[len(self.tail.added) :]:
            check_fit(data, newer)
        return newer

    @contextlib.contextmanager
    def edit(self) -> Iterator[Edit]:
        """Hold the writer's lock and change the newest generation; only what is committed in the block stays.

        The journal is sealed first, so that every change is made to all pairs. Raises LockedMemoryError at once if
        another writer holds the lock.
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
    def writing(self, patience: float = 10.0) -> Iterator[JournalWriter]:
        """Hold the writer's lock and record changes in the journal, each committed at once.

        Raises LockedMemoryError if another writer holds the lock for longer than `patience` seconds.
        """
        with writer_lock(self.path, patience):
            newest = self._refreshed(uncommitted=True)
            if newest.manifest.format < FORMAT:  # whose readers would not look for a journal
                newest = Edit(newest).commit()
            yield JournalWriter(newest)

    def sealed(self) -> Memory:
        """The newest generation of this memory, with its journal sealed."""
        newest = self.refresh()
        if not newest.tail:
            return newest
        with newest.edit() as edit:
            return edit.memory

    @property
    def identity(self) -> ModelIdentity:
        """The base model that this memory belongs to."""
        return self.manifest.identity

    @property
    def generation(self) -> int:
        """The number of this generation, from 1."""
        return self.manifest.generation

    @property
    def complete(self) -> bool:
        """Whether learning came to its end."""
        return self.manifest.complete

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.manifest.entries

    @property
    def merged_entries(self) -> int:
        """The number of entries that the combiners and the index were made for; those after them were added since."""
        merged = self.manifest.merged
        return min(merged - int((self.removed_entries < merged).sum()), self.entries)

    @property
    def tokens(self) -> int:
        """The number of target tokens; more than entries once the memory was pruned."""
        return int(self._first_tokens[-1])

    @property
    def pairs(self) -> int:
        """The number of sentence pairs."""
        return self.manifest.counts.pairs

    @property
    def living_pairs(self) -> int:
        """The number of sentence pairs, those of the tail counted in and those that were removed left out."""
        return self.pairs + self.tail.pairs - len(self.tail.removed)

    @property
    def layout(self) -> Layout:
        """What is stored of an entry."""
        return self.manifest.layout

    @property
    def dimension(self) -> int:
        """The dimension of the keys that are searched."""
        return self.layout.compact or self.identity.dimension

    @cached_property
    def keys(self) -> KeyView:
        """The base model's own states; raises UsageError where they were dropped."""
        if not self.layout.keys:
            raise UsageError(
                f"{self.path} has only compact keys left, not those of its model: remove the folder and learn it "
                "again, with --keep-keys"
            )
        return KeyView(self._segments, self.identity.dimension)

    @cached_property
    def search_keys(self) -> KeyView:
        """The keys that are searched: the compact ones if there are any, else the model's own."""
        if self.layout.compact is None:
            return self.keys
        return KeyView(self._segments, self.layout.compact, "compact")

    def values(self) -> NDArray[np.int32]:
        """[entries] the token id of every entry, read-only."""
        return self._column("values", entries=True).astype(np.int32, copy=False)

    def log_probs(self) -> NDArray[np.float32]:
        """[entries] the base model's log-probability of every entry's value, read-only."""
        return self._column("log_probs", entries=True).astype(np.float32, copy=False)

    def clusters(self) -> NDArray[np.int32] | None:
        """[entries] the cluster of every entry (negative: none), read-only; None before clustering."""
        return self._column("clusters").astype(np.int32, copy=False) if self.layout.clusters else None

    def token_values(self) -> NDArray[np.int32]:
        """[tokens] the id of every target token, entry or not, read-only."""
        return self._column("values").astype(np.int32, copy=False)

    def token_log_probs(self) -> NDArray[np.float32]:
        """[tokens] the base model's log-probability of every target token, read-only."""
        return self._column("log_probs").astype(np.float32, copy=False)

    def token_offsets(self) -> NDArray[np.int64]:
        """[pairs + 1] where the tokens of each pair begin."""
        firsts = self._first_tokens[:-1]
        parts = [segment.offsets[1:] + first for segment, first in zip(self._segments, firsts, strict=True)]
        return np.concatenate([np.zeros(1, np.int64), *parts])

    def rows(self) -> NDArray[np.int64]:
        """[entries] the token that each entry is, rising."""
        parts = [
            first + (np.arange(segment.record.entries) if segment.rows is None else segment.rows)
            for segment, first in zip(self._segments, self._first_tokens[:-1], strict=True)
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    @cached_property
    def removed_entries(self) -> NDArray[np.int64]:
        """Serial numbers of the entries taken out since entries were numbered anew, in the order of their removal."""
        return read_removed(self.path, self.manifest, REMOVED_ENTRIES)

    @cached_property
    def _removed_pairs(self) -> NDArray[np.int64]:
        return np.sort(read_removed(self.path, self.manifest, REMOVED_PAIRS))

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self._segments, self.manifest.origins, self.tail, self._removed_pairs)

    def sentence(self, index: int) -> StoredPair:
        """The sentence pair with this number; raises UsageError out of range."""
        return self._lookup.pair(index)

    def sentences(self) -> Iterator[StoredPair]:
        """All sentence pairs that were not removed, in the order in which they were learned."""
        return self._lookup.pairs()

    def tokens_of(self, index: int) -> NDArray[np.int32]:
        """[tokens] the ids of the target tokens of the sentence with this number, read-only."""
        return self._lookup.tokens(index)

    def locate(self, entry: int) -> tuple[int, int]:
        """The number of an entry's sentence, and the entry's position in it; raises UsageError out of range."""
        return self._lookup.locate(entry)

    def number_of(self, id: int) -> int:
        """The number of the pair with this id; raises UsageError if there is none, or none any more."""
        return self._lookup.number_of(id)

    def find(self, source: str, target: str | None = None) -> list[int]:
        """The ids of the pairs with these texts, letter for letter; of all with this source without a target."""
        return self._lookup.find(source, target)

    def find_origin(self, origin: str) -> list[int]:
        """The ids of the pairs that came from this origin."""
        return self._lookup.find_origin(origin)

    def hidden_entries(self) -> NDArray[np.int64]:
        """The numbers of sealed entries, rising, whose pairs the tail removes."""
        return self._lookup.entries(self.tail.removed_sealed)

    def tail_keys(self) -> NDArray[np.float16]:
        """[entries of the tail, dimension] the keys of the tail that are searched."""
        return self.tail.keys(compact=self.layout.compact is not None, dimension=self.dimension)

    def artefact(self, name: str) -> Artefact | None:
        """An artefact, its file verified once, or None if the memory has none of this name."""
        record = self.manifest.artefacts.get(name)
        if record is None:
            return None
        path = self.path / ARTEFACTS / record.file
        if record.file not in self._sound_artefacts:
            try:
                check_artefact(self.path / ARTEFACTS, name, record)
            except DamagedFile as damage:
                self._check_still_kept(name, path, damage)
                raise
            self._sound_artefacts.add(record.file)
        return Artefact(path, record.info)

    def snapshots(self) -> list[str]:
        """The names of generations that were kept for going back to."""
        return list(listed_snapshots(self.path, self.manifest))

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[Damage]:
        """Check every byte of this generation; `progress` is called with the bytes read and the total bytes."""
        return verify(self.path, self.manifest, progress)

    def bytes_by_array(self) -> dict[str, int]:
        """The bytes on disk of every kind of array over all segments, then of every artefact."""
        arrays = {
            name: sum(segment.records[name].bytes for segment in self._segments if name in segment.expected)
            for name in DTYPES
            if name in self.layout.shapes(self.manifest.counts, self.identity.dimension)
        }
        journal = sum(journal.size() for journal in self.tail.journals)
        arrays |= {"journal": journal} if journal else {}
        return arrays | {name: record.bytes for name, record in self.manifest.artefacts.items()}

    def __repr__(self) -> str:
        tail = f" and {self.tail.pairs} added, {len(self.tail.removed)} removed since" if self.tail else ""
        counts = f"generation {self.generation}, {self.entries} entries, {self.pairs} pairs{tail}"
        return f"Memory({str(self.path)!r}, {counts})"

    def _column(self, name: str, *, entries: bool = False) -> NDArray[np.generic]:
        """An array over all segments, as it is stored, or of the tokens that are `entries`."""
        pruned = entries and self.entries < self.tokens
        key = f"{name} of entries" if pruned else name
        if key not in self._columns:
            parts = [segment.of_entries(name) if pruned else segment.array(name).all() for segment in self._segments]
            column = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, DTYPES[name]), *parts])
            column.flags.writeable = False
            self._columns[key] = column
        return self._columns[key]

    def _check_still_kept(self, name: str, path: Path, damage: DamagedFile) -> None:
        newest = current_manifest(self.path).generation
        if newest > self.generation and not path.exists():
            raise MemoryFolderError(
                f"artefact {name!r} of generation {self.generation} of {self.path} is gone, since generation "
                f"{newest} was committed meanwhile: refresh the memory"
            ) from damage
