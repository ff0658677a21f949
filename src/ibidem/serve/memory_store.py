"""The memories that clients create, in one folder of the server, and the trash of those that they delete.

A memory is the folder of its name. `server.json` in it has its owner and the rights of other keys. A deleted memory is
moved to a folder of its own in `.trash`, in one step: it is there or in its place after a kill or a power cut.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
import unicodedata
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from ibidem.decode import LoadedMemory
from ibidem.errors import IbidemError, LockedMemoryError, MemoryFolderError, UsageError
from ibidem.learn import create_memory
from ibidem.memory import Memory, make_directory, move_folder, remove_file, rename, replace_file
from ibidem.serve.http_error import HttpError, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ibidem.serve.engine import Engine, Pair
    from ibidem.serve.limits import Limits
    from ibidem.serve.memory_writer import MemoryWriters

logger = logging.getLogger("ibidem.serve")

Access = Literal["none", "read", "write"]
Rights = Literal["none", "read", "write", "manage"]

RIGHTS: tuple[Rights, ...] = ("none", "read", "write", "manage")
TRASH = ".trash"
_RECORD = "server.json"
_MAX_RECORD_BYTES = 1 << 14
_NEW, _GONE = ".new-", ".gone-"
_LOCK_SECONDS = 5.0
# Letters and digits of any script; no character with a meaning in paths, in `NAME:WEIGHT` or in lists of names.
_NAME = re.compile(r"[^\W_][\w .-]{0,62}[^\W]|[^\W_]")
_RESERVED = ("none", "trash")


@dataclass(frozen=True)
class MemoryRecord:
    """What the server stores about a memory that a client created.

    Attributes:
        owner: The owner of the key that created it, "" without keys.
        others: What other keys may do with it, within their scopes.
        name: Its name, if it is in the trash.
        deleted: When it was deleted, if it is in the trash: seconds since 1970.
    """

    owner: str = ""
    others: Access = "write"
    name: str = ""
    deleted: float = 0.0


@dataclass(frozen=True)
class Deleted:
    """A memory or a glossary in the trash.

    Attributes:
        id: Its id in the trash.
        kind: "memory" or "glossary".
        name: Its name.
        owner: The owner of the key that created it.
        deleted: When it was deleted.
        expires: When it is removed for good.
    """

    id: str
    kind: Literal["memory", "glossary"]
    name: str
    owner: str
    deleted: datetime
    expires: datetime


def check_name(name: str) -> str:
    """Return the normal form of a name for a memory.

    Args:
        name: The name that a client gives.

    Raises:
        HttpError: 400, the name is not usable as the name of a folder or in requests.

    Examples:
        >>> check_name(" Firma 2026 ")
        'Firma 2026'
    """
    found = unicodedata.normalize("NFC", " ".join(name.split()))
    if not _NAME.fullmatch(found) or len(found.encode("utf-8")) > 200 or found.casefold() in _RESERVED:
        raise HttpError(
            400, "Invalid name: use 1 to 64 letters, digits, spaces, dots, dashes or underscores; begin with a letter."
        )
    return found


class MemoryStore:
    """Creates, renames, deletes and restores memories while the server translates; any thread may call the methods.

    A change is on disk when its call returns. Several servers may use one folder; each loads what the others created
    when its memories are listed.

    Args:
        folder: The folder; None if clients cannot create memories.
        engine: Translates with the memories.
        writers: Changes the memories.
        limits: Limits on the number of memories and on the time in the trash.
        read_only: Whether all changes are refused.
        address: The address of the server that accepts them then; None if it is unknown.
        is_importing: Returns whether a file is being imported into a memory.
    """

    def __init__(
        self,
        folder: Path | None,
        engine: Engine,
        writers: MemoryWriters,
        limits: Limits,
        *,
        read_only: bool = False,
        address: str | None = None,
        is_importing: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._folder = folder
        self._engine = engine
        self._writers = writers
        self._limits = limits
        self._read_only = read_only
        self._address = address
        self._is_importing = is_importing
        self._lock = threading.RLock()
        self._records: dict[str, MemoryRecord] = {}
        self._refused: set[str] = set()
        self._seen: tuple[int, int] | None = None
        if folder is not None and not read_only:
            self._clean(folder)
        self.follow()

    @property
    def creates(self) -> bool:
        """Whether clients can create memories."""
        return self._folder is not None and not self._read_only

    def follow(self) -> bool:
        """Load memories that another server created, and forget those that it moved away; cheap without a change.

        Returns:
            Whether there was a memory to load or to forget.
        """
        if self._folder is None:
            return False
        changed = False
        try:
            status = self._folder.stat()
            stamp = status.st_ino, status.st_mtime_ns
            if stamp == self._seen:
                return False
            with self._lock:
                names = sorted(path.name for path in self._folder.iterdir() if _is_name(path.name))
                self._refused.intersection_update(names)
                for name in [known for known in self._records if known not in names]:
                    self._detach(name)
                    changed = True
                for name in names:
                    if name not in self._records and name not in self._refused and Memory.exists(self._folder / name):
                        self._load(name)
                        changed = True
                self._seen = stamp
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.error("The folder of memories %s cannot be read: %s", self._folder, error)
        return changed

    def rights(self, name: str, owner: str, scope: str, *, required: bool) -> Rights:
        """Return what a request may do with a memory.

        Args:
            name: Name of the memory.
            owner: The owner of the key of the request.
            scope: The scope of the key.
            required: Whether requests need a key; without keys every request has all rights.
        """
        record = self._records.get(name)
        most: Rights = "write" if record is None else "manage"
        if required and scope != "admin":
            if record is not None and record.owner not in ("", owner):
                most = record.others
            if scope != "write":
                most = min(most, "read", key=RIGHTS.index)
        return min(most, "read", key=RIGHTS.index) if self._read_only else most

    def others(self, name: str) -> Access | None:
        """Return what keys that did not create a memory may do with it; None for a memory of the operator.

        Args:
            name: Name of the memory.
        """
        record = self._records.get(name)
        return None if record is None else record.others

    def create(self, name: str, owner: str, others: Access = "write", pair: Pair | None = None) -> str:
        """Create an empty memory.

        Args:
            name: Its name.
            owner: The owner of the key that creates it; "" without keys.
            others: What other keys may do with it.
            pair: Its languages, one of the pairs of the server; None for the default pair.

        Returns:
            The normal form of the name.

        Raises:
            HttpError: 400, the name is invalid; 403, clients cannot create memories; 409, the name is taken; 413, there
                are too many memories.
        """
        folder, name = self._writable(), check_name(name)
        with self._lock:
            self._remove_expired()
            self._check_free(name)
            if len(self._records) + sum(1 for _ in self._deleted()) >= self._limits.stored_memories:
                raise HttpError(
                    413,
                    f"The server has {self._limits.stored_memories} memories, with those in the trash: remove one for "
                    "good.",
                )
            place = folder / (_NEW + secrets.token_hex(8))
            try:
                make_directory(folder)
                create_memory(place, self._engine.model_for(pair or self._engine.pairs[0]))
                _write_record(place, MemoryRecord(owner, others))
                move_folder(place, folder / name, _LOCK_SECONDS)
            except (IbidemError, OSError) as error:
                remove_file(place)
                raise _failure("created", error) from error
            self._load(name)
        return name

    def rename(self, name: str, new: str) -> str:
        """Rename a memory.

        Args:
            name: Its name.
            new: Its new name.

        Returns:
            The normal form of the new name.

        Raises:
            HttpError: 400, the name is invalid; 403, the memory is not one that clients create; 404, there is none;
                409, the name is taken, or a file is being imported.
        """
        folder, new = self._writable(), check_name(new)
        with self._lock:
            self._check_stored(name)
            if new == name:
                return name
            if new.casefold() != name.casefold():
                self._check_free(new)
            self._move(name, folder / new)
            self._load(new)
        return new

    def share(self, name: str, others: Access) -> None:
        """Set what keys that did not create a memory may do with it.

        Args:
            name: Its name.
            others: Their rights.

        Raises:
            HttpError: 403, the memory is not one that clients create; 404, there is none.
        """
        folder = self._writable()
        with self._lock:
            self._check_stored(name)
            record = replace(self._records[name], others=others)
            try:
                _write_record(folder / name, record)
            except OSError as error:
                raise _failure("changed", error) from error
            self._records[name] = record

    def delete(self, name: str) -> Deleted:
        """Move a memory to the trash.

        Args:
            name: Its name.

        Returns:
            The memory in the trash.

        Raises:
            HttpError: 403, the memory is not one that clients create; 404, there is none; 409, a file is being
                imported.
        """
        folder = self._writable()
        with self._lock:
            self._remove_expired()
            self._check_stored(name)
            record = replace(self._records[name], name=name, deleted=datetime.now(UTC).timestamp())
            id = secrets.token_hex(8)
            try:
                make_directory(folder / TRASH)
                # The date is ignored until the memory is in the trash.
                _write_record(folder / name, record)
            except OSError as error:
                raise _failure("deleted", error) from error
            self._move(name, folder / TRASH / id)
            return self._describe(id, record)

    def restore(self, id: str, new: str | None = None) -> str:
        """Move a memory from the trash to its place.

        Args:
            id: Its id in the trash.
            new: A new name; None for the name that it had.

        Returns:
            Its name.

        Raises:
            HttpError: 400, the name is invalid; 403, the server is read-only; 404, there is no such memory; 409, the
                name is taken.
        """
        folder = self._writable()
        with self._lock:
            record = self._find_deleted(id)
            name = check_name(record.name if new is None else new)
            self._check_free(name)
            try:
                move_folder(folder / TRASH / id, folder / name, _LOCK_SECONDS)
                _write_record(folder / name, replace(record, name="", deleted=0.0))
            except (IbidemError, OSError) as error:
                raise _failure("restored", error) from error
            self._load(name)
        return name

    def purge(self, id: str) -> None:
        """Remove a memory in the trash for good.

        Args:
            id: Its id in the trash.

        Raises:
            HttpError: 403, the server is read-only; 404, there is no such memory.
        """
        folder = self._writable()
        with self._lock:
            self._find_deleted(id)
            gone = folder / TRASH / (_GONE + id)
            try:
                rename(folder / TRASH / id, gone)  # half of a memory must not be restored
            except OSError as error:
                raise _failure("removed", error) from error
        remove_file(gone)

    def list_deleted(self) -> list[Deleted]:
        """Return the memories in the trash, newest first."""
        if not self._read_only:
            with self._lock:
                self._remove_expired()
        found = [self._describe(id, record) for id, record in self._deleted()]
        return sorted(found, key=lambda one: one.deleted, reverse=True)

    def _deleted(self) -> Iterator[tuple[str, MemoryRecord]]:
        if self._folder is None or not (self._folder / TRASH).is_dir():
            return
        for place in (self._folder / TRASH).iterdir():
            record = _read_record(place)
            if not place.name.startswith(".") and record is not None and record.name:
                yield place.name, record

    def _find_deleted(self, id: str) -> MemoryRecord:
        found = next((record for known, record in self._deleted() if known == id), None)
        if found is None:
            raise HttpError(404, "There is no such memory in the trash: it was restored or removed for good.")
        return found

    def _describe(self, id: str, record: MemoryRecord) -> Deleted:
        deleted = datetime.fromtimestamp(record.deleted, UTC)
        expires = deleted + timedelta(seconds=self._limits.trash_seconds)
        return Deleted(id, "memory", record.name, record.owner, deleted, expires)

    def _remove_expired(self) -> None:
        now = datetime.now(UTC)
        for id, record in list(self._deleted()):
            if self._describe(id, record).expires <= now:
                logger.info("The deleted memory %s is removed for good.", record.name)
                self.purge(id)

    def _writable(self) -> Path:
        if self._read_only:
            raise ReadOnlyError(self._address)
        if self._folder is None:
            raise HttpError(403, "Clients cannot manage memories here: start the server with --memories FOLDER.")
        return self._folder

    def _check_free(self, name: str) -> None:
        folder = self._writable()
        taken = {known.casefold() for known in self._engine.memories}
        if name.casefold() in taken or (folder / name).exists():
            raise HttpError(409, f"There is a memory {name} already: choose another name.")

    def _check_stored(self, name: str) -> None:
        if name not in self._engine.memories:
            raise HttpError(404, f"There is no memory {name[:40]}")
        if name not in self._records:
            raise HttpError(403, "The operator of the server gives this memory: it cannot be renamed or deleted here.")
        if self._is_importing(name):
            raise HttpError(409, "A file is being imported into this memory: wait for it, or cancel it.")

    def _move(self, name: str, target: Path) -> None:
        """Move the folder of a memory that no thread of this server uses any more."""
        folder = self._writable()
        loaded = self._engine.memories[name]
        self._writers.detach(name)
        try:
            self._engine.detach(name)
            try:
                move_folder(folder / name, target, _LOCK_SECONDS)
            except BaseException:
                self._engine.attach(name, loaded)
                raise
        except BaseException as error:
            self._writers.attach(name, loaded)
            if isinstance(error, IbidemError | OSError):
                raise _failure("moved", error) from error
            raise
        del self._records[name]

    def _detach(self, name: str) -> None:
        del self._records[name]
        try:
            self._writers.detach(name)
        except HttpError:
            logger.warning("The memory %s was moved away while it was being changed.", name)
        self._engine.detach(name)

    def _load(self, name: str) -> None:
        """Load a memory; one that cannot be used is reported and left alone."""
        folder = self._folder
        assert folder is not None
        if name in self._engine.memories:
            logger.warning("The memory %s has the name of another one: it is left out.", folder / name)
            self._refused.add(name)
            return
        try:
            memory = Memory.open(folder / name)
            loaded = LoadedMemory(memory, self._engine.model_of(memory))
            self._engine.attach(name, loaded)
            self._writers.attach(name, loaded)
        except IbidemError as error:
            logger.warning("The memory %s cannot be used: %s", folder / name, error)
            self._refused.add(name)
            return
        self._records[name] = _read_record(folder / name) or MemoryRecord()

    def _clean(self, folder: Path) -> None:
        """Remove what a killed server left: memories that were being created or removed for good."""
        if not folder.is_dir():
            return
        left = [*folder.glob(f"{_NEW}*"), *(folder / TRASH).glob(f"{_GONE}*")]
        for place in left:
            age = datetime.now(UTC).timestamp() - place.stat().st_mtime
            if place.name.startswith(_GONE) or age > 3_600:  # another server may be creating one
                remove_file(place)


def _is_name(name: str) -> bool:
    try:
        return check_name(name) == name
    except HttpError:
        return False


def _read_record(folder: Path) -> MemoryRecord | None:
    try:
        with (folder / _RECORD).open("rb") as file:
            found = json.loads(file.read(_MAX_RECORD_BYTES))
        others: Access = found["others"]
        if others not in RIGHTS[:3]:
            raise ValueError(others)
        return MemoryRecord(str(found["owner"]), others, str(found["name"]), float(found["deleted"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        logger.warning("%s is damaged: only keys with the scope admin can use the memory.", folder / _RECORD)
        return MemoryRecord("unknown", "none")


def _write_record(folder: Path, record: MemoryRecord) -> None:
    replace_file(folder / _RECORD, json.dumps(asdict(record)).encode("utf-8"))


def _failure(done: str, error: Exception) -> HttpError:
    """Convert an error of the disk to a message without paths."""
    if isinstance(error, LockedMemoryError):
        return HttpError(503, "Another program is writing to the memory: try again.", retry_after=2)
    if isinstance(error, MemoryFolderError) and "exists already" in str(error):
        return HttpError(409, "There is a memory of this name already: choose another name.")
    if isinstance(error, UsageError):
        return HttpError(400, "Invalid request for this memory.")
    logger.error("A memory could not be %s: %s", done, error)
    return HttpError(500, f"The memory could not be {done}: see the log of the server.")
