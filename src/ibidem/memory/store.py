"""Copies of a memory in object storage, or in a folder of another disk.

    objects/HASH                files of segments and artefacts, and journals, by sha256
    states/000000000012.json    the view that the twelfth push published, with the sha256 of its journals

A push writes objects first, and then creates the next state, which fails if it exists. A killed push therefore leaves
objects that no state names, and of two pushes at the same time one fails. Nothing is ever overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory.files import BLOCK_BYTES, DamagedFile, blocks_of_file
from ibidem.memory.generations import MANIFEST
from ibidem.memory.journal import Journal, journal_path
from ibidem.memory.json_document import encode_document, has_valid_checksum, parse
from ibidem.memory.replica import ChangedSourceError
from ibidem.memory.view import decode_view, encode_view, files_of, read_bytes, read_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

    from ibidem.memory.json_document import Fields
    from ibidem.memory.view import RecordedFile, View

_FORMAT = 1
_STATE = r"([0-9]{12})\.json"
_STATE_BYTES = 1 << 28
_ATTEMPTS = 20
_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file")


class LostRaceError(MemoryFolderError):
    """Raised when another process published a state first."""


@dataclass(frozen=True)
class Push:
    """A finished push.

    Attributes:
        number: The number of the state; that of the former one if nothing has changed.
        generation: The generation of the memory.
        uploaded: Files that were uploaded, because they are new or were missing in the storage.
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


class Store:
    """A memory in object storage; it is a source of replicas.

    Attributes:
        name: The URL, for messages.

    Examples:
        >>> Store("file:///backups/it").name  # doctest: +SKIP
        'file:///backups/it'
    """

    def __init__(self, url: str) -> None:
        """Open the storage; nothing is read.

        Credentials, region and endpoint come from the environment, as the tools of the storage read them: for S3
        AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, or the role of the machine.

        Args:
            url: The folder of the copies: s3://bucket/memories/it, gs://…, az://…, or a local path or file:// URL.

        Raises:
            UsageError: The URL is unknown, or the package obstore is missing.
        """
        try:
            import obstore
            import obstore.exceptions
            import obstore.store
        except ImportError as error:
            raise UsageError("Object storage needs obstore: install it with pip install 'ibidem[store]'.") from error
        self._api, self._failures = obstore, obstore.exceptions
        self.name = url
        local = Path(url.removeprefix("file://")) if url.startswith("file://") or "://" not in url else None
        self._store: ObjectStore
        try:
            if local is not None:
                self._store = obstore.store.LocalStore(local.absolute(), mkdir=True)
            else:
                scheme, _, rest = url.partition("://")
                if scheme not in _SCHEMES:
                    raise UsageError(f"Unknown storage {url!r}: give a folder or a URL with {', '.join(_SCHEMES)}.")
                plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
                self._store = obstore.store.from_url(
                    f"{scheme}://{rest.rstrip('/')}", client_options={"allow_http": True} if plain else None
                )
        except obstore.exceptions.BaseError as error:
            raise UsageError(f"{url} cannot be opened: {_first_line(error)}.") from error
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
        """
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
            if stop is not None and stop <= start:
                yield iter(())
                return
            options: GetOptions = {"range": {"offset": start} if stop is None else (start, stop)}
            with self._errors("read"):
                found = self._api.get(self._store, _object(sha256), options=options)
            yield self._parts(found)
        except FileNotFoundError as error:
            raise ChangedSourceError(f"{self.name} has no file {sha256[:12]} any more") from error

    def _parts(self, found: GetResult) -> Iterator[bytes]:
        with self._errors("read"):
            for part in found.stream(min_chunk_size=BLOCK_BYTES):
                yield bytes(part)

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
                self._api.put(self._store, _object(sha256), content)
                uploaded, sent = uploaded + 1, sent + len(content)
        if former is not None and encode_view(former.view) == encode_view(view):
            return Push(former.number, view.manifest.generation, uploaded, sent)
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
        self._api.put(self._store, _object(sha256), path)

    def _create(self, number: int, content: bytes) -> None:
        """Create a state; it must not exist."""
        try:
            self._api.put(self._store, _state(number), content, mode="create", use_multipart=False)
        except (self._failures.AlreadyExistsError, self._failures.PreconditionError) as error:
            raise LostRaceError(
                f"another process pushed to {self.name} at the same time: nothing was published; run this again"
            ) from error

    def _numbers(self) -> list[int]:
        found = (re.fullmatch(_STATE, path.rpartition("/")[2]) for path in self._list("states/"))
        return sorted(int(match[1]) for match in found if match)

    def _list(self, prefix: str) -> dict[str, int]:
        """Return path and size of all files under a prefix."""
        listed = self._api.list(self._store, prefix)
        return {str(found["path"]): int(found["size"]) for part in listed for found in part}

    def _newest(self) -> _State | None:
        numbers = self._numbers()
        return self._load(numbers[-1]) if numbers else None

    def _load(self, number: int) -> _State:
        fields = self._read_document(number)
        view = decode_view(fields.encoded("view"), fields.file)
        stored = fields.fields("journals")
        return _State(number, view, {name: stored.sha256(str(name)) for name in view.ends.journals})

    def _read_document(self, number: int) -> Fields:
        """Read the document of a state, and check its size, checksum and format."""
        place = Path(self.name.replace("://", "_"), _state(number))
        found = self._api.get(self._store, _state(number))
        if found.meta["size"] > _STATE_BYTES:
            raise DamagedFile(place, f"it has {found.meta['size']} bytes", "delete it to use the state before")
        content = bytes(found.bytes())
        if not has_valid_checksum(content):
            raise DamagedFile(place, "its checksum does not match its content", "delete it to use the state before")
        fields = parse(content, place)
        if (version := fields.integer("format", 1)) > _FORMAT:
            raise MemoryFolderError(f"{place} was written by a newer ibidem (format {version}): upgrade ibidem")
        return fields

    def _sizes(self) -> dict[str, int]:
        """Return the size of each object that is there."""
        return {path.rpartition("/")[2]: size for path, size in self._list("objects/").items()}

    def _remove_old(self, newest: int, keep: int) -> None:
        numbers = self._numbers()
        kept, old = [n for n in numbers if n > newest - keep], [n for n in numbers if n <= newest - keep]
        needed = set().union(*(self._objects_of(number) for number in kept))
        unneeded = set().union(*(self._objects_of(number) for number in old)) - needed
        for number in old:
            self._api.delete(self._store, _state(number))
        for sha256 in unneeded:
            with contextlib.suppress(FileNotFoundError):
                self._api.delete(self._store, _object(sha256))

    def _objects_of(self, number: int) -> set[str]:
        return set(self._read_document(number).texts("objects"))

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Convert errors of the file system to messages."""
        try:
            yield
        except (MemoryFolderError, UsageError, FileNotFoundError):
            raise
        except (OSError, self._failures.BaseError) as error:
            raise MemoryFolderError(f"cannot {action} {self.name}: {_first_line(error)}") from error


def _object(sha256: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise MemoryFolderError(f"{sha256[:80]!r} is not a sha256")
    return f"objects/{sha256}"


def _state(number: int) -> str:
    return f"states/{number:012d}.json"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
