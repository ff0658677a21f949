"""Changes of the memories while the server translates."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath, PureWindowsPath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import IbidemError, LockedMemoryError, MemoryFolderError, UsageError
from ibidem.learn import MemoryWriter
from ibidem.memory import MANIFEST
from ibidem.progress import Progress, silent
from ibidem.serve.http_error import HttpError, ReadOnlyError
from ibidem.serve.schemas import MemoryInfo
from ibidem.text import Counts, Pair, join_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ibidem.decode import LoadedMemory
    from ibidem.memory import Memory, StoredPair
    from ibidem.model import BaseModel

logger = logging.getLogger("ibidem.serve")

_LOCK_SECONDS = 5.0
_DETACH_SECONDS = 10.0


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
        model_of: Returns the base model of a memory, which computes the entries of new pairs.
        memories: The loaded memories by name.
        read_only: Whether all changes are refused.
        address: The address of the server that accepts them then; None if it is unknown.
    """

    def __init__(
        self,
        model_of: Callable[[Memory], BaseModel],
        memories: Mapping[str, LoadedMemory],
        *,
        read_only: bool = False,
        address: str | None = None,
    ) -> None:
        self._model_of = model_of
        self._read_only = read_only
        self._address = address
        self._memories: dict[str, LoadedMemory] = {}
        self._writers: dict[str, MemoryWriter] = {}
        self._folders: dict[str, Path] = {}
        self._in_use: Counter[str] = Counter()
        self._free = threading.Condition()
        for name, loaded in memories.items():
            self.attach(name, loaded)
        self._maintenance = ThreadPoolExecutor(1, "ibidem-maintenance")
        self._due: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Names of the memories that can be changed, in their given order."""
        return list(self._writers)

    @property
    def folders(self) -> Mapping[str, Path]:
        """Folders of the memories that can be changed, by name; the mapping follows later changes."""
        return MappingProxyType(self._folders)

    def attach(self, name: str, loaded: LoadedMemory) -> None:
        """Add a memory.

        Args:
            name: Its name.
            loaded: The memory.
        """
        writer = (
            None
            if self._read_only
            else MemoryWriter(loaded.memory, self._model_of(loaded.memory), lock_timeout=_LOCK_SECONDS)
        )
        with self._free:
            self._memories = {**self._memories, name: loaded}  # other threads iterate over the old dictionaries
            if writer is not None:
                self._writers = {**self._writers, name: writer}
                self._folders[name] = loaded.memory.path

    def detach(self, name: str) -> None:
        """Remove a memory, and wait for its changes in progress, so that its folder can be moved afterwards.

        Args:
            name: Its name.

        Raises:
            HttpError: 409, a change takes too long; the memory stays.
        """
        with self._free:
            before = self._memories, self._writers, dict(self._folders)
            self._memories = {known: loaded for known, loaded in self._memories.items() if known != name}
            self._writers = {known: writer for known, writer in self._writers.items() if known != name}
            self._folders.pop(name, None)
            if not self._free.wait_for(lambda: not self._in_use[name], _DETACH_SECONDS):
                self._memories, self._writers = before[0], before[1]
                self._folders.update(before[2])
                raise HttpError(409, f"The memory {name} is being changed: try again later.", retry_after=10)
            del self._in_use[name]

    def newest(self, name: str) -> Memory:
        """Return the newest state of a memory.

        Args:
            name: Its name.

        Raises:
            HttpError: 404, there is no such memory.
        """
        memories, writers = self._memories, self._writers
        if name not in memories:
            raise HttpError(404, f"There is no memory {name[:40]}")
        return writers[name].memory if name in writers else memories[name].memory.refresh()

    def check_writable(self, name: str) -> None:
        """Check that a memory exists and can be changed.

        Args:
            name: Name of the memory.

        Raises:
            HttpError: 403, the server is read-only; 404, there is no such memory, or its folder is gone.
        """
        if name not in self._memories:
            raise HttpError(404, f"There is no memory {name[:40]}")
        if name not in self._writers:
            raise ReadOnlyError(self._address)
        if not (self._memories[name].memory.path / MANIFEST).exists():
            raise HttpError(404, f"The folder of the memory {name[:40]} is gone: put it back, or restart the server")

    def list_memories(self) -> list[MemoryInfo]:
        """Describe the current state of all memories."""
        found = []
        for name, loaded in self._memories.items():
            try:
                found.append(self._describe(name, self.newest(name), loaded.weight))
            except (HttpError, MemoryFolderError):
                if name in self._memories:  # else it was renamed or deleted meanwhile
                    raise
        return found

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
        with self._free:
            self.check_writable(name)
            writer = self._writers[name]
            self._in_use[name] += 1
        try:
            yield writer
        except LockedMemoryError:
            raise HttpError(503, "Another program is writing to the memory: try again.", retry_after=2) from None
        except UsageError as error:
            raise HttpError(400, str(error).replace(str(writer.memory.path), name)) from None
        finally:
            self._release(name)
        self._schedule_maintenance(name)

    def _release(self, name: str) -> None:
        with self._free:
            self._in_use[name] -= 1
            self._free.notify_all()

    def _schedule_maintenance(self, name: str) -> None:
        """Maintain a memory in the background; one run is enough for all changes before it."""
        if name not in self._due:
            self._due.add(name)
            with contextlib.suppress(RuntimeError):  # the pool was shut down
                self._maintenance.submit(self._maintain, name)

    def _maintain(self, name: str) -> None:
        self._due.discard(name)
        with self._free:
            if name not in self._writers:  # it was renamed or deleted
                return
            writer, loaded = self._writers[name], self._memories[name]
            self._in_use[name] += 1
        try:
            before = writer.memory
            after = writer.maintain()
            if after.generation != before.generation:
                loaded.reload()
        except IbidemError as error:
            logger.warning("The memory %s was not merged: %s", name, error)
        finally:
            self._release(name)

    def _describe(self, name: str, memory: Memory, weight: float) -> MemoryInfo:
        return MemoryInfo(
            name=name,
            pairs=memory.active_pairs,
            entries=memory.entries - len(memory.excluded_entries()) + int(memory.tail.active_entries.sum()),
            weight=weight,
            learns=name in self._writers,
        )


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
