"""Writing into the memories of a server while it translates."""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import IbidemError, LockedMemoryError, UsageError
from ibidem.learn import MemoryWriter
from ibidem.progress import Progress, silent
from ibidem.serve.citations import file_name
from ibidem.serve.refusal import Refusal
from ibidem.serve.schemas import MemoryInfo
from ibidem.text import Counts, Pair, join_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ibidem.decode import LoadedMemory
    from ibidem.memory import Memory, StoredPair
    from ibidem.model import BaseModel

logger = logging.getLogger("ibidem.serve")

_PATIENCE = 5.0


class Written(NamedTuple):
    """The ids of pairs that are new in a memory, and of those that it had already; how many were left out.

    replaced: pairs whose place the new ones took.
    """

    added: list[int]
    known: list[int]
    left_out: int = 0
    replaced: Sequence[StoredPair] = ()


class Registrar:
    """Adds to memories and removes from them; what a call has written, the next batch uses. Any thread may call it.

    Sealing journals and merging indexes is done in a thread of its own, while translating goes on.
    """

    def __init__(self, model: BaseModel, mounts: Mapping[str, LoadedMemory], *, read_only: bool = False) -> None:
        self._mounts = mounts
        self._scribes = {
            name: MemoryWriter(mount.memory, model, patience=_PATIENCE)
            for name, mount in mounts.items()
            if not read_only
        }
        self._maintenance = ThreadPoolExecutor(1, "ibidem-maintenance")
        self._due: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The memories that can be written to, as they were given."""
        return list(self._scribes)

    def list_memories(self) -> list[MemoryInfo]:
        """All memories as they are now."""
        return [
            self._describe(name, self._scribes[name].memory if name in self._scribes else mount.memory)
            for name, mount in self._mounts.items()
        ]

    def add_texts(self, name: str, texts: Sequence[tuple[str, str]], origin: str) -> Written:
        """Add some pairs at once; refuses them where none can be learnt."""
        pairs = [Pair(join_lines(source), join_lines(target), origin, 0) for source, target in texts]
        counts = Counts()
        written = self.add(name, _full(pairs, counts), counts)
        if not written.added and not written.known:
            raise Refusal(400, "The pair is empty, or longer than the model reads: send it in parts.")
        return written

    def correct(self, name: str, texts: Sequence[tuple[str, str]], origin: str) -> Written:
        """Put pairs in the place of all others of the same source; all or none."""
        with self._writing(name) as scribe:
            found = scribe.correct(texts, origin=origin)
        return Written(
            [one.id for one in found if one.new],
            [one.id for one in found if not one.new],
            replaced=[pair for one in found for pair in one.replaced],
        )

    def add(self, name: str, pairs: Iterable[Pair], counts: Counts, progress: Progress = silent) -> Written:
        """Add pairs; those that the model cannot read whole are left out and counted."""
        with self._writing(name) as scribe:
            found = scribe.add(pairs, counts, progress)
        return Written(
            [one.id for one in found if one.new],
            [one.id for one in found if not one.new],
            sum(counts.dropped.values()),
        )

    def remove(self, name: str, ids: Sequence[int]) -> list[int]:
        """Remove pairs by their ids, all or none."""
        with self._writing(name) as scribe:
            return scribe.remove(list(dict.fromkeys(ids)))

    def remove_pair(self, name: str, source: str, target: str) -> list[int]:
        """Remove pairs by both texts."""
        with self._writing(name) as scribe:
            return scribe.remove_pair(source, target)

    def remove_origin(self, name: str, origin: str) -> list[int]:
        """Remove pairs by the name of the file that they came from, as citations show it."""
        with self._writing(name) as scribe:
            memory = scribe.memory
            known = {*memory.manifest.origins, *(name for data in memory.tail.added for name in data.origins)}
            meant = [full for full in known if file_name(full) == origin]
            ids = sorted(id for full in meant for id in memory.find_origin(full))
            if not ids:
                raise UsageError(f"There is no pair of the origin {origin[:60]}.")
            return scribe.remove(ids)

    def close(self) -> None:
        """Wait for maintenance that has begun."""
        self._maintenance.shutdown(wait=True, cancel_futures=True)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[MemoryWriter]:
        """The scribe of a memory; what is wrong is told without naming a folder."""
        if name not in self._mounts:
            raise Refusal(404, f"There is no memory {name[:40]}")
        if name not in self._scribes:
            raise Refusal(403, "This server does not learn.")
        scribe = self._scribes[name]
        try:
            yield scribe
        except LockedMemoryError:
            raise Refusal(503, "Another program is writing to the memory: try again.", retry_after=2) from None
        except UsageError as error:
            raise Refusal(400, str(error).replace(str(scribe.memory.path), name)) from None
        self._maintain_later(name)

    def _maintain_later(self, name: str) -> None:
        """Look after a memory in the background; once is enough for all that waits."""
        if name not in self._due:
            self._due.add(name)
            with contextlib.suppress(RuntimeError):  # it is being closed
                self._maintenance.submit(self._maintain, name)

    def _maintain(self, name: str) -> None:
        self._due.discard(name)
        before = self._scribes[name].memory
        try:
            after = self._scribes[name].maintain()
            if after.generation != before.generation:
                self._mounts[name].reload()
        except IbidemError as error:
            logger.warning("The memory %s was not merged: %s", name, error)

    def _describe(self, name: str, memory: Memory) -> MemoryInfo:
        return MemoryInfo(
            name=name,
            pairs=memory.living_pairs,
            entries=memory.entries - len(memory.hidden_entries()) + int(memory.tail.alive_entries.sum()),
            weight=self._mounts[name].share,
            learns=name in self._scribes,
        )


def _full(pairs: Iterable[Pair], counts: Counts) -> Iterator[Pair]:
    """The pairs of which no side is empty, counted."""
    for pair in pairs:
        if pair.source and pair.target:
            counts.keep()
            yield pair
        else:
            counts.drop("empty")
