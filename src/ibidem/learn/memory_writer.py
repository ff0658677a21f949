"""The memory writer: adds, removes and replaces single pairs, which the next translated sentence already uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ibidem.compact import GENERAL_COMPACTOR
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.compact import read_given
from ibidem.learn.extraction import (
    STAGE,
    Chunk,
    cut_chunks,
    extract_chunk,
    identify_model,
    shipped_projection,
    store_compact,
)
from ibidem.learn.maintenance import maintain
from ibidem.learn.provenance import digest, given_digest
from ibidem.memory import (
    COMPACTOR_ARTEFACT,
    Memory,
    SourceProjection,
    check_complete,
    check_identity,
    remove_pairs,
)
from ibidem.progress import Progress, silent
from ibidem.retrieve import compactor_of
from ibidem.text import Counts, Pair, join_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike

    from ibidem.compact import Compactor
    from ibidem.memory import SegmentData, StoredPair
    from ibidem.model import BaseModel

BY_HAND = "by hand"
# The entries that are computed and committed together when many pairs are added.
_CHUNK_ENTRIES = 4096
_BATCH_TOKENS = 4096


class Added(NamedTuple):
    """The result of adding a pair.

    Attributes:
        id: The id of the pair in the memory.
        new: Whether the pair was stored; a pair that the memory already holds is not stored again.
    """

    id: int
    new: bool


class Correction(NamedTuple):
    """The result of correcting a pair.

    Attributes:
        id: The id of the pair in the memory.
        new: Whether the pair was stored.
        replaced: The pairs of the same source that were removed.
    """

    id: int
    new: bool
    replaced: list[StoredPair]


def create_memory(path: str | PathLike[str], model: BaseModel, *, seed: int = 0) -> Memory:
    """Create an empty memory for pairs of this model; it can be used from the first pair on.

    The pairs are stored in the space of the model's general compactor where it has one.

    Args:
        path: The folder, which must not exist or be empty.
        model: The base model.
        seed: The seed of later stages.
    """
    identity = identify_model(model)
    notes: dict[str, object] = {"corpus": "pairs added one by one", "special_tokens": model.tokens.special_ids()}
    stages, compactor = {STAGE: notes}, None
    if model.general is not None:
        given = read_given(model.general / GENERAL_COMPACTOR, model.name, model.fingerprint)
        made = given_digest(given.sha256, digest(identity, seed, notes))
        stages["compact"] = {"digest": made, "contents": [0, 0, 0], **given.notes()}
        compactor = given.payload, given.compactor.summary()
    return Memory.create(
        path,
        identity,
        seed=seed,
        stages=stages,
        complete=True,
        source_projection=shipped_projection(model) or SourceProjection.random(model.dimension),
        compactor=compactor,
    )


def _open_or_create(path: Path, model: BaseModel) -> Memory:
    """Open the memory at a path, or create it; another process may create it at the same time."""
    if not Memory.exists(path):
        try:
            return create_memory(path, model)
        except MemoryFolderError:
            if not Memory.exists(path):
                raise
    return Memory.open(path)


class MemoryWriter:
    """Adds, removes and replaces pairs of a memory.

    A change is on disk when the method returns, and translators use it from their next batch on. Any number of threads
    and processes may write at the same time. The model may be in use by a translator meanwhile.

    Examples:
        >>> from ibidem import MemoryWriter, Translator
        >>> from ibidem.model import load_model
        >>> model = load_model()
        >>> writer = MemoryWriter("memories/terms", model)
        >>> writer.add_pair("Der Mandant wurde gelöscht.", "The tenant was deleted.")
        Added(id=0, new=True)
        >>> Translator(model, "memories/terms").translate(["Der Mandant wurde gelöscht."])
        ['The tenant was deleted.']
        >>> writer.remove([0])
        [0]
    """

    def __init__(self, memory: Memory | str | PathLike[str], model: BaseModel, *, lock_timeout: float = 10.0) -> None:
        """Open a memory for writing.

        Args:
            memory: A memory, or its folder; a folder without a memory gets an empty one.
            model: The base model of the memory.
            lock_timeout: Seconds to wait for other writers before LockedMemoryError is raised.

        Raises:
            MismatchError: The memory belongs to another model.
        """
        if not isinstance(memory, Memory):
            memory = _open_or_create(Path(memory), model)
        check_identity(memory, model)
        self._memory = memory
        self._model = model
        self._lock_timeout = lock_timeout
        self._compactor: tuple[object, Compactor | None] = (None, None)

    @property
    def model(self) -> BaseModel:
        """The base model of the memory."""
        return self._model

    @property
    def memory(self) -> Memory:
        """The newest state of the memory, with changes by other processes."""
        self._memory = self._memory.pinned()
        return self._memory

    def add_pair(self, source: str, target: str, *, origin: str = BY_HAND, location: int = 0) -> Added:
        """Add one pair.

        Args:
            source: The source sentence.
            target: Its translation.
            origin: Where the pair comes from, such as a file name.
            location: Its position in the origin, such as a line number.

        Raises:
            UsageError: A side is empty, is not valid Unicode, or exceeds the length limit of the model.
            LockedMemoryError: Another writer holds the lock for too long.
        """
        return self._add_chunk(self._chunk_of(_clean_pair(source, target, origin, location)))[0]

    def correct(self, pairs: Iterable[tuple[str, str]], *, origin: str = BY_HAND) -> list[Correction]:
        """Add pairs, each of which replaces all other pairs of the same source, as translation memories do.

        Two translations of one sentence contradict each other, and neither would be used.

        Args:
            pairs: Sources and targets.
            origin: Where the pairs come from.

        Raises:
            UsageError: A pair is invalid (see `add_pair`); nothing is changed.
        """
        chunks = [self._chunk_of(_clean_pair(source, target, origin, 0)) for source, target in pairs]
        return [self._correct(chunk) for chunk in chunks]

    def add(self, pairs: Iterable[Pair], counts: Counts | None = None, progress: Progress = silent) -> list[Added]:
        """Add many pairs, some thousand tokens at a time, with maintenance in between.

        Args:
            pairs: The pairs.
            counts: Receives the number of pairs that are dropped because they exceed the length limit of the model.
            progress: Receives the number of pairs that are done.

        Returns:
            The result for each pair that is not dropped, in order.
        """
        counts = counts if counts is not None else Counts()
        added: list[Added] = []
        for chunk in cut_chunks(pairs, self._model.tokens, _CHUNK_ENTRIES, counts):
            if added:
                self.maintain()
            added += self._add_chunk(chunk)
            progress("Adding", None, len(added), "pairs")
        return added

    def remove(self, ids: Sequence[int]) -> list[int]:
        """Remove the pairs with these ids, all or none.

        Args:
            ids: The ids of the pairs.

        Returns:
            The ids of the removed pairs.

        Raises:
            UsageError: An id is unknown; nothing is removed.
        """
        return remove_pairs(self._memory, ids=ids, lock_timeout=self._lock_timeout)

    def remove_pair(self, source: str, target: str) -> list[int]:
        """Remove every pair with these texts.

        Args:
            source: The source as it is stored; line breaks count as spaces.
            target: The target, likewise.

        Returns:
            The ids of the removed pairs.

        Raises:
            UsageError: The memory has no such pair.
        """
        texts = join_lines(source), join_lines(target)
        return remove_pairs(self._memory, texts=texts, lock_timeout=self._lock_timeout)

    def remove_origin(self, origin: str) -> list[int]:
        """Remove every pair of an origin.

        Args:
            origin: The file or other origin that the pairs were stored with.

        Returns:
            The ids of the removed pairs.

        Raises:
            UsageError: The memory has no pair of this origin.
        """
        return remove_pairs(self._memory, origin=origin, lock_timeout=self._lock_timeout)

    def replace_pair(self, source: str, old_target: str, new_target: str) -> Added:
        """Replace a translation in one step.

        Args:
            source: The source as it is stored; line breaks count as spaces.
            old_target: The stored target, likewise.
            new_target: The target that replaces it.

        Returns:
            The result for the new pair.

        Raises:
            UsageError: The memory has no pair with these texts, or the new target is invalid (see `add_pair`).
        """
        ids = self.memory.find(join_lines(source), join_lines(old_target))
        if not ids:
            raise UsageError(
                f"{self._memory.path} has no such pair ({source[:60]!r}, {old_target[:60]!r}): give both texts "
                "exactly as they are stored."
            )
        return self._replace(ids, new_target)

    def replace(self, id: int, target: str) -> Added:
        """Replace the translation of a pair in one step.

        Args:
            id: The id of the pair.
            target: The target that replaces the stored one.

        Returns:
            The result for the new pair.

        Raises:
            UsageError: The id is unknown, or the target is invalid (see `add_pair`).
        """
        self.memory.number_of(id)
        return self._replace([id], target)

    def maintain(self, progress: Progress = silent) -> Memory:
        """Seal the journal and rebuild the index where that is due; a server calls this in the background.

        Args:
            progress: Receives the progress of building the index.

        Returns:
            The memory in its current state.
        """
        self._memory = maintain(self.memory, self._model.device, progress)
        return self._memory

    def _correct(self, chunk: Chunk) -> Correction:
        (pair,) = chunk.pairs
        replaced: list[StoredPair] = []

        def find_others(memory: Memory) -> list[int]:
            same = set(memory.find(pair.source, pair.target))
            others = [id for id in memory.find(pair.source) if id not in same]
            replaced[:] = [memory.sentence(memory.number_of(id)) for id in others]
            return others

        (added,) = self._add_chunk(chunk, find_others)
        return Correction(added.id, added.new, replaced)

    def _replace(self, ids: list[int], target: str) -> Added:
        memory = self.memory
        old = memory.sentence(memory.number_of(ids[0]))
        chunk = self._chunk_of(_clean_pair(old.source, target, old.origin, old.location))
        return self._add_chunk(chunk, lambda _: ids)[0]

    def _chunk_of(self, pair: Pair) -> Chunk:
        """Encode one pair; raise UsageError if it exceeds the length limit of the model."""
        tokens = self._model.tokens
        for chunk in cut_chunks([pair], tokens, _CHUNK_ENTRIES, Counts(read=1, kept=1)):
            return chunk
        raise UsageError(
            f"The pair is longer than the limit of the model ({tokens.max_source_length} source and "
            f"{tokens.max_target_length} target tokens): add it in parts."
        )

    def _add_chunk(self, chunk: Chunk, outdated: Callable[[Memory], Sequence[int]] = lambda _: ()) -> list[Added]:
        """Add the pairs of a chunk that are not stored yet, and remove the outdated ones, in one journal record."""
        texts = [(pair.source, pair.target) for pair in chunk.pairs]
        while True:
            memory = self.memory
            check_complete(memory)
            known = _find_known(memory, texts, outdated(memory))
            new = [i for i, text in enumerate(texts) if text not in known and text not in texts[:i]]
            data = self._compute(chunk, new, memory)
            with memory.writing(self._lock_timeout) as writer:
                removed = outdated(writer.memory)
                known = _find_known(writer.memory, texts, removed)
                computed = {texts[i] for i in new}
                # Otherwise another process compacted the memory or removed one of the known pairs: compute again.
                if _space(writer.memory) == _space(memory) and computed.union(known).issuperset(texts):
                    fresh = [place for place, i in enumerate(new) if texts[i] not in known]
                    first = writer.memory.tail.next_id
                    if fresh or removed:
                        self._memory = writer.record(data.select(fresh) if fresh else None, removed)
                    stored = {texts[new[place]]: first + number for number, place in enumerate(fresh)}
                    return [
                        Added((known | stored)[text], text in stored and text not in texts[:i])
                        for i, text in enumerate(texts)
                    ]

    def _compute(self, chunk: Chunk, pairs: Sequence[int], memory: Memory) -> SegmentData:
        """Compute the entries of some pairs of a chunk in the memory's layout."""
        part = Chunk()
        for i in pairs:
            part.add(chunk.pairs[i], chunk.sources[i], chunk.targets[i])
        data, means = extract_chunk(self._model, part, _BATCH_TOKENS, lambda _: None)
        vectors = memory.source_projection.vectors(means)
        assert data.keys is not None
        kept = data.keys if memory.layout.keys else None
        if (compactor := self._compactor_of(memory)) is not None:
            coding = memory.key_coding
            assert coding is not None
            data = store_compact(data, compactor, coding, self._model.device)
        return replace(data, keys=kept, source_vectors=vectors)

    def _compactor_of(self, memory: Memory) -> Compactor | None:
        """Return the memory's compactor, which is read again only when it changes."""
        record = memory.manifest.artefacts.get(COMPACTOR_ARTEFACT)
        if self._compactor[0] != record or (record is None) != (self._compactor[1] is None):
            found = compactor_of(memory)
            self._compactor = (record, None if found is None else found.to(self._model.device))
        return self._compactor[1]


def _find_known(memory: Memory, texts: Iterable[tuple[str, str]], removed: Sequence[int]) -> dict[tuple[str, str], int]:
    """Return the ids of the pairs with these texts in the memory, without those that are to be removed."""
    found = {text: [id for id in memory.find(*text) if id not in removed] for text in dict.fromkeys(texts)}
    return {text: ids[0] for text, ids in found.items() if ids}


def _space(memory: Memory) -> tuple[object, ...]:
    """Return what identifies the space of the keys."""
    return memory.layout, memory.manifest.artefacts.get(COMPACTOR_ARTEFACT)


def _clean_pair(source: str, target: str, origin: str, location: int) -> Pair:
    """Make a pair as a corpus would; raise UsageError for an invalid text."""
    texts = join_lines(source), join_lines(target)
    for side, text in zip(("source", "target"), texts, strict=True):
        if not text:
            raise UsageError(f"The {side} of the pair is empty: give both sides.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"The {side} of the pair is not valid Unicode: remove the unpaired surrogate.") from None
    return Pair(*texts, origin, location)
