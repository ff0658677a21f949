"""A replica: a local copy of a memory that follows its source, such as a server or object storage.

The folder of a replica is a symbolic link to one complete state, which is replaced by one rename. A process that opens
the folder reads the former state or the new one, and a replica that is killed leaves no other.

    it -> .it.copies/states/7c0f…        the current state, as a memory
    .it.copies/objects/HASH              verified files of segments and artefacts, by sha256; HASH.part is incomplete
    .it.copies/sets/HASH/                segments, artefacts and snapshots of one manifest, as links to objects
    .it.copies/states/HASH/              manifest and journals, and links to the set
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory.files import (
    BLOCK_BYTES,
    TEMPORARY,
    DamagedFile,
    blocks_of_file,
    link_file,
    make_directory,
    remove_file,
    replace_file,
    sync_directory,
    temporary_path,
)
from ibidem.memory.generations import ARTEFACTS, MANIFEST, PREVIOUS, SEGMENTS, SNAPSHOTS
from ibidem.memory.journal import ENDS, JOURNALS, End, Journal, encode_ends, journal_path
from ibidem.memory.lock import FOLLOWED, writer_lock
from ibidem.memory.segment import RECORD
from ibidem.memory.view import CARD, RecordedFile, encode_view, files_of, read_view, segments_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from ibidem.memory.view import View

_OBJECTS, _SETS, _STATES = "objects", "sets", "states"
_PART = ".part"
# A segment.json has about 10 bytes for each MiB of its segment; its size is not recorded.
_RECORD_BYTES = 1 << 26
_FREE_BYTES = 1 << 26
_HASH = r"[0-9a-f]{64}"


class ChangedSourceError(MemoryFolderError):
    """Raised when a source has a newer state, and deleted a file of the former one: update again."""


class Source(Protocol):
    """Where a replica comes from.

    Attributes:
        name: The source in messages.
    """

    name: str

    def read_view(self, known: str) -> tuple[str, View] | None:
        """Return the current view with a tag that identifies it; None if `known` is its tag.

        Args:
            known: The tag of the view that the caller has; empty for none.
        """

    def open(self, file: RecordedFile, start: int, stop: int | None) -> AbstractContextManager[Iterable[bytes]]:
        """Open a file of the last view, and return its bytes in parts of any size.

        Args:
            file: The file. A journal has no sha256.
            start: The first byte.
            stop: The byte after the last; None for all.
        """


@dataclass
class Transfer:
    """What a replica has fetched since it was opened.

    Attributes:
        bytes: Bytes that were received.
        total: Bytes that the current update needs as far as known, including those that are there.
        done: Bytes of them that are there.
        refused: Files whose bytes did not match their checksum.
        updates: States that became current.
    """

    bytes: int = 0
    total: int = 0
    done: int = 0
    refused: int = 0
    updates: int = 0


@dataclass
class Replica:
    """A local copy of a memory that follows a source.

    One process at a time may update a replica; any number may read it. `update` is called again after an error: files
    that arrived are kept, and an incomplete one is continued.

    Attributes:
        folder: The folder of the memory: a link that `update` makes and replaces.
        source: The source.
        check: Called with each new view before anything is fetched; it raises an error to refuse it.
        interrupt: Called between parts of files; it raises an exception to end the update.
        transfer: What was fetched.

    Examples:
        >>> with Replica(Path("memories/it"), source) as replica:  # doctest: +SKIP
        ...     replica.update()
        True
    """

    folder: Path
    source: Source
    check: Callable[[View], None] = lambda _: None
    interrupt: Callable[[], None] = lambda: None
    transfer: Transfer = field(default_factory=Transfer)
    _tag: str = ""
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _open: bool = False

    def __post_init__(self) -> None:
        self.folder = Path(os.path.abspath(self.folder))  # noqa: PTH100 (a link must not be resolved)
        self._copies = self.folder.with_name(f".{self.folder.name}.copies")

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def exists(self) -> bool:
        """Whether there is a complete state."""
        return self.folder.is_symlink() and (self.folder / MANIFEST).is_file()

    def close(self) -> None:
        """Let other processes update the replica."""
        self._held.close()
        self._open = False

    def update(self) -> bool:
        """Fetch the current state of the source, verify it, and make it the state of the folder.

        Returns:
            Whether the state has changed.

        Raises:
            ChangedSourceError: The source changed while its files were fetched: call this again.
            DamagedMemoryError: Bytes that arrived do not match their checksums; they are not used.
            LockedMemoryError: Another process updates this replica.
            MemoryFolderError: The source cannot be reached, the disk is full, or the folder is not a replica.
        """
        self._prepare()
        found = self.source.read_view(self._tag)
        if found is None:
            return False
        tag, view = found
        self.check(view)
        try:
            installed = self._install(view)
        except OSError as error:
            raise MemoryFolderError(
                f"could not write the replica {self.folder}: {error.strerror or error}; its state stays as it was: "
                "free disk space or get write permission"
            ) from error
        self._tag = tag
        self.transfer.updates += installed
        return installed

    def _prepare(self) -> None:
        """Take the lock, and check that the folder may be replaced."""
        if self._open:
            return
        if not self.folder.is_symlink() and self.folder.exists():
            raise MemoryFolderError(
                f"{self.folder} is a memory or a folder of its own, and a replica would replace it: give a new folder"
            )
        try:
            for name in (_OBJECTS, _SETS, _STATES):
                make_directory(self._copies / name)
            self._held.enter_context(writer_lock(self._copies))
        except OSError as error:
            raise MemoryFolderError(f"cannot write to {self._copies}: {error.strerror}") from error
        self._open = True

    def _install(self, view: View) -> bool:
        name = hashlib.sha256(encode_view(view)).hexdigest()[:32]
        target = self._copies / _STATES / name
        known = self._known()
        if known is not None and self.folder.resolve() == target:
            return False
        files = self._fetch(view)
        manifests = self._build_set(view, files, known)
        self._build_state(view, target, manifests, known)
        link = temporary_path(self.folder)
        remove_file(link)
        link.symlink_to(Path(self._copies.name, _STATES, name))
        os.replace(link, self.folder)  # noqa: PTH105 (one name for tests to make fail)
        sync_directory(self.folder.parent)
        self._remove_unused({file.sha256 for file in files})
        return True

    def _known(self) -> View | None:
        """Return the view of the local state; None where there is none that can be read."""
        if not self.exists:
            return None
        try:
            return read_view(self.folder)
        except MemoryFolderError:
            return None

    def _fetch(self, view: View) -> list[RecordedFile]:
        """Fetch all files that are not there, and return all."""
        self.transfer.done = self.transfer.total = 0
        known: list[RecordedFile] = []
        # segment.json first: it has the sizes and checksums of the arrays.
        scratch = self._copies / (TEMPORARY + "records")
        remove_file(scratch)
        try:
            for name, (record, _) in segments_of(scratch, view).items():
                file = RecordedFile(f"{SEGMENTS}/{name}/{RECORD}", None, record.sha256)
                self._fetch_file(file)
                place = scratch / SEGMENTS / name
                place.mkdir(parents=True)
                link_file(self._object(file), place / RECORD)
            known = list(files_of(scratch, view))
        finally:
            remove_file(scratch)
        sizes = {file.sha256: file.size or 0 for file in known}
        there = {sha256 for sha256 in sizes if (self._copies / _OBJECTS / sha256).is_file()}
        self.transfer.total = sum(sizes.values())
        self.transfer.done = sum(sizes[sha256] for sha256 in there)
        needed = self.transfer.total - self.transfer.done
        if (free := shutil.disk_usage(self._copies).free) < needed + _FREE_BYTES:
            raise MemoryFolderError(
                f"{self.folder} needs {needed:,} bytes more, and its disk has {free:,}: free disk space"
            )
        for file in known:
            if file.sha256 not in there:
                self._fetch_file(file)
                there.add(file.sha256)
        sync_directory(self._copies / _OBJECTS)
        return known

    def _object(self, file: RecordedFile) -> Path:
        if not re.fullmatch(_HASH, file.sha256):
            raise DamagedFile(self.folder / file.path, f"its sha256 is {file.sha256[:80]!r}")
        return self._copies / _OBJECTS / file.sha256

    def _fetch_file(self, file: RecordedFile) -> None:
        """Fetch a file, continue an incomplete one, and give it its name after its checksum was verified."""
        place = self._object(file)
        if place.is_file() and file.size in (None, place.stat().st_size):
            return
        part = place.with_name(place.name + _PART)
        most = _RECORD_BYTES if file.size is None else file.size
        digest = hashlib.sha256()
        start = 0
        if part.is_file() and part.stat().st_size <= most:
            with part.open("rb") as former:
                for block in blocks_of_file(former):
                    digest.update(block)
                    start += len(block)
        with part.open("ab" if start else "wb") as copy:
            if file.size is None or start < file.size:
                with self.source.open(file, start, file.size) as received:
                    for piece in received:
                        self.interrupt()
                        start += len(piece)
                        if start > most:
                            self._refuse(part, file, f"more than {most} bytes arrived")
                        copy.write(piece)
                        digest.update(piece)
                        self.transfer.bytes += len(piece)
                        self.transfer.done += len(piece)
            copy.flush()
            os.fsync(copy.fileno())
        if file.size is not None and start < file.size:
            raise MemoryFolderError(
                f"{self.source.name} ended the connection after {start:,} of {file.size:,} bytes of {file.path}"
            )
        if digest.hexdigest() != file.sha256:
            self._refuse(part, file, "the bytes that arrived do not match its sha256")
        os.replace(part, place)  # noqa: PTH105 (one name for tests to make fail)

    def _refuse(self, part: Path, file: RecordedFile, reason: str) -> None:
        self.transfer.refused += 1
        remove_file(part)
        raise DamagedFile(
            self.folder / file.path,
            reason,
            "nothing of it is used, and it is fetched again; if this is repeated, run `ibidem verify` at the source",
            f"{file.path} of {self.source.name}",
        )

    def _build_set(self, view: View, files: Iterable[RecordedFile], known: View | None) -> Path:
        """Make the folder of segments, artefacts and snapshots of a manifest, and return it."""
        name = hashlib.sha256(view.content).hexdigest()[:32]
        target = self._copies / _SETS / name
        if target.is_dir():
            return target
        temporary = temporary_path(target)
        remove_file(temporary)
        for place in (SEGMENTS, ARTEFACTS, SNAPSHOTS):
            (temporary / place).mkdir(parents=True)
        places = {temporary / place for place in (SEGMENTS, ARTEFACTS, SNAPSHOTS)}
        for file in files:
            copy = temporary / file.path
            if copy.parent not in places:
                copy.parent.mkdir()
                places.add(copy.parent)
            link_file(self._object(file), copy)
        for snapshot, content, _ in view.snapshots:
            replace_file(temporary / SNAPSHOTS / snapshot, content)
        self._keep_former(temporary, known)
        for folder in places:
            sync_directory(folder)
        os.replace(temporary, target)  # noqa: PTH105 (one name for tests to make fail)
        sync_directory(target.parent)
        return target

    def _keep_former(self, temporary: Path, known: View | None) -> None:
        """Link the files of the former generation, which readers may be about to open, as a writer keeps them too."""
        if known is None:
            return
        names = [f"{SEGMENTS}/{record.name}" for record in known.manifest.segments]
        names += [f"{ARTEFACTS}/{record.file}" for record in known.manifest.artefacts.values()]
        for name in names:
            former, copy = self.folder / name, temporary / name
            if copy.exists() or not former.exists():
                continue
            if former.is_dir():
                shutil.copytree(former, copy, copy_function=_link)
            else:
                link_file(former, copy)

    def _build_state(self, view: View, target: Path, manifests: Path, known: View | None) -> None:
        temporary = temporary_path(target)
        remove_file(temporary)
        make_directory(temporary / JOURNALS)
        for number, end in view.ends.journals.items():
            self._fetch_journal(journal_path(temporary, number), end, known)
        for place in (SEGMENTS, ARTEFACTS, SNAPSHOTS):
            (temporary / place).symlink_to(Path("..", "..", _SETS, manifests.name, place))
        replace_file(temporary / ENDS, encode_ends(view.ends))
        if view.card is not None:
            replace_file(temporary / CARD, view.card)
        replace_file(temporary / FOLLOWED, self.source.name.encode("utf-8"))
        if known is not None and known.content == view.content:
            # The same inode: readers then read only what was added to the journals.
            link_file(self.folder / MANIFEST, temporary / MANIFEST)
        else:
            replace_file(temporary / MANIFEST, view.content)
        # As in a backup: the manifest before would name files that are not there.
        replace_file(temporary / PREVIOUS, view.content)
        sync_directory(temporary / JOURNALS)
        remove_file(target)
        os.replace(temporary, target)  # noqa: PTH105 (one name for tests to make fail)
        sync_directory(target.parent)

    def _fetch_journal(self, path: Path, end: End, known: View | None) -> None:
        """Copy what is there of a journal, fetch the rest up to the committed end, and verify the chained digest."""
        number = int(path.stem)
        former = End() if known is None else known.ends.of(number)
        if former.bytes > end.bytes or (former.bytes == end.bytes and former != end):
            former = End()
        self._copy_journal(path, former, end)
        journal = Journal(path, former.bytes, former.records, former.sha256)
        try:
            journal.read(end, uncommitted=False)
        except DamagedMemoryError:
            if former.bytes:  # the source has another journal of this number
                self._copy_journal(path, End(), end)
                with contextlib.suppress(DamagedMemoryError):
                    Journal(path).read(end, uncommitted=False)
                    return
            self._refuse(path, RecordedFile(f"{JOURNALS}/{path.name}", end.bytes, ""), "it is not what was committed")

    def _copy_journal(self, path: Path, former: End, end: End) -> None:
        with path.open("wb") as copy:
            if former.bytes:
                with (self.folder / JOURNALS / path.name).open("rb") as file:
                    left = former.bytes
                    while left and (block := file.read(min(left, BLOCK_BYTES))):
                        copy.write(block)
                        left -= len(block)
            if former.bytes < end.bytes:
                file_of = RecordedFile(f"{JOURNALS}/{path.name}", end.bytes, "")
                with self.source.open(file_of, former.bytes, end.bytes) as received:
                    for piece in received:
                        copy.write(piece)
                        self.transfer.bytes += len(piece)
                        if copy.tell() > end.bytes:
                            self._refuse(path, file_of, f"more than {end.bytes} bytes arrived")
            copy.flush()
            os.fsync(copy.fileno())

    def _remove_unused(self, objects: set[str]) -> None:
        """Delete what neither the current state nor a download needs."""
        state = self.folder.resolve()
        manifests = (state / SEGMENTS).resolve().parent
        for place, kept in ((_STATES, {state.name}), (_SETS, {manifests.name}), (_OBJECTS, objects)):
            for path in (self._copies / place).iterdir():
                if path.name not in kept:
                    remove_file(path)


def _link(source: str, target: str) -> None:
    link_file(Path(source), Path(target))
