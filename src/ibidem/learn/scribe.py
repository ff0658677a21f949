"""A living memory: pairs added, removed and replaced one by one, and used by the very next sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.compact import compact_keys
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.chunks import Chunk, cut_chunks
from ibidem.learn.extraction import STAGE, extract_chunk, identify
from ibidem.learn.maintenance import maintain
from ibidem.memory import Memory, check_complete, check_identity, remove_pairs
from ibidem.progress import Progress, silent
from ibidem.retrieve import ArrayKeys, compactor_of
from ibidem.text import Counts, Pair, join_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike

    from ibidem.compact import Compactor
    from ibidem.memory import SegmentData, StoredPair
    from ibidem.model import BaseModel

BY_HAND = "by hand"
# What is computed and committed at once when many pairs are added.
_CHUNK_ENTRIES = 4096
_BATCH_TOKENS = 4096


class Added(NamedTuple):
    """The id of a pair in the memory, and whether it is new: one that was there already is not stored again."""

    id: int
    new: bool


class Correction(NamedTuple):
    """The id of a pair, whether it is new, and the pairs whose place it took."""

    id: int
    new: bool
    replaced: list[StoredPair]


def create_memory(path: str | PathLike[str], model: BaseModel, *, seed: int = 0) -> Memory:
    """An empty memory for pairs of this model; it can be used from the first one on."""
    notes = {"corpus": "pairs added one by one", "special_tokens": model.tokens.special_ids()}
    return Memory.create(path, identify(model), seed=seed, stages={STAGE: notes}, complete=True)


def _open_or_create(path: Path, model: BaseModel) -> Memory:
    """The memory at a path; one is made if there is none, unless another process is faster."""
    if not Memory.exists(path):
        try:
            return create_memory(path, model)
        except MemoryFolderError:
            if not Memory.exists(path):
                raise
    return Memory.open(path)


class MemoryWriter:
    """Writes into a memory: a change is on disk when its call returns, and translators use it from their next batch on.

    Any number of threads and processes may write: each waits for the others for up to `patience` seconds, and raises
    LockedMemoryError then. The model may be in use by a translator meanwhile.

    >>> scribe = Scribe("memories/mine", translator.model)                      # doctest: +SKIP
    >>> scribe.add_pair("Der Mandant wurde gelöscht.", "The tenant was deleted.")  # doctest: +SKIP
    Added(id=0, new=True)
    """

    def __init__(self, memory: Memory | str | PathLike[str], model: BaseModel, *, patience: float = 10.0) -> None:
        """`memory` is a memory, or a folder; where there is none yet, one is created."""
        if not isinstance(memory, Memory):
            memory = _open_or_create(Path(memory), model)
        check_identity(memory, model)
        self._memory = memory
        self._model = model
        self._patience = patience
        self._compactor: tuple[object, Compactor | None] = (None, None)

    @property
    def model(self) -> BaseModel:
        """The base model of the memory."""
        return self._model

    @property
    def memory(self) -> Memory:
        """The newest state of the memory."""
        self._memory = self._memory.held()
        return self._memory

    def add_pair(self, source: str, target: str, *, origin: str = BY_HAND, location: int = 0) -> Added:
        """Add one pair; raises UsageError for one that is empty, or that the model cannot read whole."""
        return self._add_chunk(self._chunk_of(_clean_pair(source, target, origin, location)))[0]

    def correct(self, pairs: Iterable[tuple[str, str]], *, origin: str = BY_HAND) -> list[Correction]:
        """Put each pair in the place of all others of the same source, as translation memories do.

        Two translations of one sentence contradict each other, and neither would be used. Raises UsageError, and
        changes nothing, where a pair is empty or longer than the model reads.
        """
        chunks = [self._chunk_of(_clean_pair(source, target, origin, 0)) for source, target in pairs]
        return [self._correct(chunk) for chunk in chunks]

    def add(self, pairs: Iterable[Pair], counts: Counts | None = None, progress: Progress = silent) -> list[Added]:
        """Add pairs, each some thousand tokens of them at once, and say of each in turn what came of it.

        Pairs that the model cannot read whole are left out, and counted in `counts`. Maintenance is done on the way.
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
        """Remove the pairs with these ids, all or none; raises UsageError for an id that there is not."""
        return remove_pairs(self._memory, ids=ids, patience=self._patience)

    def remove_pair(self, source: str, target: str) -> list[int]:
        """Remove every pair with these texts, and give their ids; raises UsageError if there is none."""
        texts = join_lines(source), join_lines(target)
        return remove_pairs(self._memory, texts=texts, patience=self._patience)

    def remove_origin(self, origin: str) -> list[int]:
        """Remove every pair that came from this origin, and give their ids; raises UsageError if there is none."""
        return remove_pairs(self._memory, origin=origin, patience=self._patience)

    def replace_pair(self, source: str, old_target: str, new_target: str) -> Added:
        """Put a new translation in the place of an old one, both at once; raises UsageError without an old one."""
        ids = self.memory.find(join_lines(source), join_lines(old_target))
        if not ids:
            raise UsageError(
                f"{self._memory.path} has no such pair ({source[:60]!r}, {old_target[:60]!r}): give both texts letter "
                "for letter."
            )
        return self._replace(ids, new_target)

    def replace(self, id: int, target: str) -> Added:
        """Put a new translation in the place of that of the pair with this id, both at once."""
        self.memory.number_of(id)
        return self._replace([id], target)

    def maintain(self, progress: Progress = silent) -> Memory:
        """Seal the journal and merge the index where that is due; a server runs this in the background."""
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
        """One pair with its tokens; raises UsageError where the model cannot read it whole."""
        tokens = self._model.tokens
        for chunk in cut_chunks([pair], tokens, _CHUNK_ENTRIES, Counts(read=1, kept=1)):
            return chunk
        raise UsageError(
            f"The pair is longer than the model reads ({tokens.longest_source} source and {tokens.longest_target} "
            "target tokens): add it in parts."
        )

    def _add_chunk(self, chunk: Chunk, outdated: Callable[[Memory], Sequence[int]] = lambda _: ()) -> list[Added]:
        """Add the pairs of a chunk that are not there yet, and remove those that are outdated, in one record."""
        texts = [(pair.source, pair.target) for pair in chunk.pairs]
        while True:
            memory = self.memory
            check_complete(memory)
            known = _known(memory, texts, outdated(memory))
            new = [i for i, text in enumerate(texts) if text not in known and text not in texts[:i]]
            data = self._compute(chunk, new, memory)
            with memory.writing(self._patience) as writer:
                removed = outdated(writer.memory)
                known = _known(writer.memory, texts, removed)
                computed = {texts[i] for i in new}
                # Else it was compacted meanwhile, and takes other keys, or a pair that was known was removed.
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
        """The entries of these pairs of a chunk in the memory's layout."""
        part = Chunk()
        for i in pairs:
            part.add(chunk.pairs[i], chunk.sources[i], chunk.targets[i])
        data = extract_chunk(self._model, part, _BATCH_TOKENS, lambda _: None)
        assert data.keys is not None
        compactor = self._compactor_of(memory)
        compact = None
        if compactor is not None:
            blocks = compact_keys(compactor, ArrayKeys(data.keys), device=self._model.device)
            compact = np.concatenate(list(blocks))
        return replace(data, keys=data.keys if memory.layout.keys else None, compact=compact)

    def _compactor_of(self, memory: Memory) -> Compactor | None:
        """The memory's compactor, read once as long as it stays the same."""
        record = memory.manifest.artefacts.get("compactor")
        if self._compactor[0] != record or (record is None) != (self._compactor[1] is None):
            found = compactor_of(memory)
            self._compactor = (record, None if found is None else found.to(self._model.device))
        return self._compactor[1]


def _known(memory: Memory, texts: Iterable[tuple[str, str]], removed: Sequence[int]) -> dict[tuple[str, str], int]:
    """The ids of the pairs with these texts that the memory has, those that are to be removed left out."""
    found = {text: [id for id in memory.find(*text) if id not in removed] for text in dict.fromkeys(texts)}
    return {text: ids[0] for text, ids in found.items() if ids}


def _space(memory: Memory) -> tuple[object, ...]:
    """What keys must belong to."""
    return memory.layout, memory.manifest.artefacts.get("compactor")


def _clean_pair(source: str, target: str, origin: str, location: int) -> Pair:
    """A pair as a corpus would give it; raises UsageError for what is no text."""
    texts = join_lines(source), join_lines(target)
    for side, text in zip(("source", "target"), texts, strict=True):
        if not text:
            raise UsageError(f"The {side} of the pair is empty: give both sides.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"The {side} of the pair is no valid Unicode: it has half of a character.") from None
    return Pair(*texts, origin, location)
