"""Copies of a memory in object storage, or on any other file system of fsspec.

    objects/HASH                files of segments and artefacts, and journals, by sha256
    states/000000000012.json    the view that the twelfth push published, with the sha256 of its journals

A push writes objects first, and then creates the next state, which fails if it exists. A killed push therefore leaves
objects that no state names, and of two pushes at the same time one fails. Nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory.files import BLOCK_BYTES, DamagedFile, blocks_of_file, prepare_file, sync_directory
from ibidem.memory.generations import MANIFEST
from ibidem.memory.journal import Journal, journal_path
from ibidem.memory.json_document import encode_document, has_valid_checksum, parse
from ibidem.memory.replica import ChangedSourceError
from ibidem.memory.view import decode_view, encode_view, files_of, read_bytes, read_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ibidem.memory.view import RecordedFile, View

_FORMAT = 1
_STATE = r"([0-9]{12})\.json"
_STATE_BYTES = 1 << 28
_ATTEMPTS = 20
# File systems whose mode "create" fails if the file exists, also when two processes create it at the same time.
_EXCLUSIVE = ("s3", "s3a", "gs", "gcs", "abfs", "az", "file", "local", "memory")


class LostRaceError(MemoryFolderError):
    """Raised when another process published a state first."""


@dataclass(frozen=True)
class Push:
    """A finished push.

    Attributes:
        number: The number of the state; that of the former one if nothing has changed.
        generation: The generation of the memory.
        uploaded: Files that were uploaded.
        bytes: Their bytes.
    """

    number: int
    generation: int
    uploaded: int
    bytes: int


@dataclass(frozen=True)
class _State:
    number: int
    view: View
    journals: dict[int, str]

    def objects(self) -> set[str]:
        return set(self.journals.values())


class Store:
    """A memory on a file system of fsspec; it is a source of replicas.

    Attributes:
        name: The URL, for messages.

    Raises:
        UsageError: The URL is unknown to fsspec, or a package for it is missing.

    Examples:
        >>> store = Store("memory://bucket/it")
        >>> store.name
        'memory://bucket/it'
    """

    def __init__(self, url: str, **options: Any) -> None:
        """Open the file system; nothing is read.

        Args:
            url: The folder of the copies, such as s3://bucket/memories/it.
            **options: Options of the file system, such as `endpoint_url` for S3.
        """
        try:
            import fsspec
        except ImportError as error:
            raise UsageError("Object storage needs fsspec: install it with pip install 'ibidem[store]'.") from error
        try:
            # Listings must not come from a cache: other processes publish states.
            self._files, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"{url} cannot be opened ({error}): install the package of its file system, for S3 with "
                "pip install 'ibidem[store]'."
            ) from error
        protocol = self._files.protocol
        self._protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self.name = url
        self._root = self._root.rstrip("/")
        self._read: _State | None = None

    def push(
        self, folder: Path, *, keep: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Push:
        """Upload what is new in a memory, and publish its current state.

        Args:
            folder: The folder of the memory; other processes may read and write it meanwhile.
            keep: The number of states to keep; older states and the files that only they need are deleted. None keeps
                all. No other process may push meanwhile.
            progress: Called with the bytes that are there and the total bytes.

        Returns:
            What was done.

        Raises:
            LostRaceError: Another process pushed at the same time.
            DamagedMemoryError: The memory is damaged; nothing was published.
            MemoryFolderError: The store cannot be reached, or has another or a newer memory.
            UsageError: The file system cannot create files exclusively.
        """
        if not self._protocols & set(_EXCLUSIVE):
            raise UsageError(
                f"{self.name} cannot create a file only if it is absent, so that two pushes could overwrite each "
                f"other: use one of {', '.join(_EXCLUSIVE)}."
            )
        with self._errors("write to"):
            for _ in range(_ATTEMPTS):
                former = self._newest()
                view = read_view(folder)
                self._check_lineage(former, view)
                try:
                    return self._push(folder, view, former, keep, progress)
                except (MemoryFolderError, FileNotFoundError) as error:
                    # A writer may have committed since, and deleted files of the view.
                    gone = isinstance(error, FileNotFoundError | DamagedMemoryError)
                    if not gone or read_bytes(folder / MANIFEST) == view.content:
                        raise
            raise MemoryFolderError(f"{folder} changes faster than it can be pushed: run this again")

    def read_view(self, known: str) -> tuple[str, View] | None:
        """Return the newest view with the number of its state; None if `known` is that number.

        Args:
            known: The number that the caller has; empty for none.

        Raises:
            DamagedMemoryError: The state is damaged.
            MemoryFolderError: The store cannot be reached, or has no memory.
        """
        with self._errors("read"):
            numbers = self._numbers()
            if not numbers:
                raise MemoryFolderError(f"there is no memory at {self.name}: check the URL, or run `ibidem push` first")
            if str(numbers[-1]) == known:
                return None
            self._read = self._load(numbers[-1])
        return str(self._read.number), self._read.view

    @contextlib.contextmanager
    def open(self, file: RecordedFile, start: int, stop: int | None) -> Iterator[Iterator[bytes]]:
        """Open a file of the view that was read last.

        Args:
            file: The file.
            start: The first byte.
            stop: The byte after the last; None for all.

        Yields:
            The bytes in parts.

        Raises:
            ChangedSourceError: A push with `keep` deleted the file.
            MemoryFolderError: The store cannot be reached.
        """
        sha256 = file.sha256
        if not sha256 and self._read is not None:
            sha256 = self._read.journals[int(file.path.rpartition("/")[2].partition(".")[0])]
        try:
            with self._errors("read"), self._files.open(self._object(sha256), "rb", cache_type="readahead") as opened:
                opened.seek(start)
                yield _parts(opened, None if stop is None else stop - start)
        except FileNotFoundError as error:
            raise ChangedSourceError(f"{self.name} has no file {sha256[:12]} any more") from error

    def _push(
        self,
        folder: Path,
        view: View,
        former: _State | None,
        keep: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> Push:
        files = {file.sha256: (folder / file.path, file.size) for file in files_of(folder, view)}
        journals: dict[int, str] = {}
        contents: dict[str, bytes] = {}
        for number, end in view.ends.journals.items():
            path = journal_path(folder, number)
            content = read_bytes(path)[: end.bytes]
            Journal(path).read(end, uncommitted=False)
            journals[number] = hashlib.sha256(content).hexdigest()
            contents[journals[number]] = content
        if former is not None and encode_view(former.view) == encode_view(view):
            return Push(former.number, view.manifest.generation, 0, 0)
        there = self._sizes()
        total = sum(size or 0 for _, size in files.values()) + sum(map(len, contents.values()))
        uploaded = sent = done = 0
        for sha256, (path, size) in files.items():
            length = path.stat().st_size if size is None else size
            if there.get(sha256) != length:
                self._upload(path, sha256)
                uploaded, sent = uploaded + 1, sent + length
            done += length
            if progress is not None:
                progress(done, max(total, done))
        for sha256, content in contents.items():
            if there.get(sha256) != len(content):
                self._files.pipe_file(self._object(sha256), content)
                uploaded, sent = uploaded + 1, sent + len(content)
        number = 1 if former is None else former.number + 1
        document = {
            "format": _FORMAT,
            "view": encode_view(view).decode("utf-8"),
            "journals": {str(name): sha256 for name, sha256 in journals.items()},
            "objects": sorted({*files, *contents}),
        }
        self._create(number, encode_document(document, "the state"))
        if keep is not None:
            self._remove_old(number, keep)
        return Push(number, view.manifest.generation, uploaded, sent)

    def _check_lineage(self, former: _State | None, view: View) -> None:
        if former is None:
            return
        stored, new = former.view.manifest, view.manifest
        if (stored.created, stored.identity) != (new.created, new.identity):
            raise MemoryFolderError(f"{self.name} has another memory, made on {stored.created}: push to another URL")
        if stored.generation > new.generation:
            raise MemoryFolderError(
                f"{self.name} has generation {stored.generation}, and the memory has {new.generation}: pull the newer "
                "one, or push to another URL"
            )

    def _upload(self, path: Path, sha256: str) -> None:
        """Upload a file after its bytes were compared with its record."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for block in blocks_of_file(file):
                digest.update(block)
        if digest.hexdigest() != sha256:
            raise DamagedFile(path, "its sha256 is not the one recorded")
        self._files.put_file(str(path), self._object(sha256))

    def _create(self, number: int, content: bytes) -> None:
        """Create a state; it must not exist."""
        path = self._state(number)
        self._files.makedirs(f"{self._root}/states", exist_ok=True)
        try:
            if self._protocols & {"file", "local"}:
                _create_local(path, content)
            elif "memory" in self._protocols:
                with _IN_MEMORY:
                    if self._files.exists(path):
                        raise FileExistsError(path)
                    self._files.pipe_file(path, content)
            else:
                self._files.pipe_file(path, content, mode="create")
        except Exception as error:
            if not _is_conflict(error):
                raise
            raise LostRaceError(
                f"another process pushed to {self.name} at the same time: nothing was published; run this again"
            ) from error

    def _numbers(self) -> list[int]:
        try:
            listed = self._files.ls(f"{self._root}/states", detail=False, refresh=True)
        except FileNotFoundError:
            return []
        except TypeError:  # file systems without a cache have no `refresh`
            listed = self._files.ls(f"{self._root}/states", detail=False)
        found = (re.fullmatch(_STATE, str(path).rpartition("/")[2]) for path in listed)
        return sorted(int(match[1]) for match in found if match)

    def _newest(self) -> _State | None:
        numbers = self._numbers()
        return self._load(numbers[-1]) if numbers else None

    def _load(self, number: int) -> _State:
        path = self._state(number)
        place = Path(self.name.replace("://", "_"), "states", path.rpartition("/")[2])
        with self._files.open(path, "rb") as file:
            content = file.read(_STATE_BYTES)
        if not has_valid_checksum(content):
            raise DamagedFile(place, "its checksum does not match its content", "delete it to use the state before")
        fields = parse(content, place)
        if (found := fields.integer("format", 1)) > _FORMAT:
            raise MemoryFolderError(f"{place} was written by a newer ibidem (format {found}): upgrade ibidem")
        view = decode_view(fields.text("view").encode("utf-8"), place)
        stored = fields.fields("journals")
        return _State(number, view, {name: stored.sha256(str(name)) for name in view.ends.journals})

    def _sizes(self) -> dict[str, int]:
        """Return the size of each object that is there."""
        try:
            found = self._files.find(f"{self._root}/objects", detail=True)
        except FileNotFoundError:
            return {}
        return {str(path).rpartition("/")[2]: int(info["size"]) for path, info in found.items()}

    def _remove_old(self, newest: int, keep: int) -> None:
        numbers = self._numbers()
        kept, old = [n for n in numbers if n > newest - keep], [n for n in numbers if n <= newest - keep]
        needed = set().union(*(self._objects_of(number) for number in kept))
        unneeded = set().union(*(self._objects_of(number) for number in old)) - needed
        for number in old:
            self._files.rm_file(self._state(number))
        for sha256 in unneeded:
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._object(sha256))

    def _objects_of(self, number: int) -> set[str]:
        document = json.loads(self._files.cat_file(self._state(number)))
        return {str(sha256) for sha256 in document["objects"]}

    def _object(self, sha256: str) -> str:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise MemoryFolderError(f"{sha256[:80]!r} is not a sha256")
        return f"{self._root}/objects/{sha256}"

    def _state(self, number: int) -> str:
        return f"{self._root}/states/{number:012d}.json"

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Convert errors of the file system to messages."""
        try:
            yield
        except (MemoryFolderError, UsageError, FileNotFoundError):
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _STORE_MODULES and not isinstance(error, OSError):
                raise
            raise MemoryFolderError(f"cannot {action} {self.name}: {error}") from error


_IN_MEMORY = threading.Lock()
_STORE_MODULES = ("s3fs", "botocore", "aiobotocore", "aiohttp", "fsspec", "gcsfs", "adlfs", "azure", "asyncio")


def _create_local(path: str, content: bytes) -> None:
    """Create a file with its whole content, unless it exists."""
    target = Path(path)
    temporary, _ = prepare_file(target, content)
    try:
        target.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


def _is_conflict(error: BaseException | None) -> bool:
    """Return whether an error says that a file exists or that another process creates it."""
    while error is not None:
        code = getattr(error, "response", {}).get("Error", {}).get("Code", "") if hasattr(error, "response") else ""
        if isinstance(error, FileExistsError) or code in ("PreconditionFailed", "ConditionalRequestConflict", "412"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _parts(file: Any, most: int | None) -> Iterator[bytes]:
    while most is None or most > 0:
        part = file.read(BLOCK_BYTES if most is None else min(most, BLOCK_BYTES))
        if not part:
            return
        if most is not None:
            most -= len(part)
        yield part
