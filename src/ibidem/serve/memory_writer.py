"""Changes of the memories while the server translates."""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath, PureWindowsPath
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import IbidemError, LockedMemoryError, UsageError
from ibidem.learn import MemoryWriter
from ibidem.progress import Progress, silent
from ibidem.serve.http_error import HttpError
from ibidem.serve.schemas import MemoryInfo
from ibidem.text import Counts, Pair, join_lines, primary_language

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ibidem.decode import LoadedMemory
    from ibidem.memory import Memory, StoredPair
    from ibidem.model import BaseModel

logger = logging.getLogger("ibidem.serve")

_LOCK_SECONDS = 5.0


class Written(NamedTuple):
    """The result of adding pairs to a memory.

    Attributes:
        added: Ids of pairs that are new.
        known: Ids of pairs that the memory already had.
        left_out: Number of pairs that are empty or too long for the model.
        replaced: Pairs of the same source that were removed.
    """

    added: list[int]
    known: list[int]
    left_out: int = 0
    replaced: Sequence[StoredPair] = ()


class MemoryWriters:
    """Adds pairs to memories and removes them, by the names of the memories; any thread may call the methods.

    A change is on disk when its call returns, and the next batch uses it. A background thread seals journals and merges
    indexes.

    Args:
        models: The base models by the names of the memories; each computes the entries of new pairs.
        memories: The loaded memories by name.
        read_only: Whether all changes are refused.
    """

    def __init__(
        self, models: Mapping[str, BaseModel], memories: Mapping[str, LoadedMemory], *, read_only: bool = False
    ) -> None:
        self._models = models
        self._memories = memories
        self._writers = {
            name: MemoryWriter(loaded.memory, models[name], lock_timeout=_LOCK_SECONDS)
            for name, loaded in memories.items()
            if not read_only
        }
        self._maintenance = ThreadPoolExecutor(1, "ibidem-maintenance")
        self._due: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Names of the memories that can be changed, in their given order."""
        return list(self._writers)

    @property
    def folders(self) -> dict[str, Path]:
        """Folders of the memories that can be changed, by name."""
        return {name: writer.memory.path for name, writer in self._writers.items()}

    def list_memories(self) -> list[MemoryInfo]:
        """Describe the current state of all memories."""
        return [
            self._describe(name, self._writers[name].memory if name in self._writers else loaded.memory)
            for name, loaded in self._memories.items()
        ]

    def add_texts(self, name: str, texts: Sequence[tuple[str, str]], origin: str) -> Written:
        """Add a few pairs.

        Args:
            name: Name of the memory.
            texts: Sources and targets; line breaks become spaces.
            origin: Where the pairs come from, for citations.

        Returns:
            Ids of the new and the known pairs.

        Raises:
            HttpError: 400, all pairs are empty or too long; and the errors of all changes: 400, the change is invalid;
                403, the server is read-only; 404, there is no such memory; 503, another program holds the memory.
        """
        pairs = [Pair(join_lines(source), join_lines(target), origin, 0) for source, target in texts]
        counts = Counts()
        written = self.add(name, _skip_empty(pairs, counts), counts)
        if not written.added and not written.known:
            raise HttpError(400, "The pair is empty, or too long for the model: send it in parts.")
        return written

    def correct(self, name: str, texts: Sequence[tuple[str, str]], origin: str) -> Written:
        """Add pairs and remove all other pairs of the same sources; the change is applied as a whole or not at all.

        Args:
            name: Name of the memory.
            texts: Sources and targets.
            origin: Where the pairs come from, for citations.

        Returns:
            Ids of the new and the known pairs, and the removed pairs.

        Raises:
            HttpError: 400, the change is invalid; 403, the server is read-only; 404, there is no such memory; 503,
                another program holds the memory.
        """
        with self._open(name) as writer:
            found = writer.correct(texts, origin=origin)
        return Written(
            [one.id for one in found if one.new],
            [one.id for one in found if not one.new],
            replaced=[pair for one in found for pair in one.replaced],
        )

    def add(self, name: str, pairs: Iterable[Pair], counts: Counts, progress: Progress = silent) -> Written:
        """Add any number of pairs; pairs that are too long for the model are counted and skipped.

        Args:
            name: Name of the memory.
            pairs: The pairs; they are read while the memory learns.
            counts: Receives the number of pairs that were skipped.
            progress: Receives the number of learnt pairs; it may raise an exception to stop.

        Returns:
            Ids of the new and the known pairs, and the number of pairs that were left out.

        Raises:
            HttpError: 400, the change is invalid; 403, the server is read-only; 404, there is no such memory; 503,
                another program holds the memory.
        """
        with self._open(name) as writer:
            found = writer.add(pairs, counts, progress)
        return Written(
            [one.id for one in found if one.new],
            [one.id for one in found if not one.new],
            sum(counts.dropped.values()),
        )

    def remove(self, name: str, ids: Sequence[int]) -> list[int]:
        """Remove pairs by id, all or none.

        Args:
            name: Name of the memory.
            ids: Ids of pairs; repeated ones count once.

        Returns:
            The ids of the removed pairs.

        Raises:
            HttpError: 400, the change is invalid; 403, the server is read-only; 404, there is no such memory; 503,
                another program holds the memory.
        """
        with self._open(name) as writer:
            return writer.remove(list(dict.fromkeys(ids)))

    def remove_pair(self, name: str, source: str, target: str) -> list[int]:
        """Remove the pairs that have both texts.

        Args:
            name: Name of the memory.
            source: The source of the pairs.
            target: The target of the pairs.

        Returns:
            The ids of the removed pairs.

        Raises:
            HttpError: 400, the change is invalid; 403, the server is read-only; 404, there is no such memory; 503,
                another program holds the memory.
        """
        with self._open(name) as writer:
            return writer.remove_pair(source, target)

    def remove_origin(self, name: str, origin: str) -> list[int]:
        """Remove the pairs of an origin.

        Args:
            name: Name of the memory.
            origin: The origin without its folders, as `file_name` shows it.

        Returns:
            The ids of the removed pairs.

        Raises:
            HttpError: 400, there is no pair of this origin; 403, the server is read-only; 404, there is no such memory;
                503, another program holds the memory.
        """
        with self._open(name) as writer:
            memory = writer.memory
            known = {*memory.manifest.origins, *(name for data in memory.tail.added for name in data.origins)}
            matching = [full for full in known if file_name(full) == origin]
            ids = sorted(id for full in matching for id in memory.find_origin(full))
            if not ids:
                raise UsageError(f"There is no pair of the origin {origin[:60]}.")
            return writer.remove(ids)

    def close(self) -> None:
        """Wait for maintenance that is running."""
        self._maintenance.shutdown(wait=True, cancel_futures=True)

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[MemoryWriter]:
        """Provide the writer of a memory, and convert its errors to messages without the memory's folder."""
        if name not in self._memories:
            raise HttpError(404, f"There is no memory {name[:40]}")
        if name not in self._writers:
            raise HttpError(403, "This server is read-only.")
        writer = self._writers[name]
        try:
            yield writer
        except LockedMemoryError:
            raise HttpError(503, "Another program is writing to the memory: try again.", retry_after=2) from None
        except UsageError as error:
            raise HttpError(400, str(error).replace(str(writer.memory.path), name)) from None
        self._schedule_maintenance(name)

    def _schedule_maintenance(self, name: str) -> None:
        """Maintain a memory in the background; one run is enough for all changes before it."""
        if name not in self._due:
            self._due.add(name)
            with contextlib.suppress(RuntimeError):  # the pool was shut down
                self._maintenance.submit(self._maintain, name)

    def _maintain(self, name: str) -> None:
        self._due.discard(name)
        before = self._writers[name].memory
        try:
            after = self._writers[name].maintain()
            if after.generation != before.generation:
                self._memories[name].reload()
        except IbidemError as error:
            logger.warning("The memory %s was not merged: %s", name, error)

    def _describe(self, name: str, memory: Memory) -> MemoryInfo:
        return MemoryInfo(
            name=name,
            pairs=memory.active_pairs,
            entries=memory.entries - len(memory.excluded_entries()) + int(memory.tail.active_entries.sum()),
            weight=self._memories[name].weight,
            learns=name in self._writers,
            source=self._languages(name)[0],
            target=self._languages(name)[1],
        )

    def _languages(self, name: str) -> tuple[str, str]:
        tokens = self._models[name].tokens
        return primary_language(tokens.source_language or ""), primary_language(tokens.target_language or "")


def file_name(origin: str) -> str:
    r"""Return the last part of a path, so that clients do not see the folders of the server.

    Args:
        origin: A path of Linux or Windows, or any other text.

    Examples:
        >>> file_name("/srv/data/it.tmx"), file_name("C:\\data\\it.tmx")
        ('it.tmx', 'it.tmx')
    """
    return PureWindowsPath(PurePath(origin).name).name


def _skip_empty(pairs: Iterable[Pair], counts: Counts) -> Iterator[Pair]:
    """Yield the pairs without an empty side, and count all."""
    for pair in pairs:
        if pair.source and pair.target:
            counts.keep()
            yield pair
        else:
            counts.drop("empty")
