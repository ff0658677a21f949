"""Journals: changes to a memory that are committed one by one, each with one append and one fsync.

A journal is a file of records after a line that names its format. A record is a mark, the length of its content, a
crc32 of its position and content, and the content: added pairs, with everything that a segment would store of them, and
the ids of removed pairs.

`journals.json` stores the committed end of every journal: its bytes, its records and a chained digest of them. It is
replaced after a record is on disk and before the writer returns. Up to the committed end every byte must be as written;
a shorter or changed journal is damaged. Beyond the end lies at most one record of a running or killed writer, which was
not acknowledged. A complete record of a killed writer is accepted; that of a running one is ignored until it is
committed. A torn record is truncated by the next writer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zlib
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.memory.files import DamagedFile, describe_size, make_directory, read_error, sync_directory
from ibidem.memory.json_document import LARGEST_DIMENSION, Fields, encode_document, has_valid_checksum, parse
from ibidem.memory.manifest import SOURCE_WIDTH
from ibidem.memory.pairs import SegmentData, round_log_probs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

ENDS = "journals.json"
ACCEPT_LOSS = (
    "run `ibidem repair` with --from and a backup; without one, `ibidem repair --accept-loss` keeps the sound records "
    "and drops the rest"
)
_FORMAT = 1
JOURNALS = "journals"
JOURNAL_NAME = r"[0-9]{6,12}\.log"
_HEADER = b"ibidem journal 2\n"
_MARK = b"\xf1ibj"
_FRAME = struct.Struct("<4sII")  # mark, length of the content, crc32
_JSON_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class End:
    """The committed end of a journal.

    Attributes:
        bytes: The size up to the end.
        records: The number of records.
        sha256: The chained digest of the records.
    """

    bytes: int = 0
    records: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Ends:
    """The committed ends of all journals.

    Attributes:
        first: Journals with lower numbers may have been deleted.
        journals: The end of each journal, by its number.
    """

    first: int = 1
    journals: Mapping[int, End] = field(default_factory=dict)

    def of(self, number: int) -> End:
        """Return the committed end of a journal; `bytes` is 0 where no record was committed.

        Args:
            number: The number of the journal.
        """
        return self.journals.get(number, End())

    def with_end(self, number: int, end: End) -> Ends:
        """Return a copy with another end for one journal.

        Args:
            number: The number of the journal.
            end: Its new committed end.
        """
        return replace(self, journals={**self.journals, number: end})

    def since(self, first: int) -> Ends:
        """Return the ends of the journals from a number on; earlier journals may be deleted then.

        Args:
            first: The lowest number to keep.
        """
        return Ends(first, {number: end for number, end in self.journals.items() if number >= first})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with `format` first."""
        journals = [{"number": number, **asdict(end)} for number, end in sorted(self.journals.items())]
        return {"format": _FORMAT, "first": self.first, "journals": journals}


def encode_ends(ends: Ends) -> bytes:
    """Encode the committed ends as JSON with a checksum.

    Args:
        ends: The committed ends of all journals.
    """
    return encode_document(ends.to_json(), "the committed ends")


def read_ends(folder: Path) -> Ends:
    """Read the committed ends of a memory.

    Args:
        folder: The folder of the memory.

    Raises:
        DamagedFile: The file is missing, changed or inconsistent.
        MemoryFolderError: The file has a newer format.
    """
    file = folder / ENDS
    try:
        content = file.read_bytes()
    except OSError as error:
        raise read_error(file, error, ACCEPT_LOSS) from error
    return decode_ends(content, file)


def decode_ends(content: bytes, file: Path) -> Ends:
    """Decode and check the committed ends of a memory.

    Args:
        content: The bytes that `encode_ends` made.
        file: The file for messages.

    Raises:
        DamagedFile: The content is changed or inconsistent.
        MemoryFolderError: The content has a newer format.
    """
    if not has_valid_checksum(content):
        raise DamagedFile(file, "its checksum does not match its content", ACCEPT_LOSS)
    fields = parse(content, file)
    if "journals" not in fields.names():
        raise DamagedFile(file, "it holds no committed ends of journals", ACCEPT_LOSS)
    if (number := fields.integer("format", 1)) > _FORMAT:
        raise MemoryFolderError(f"{file} was written by a newer ibidem (format {number}): upgrade ibidem")
    items = fields.list_of_fields("journals")
    journals = {
        item.integer("number", 1): End(item.integer("bytes", 1), item.integer("records", 1), item.sha256("sha256"))
        for item in items
    }
    if len(journals) < len(items):
        raise fields.field_error("journals", "a list of journals, each once")
    return Ends(fields.integer("first", 1), journals)


@dataclass(frozen=True, eq=False)
class Change:
    """A change to a memory: added pairs and removed pairs.

    Attributes:
        added: The added pairs with their entries, or None.
        removed: The ids of removed pairs.
    """

    added: SegmentData | None = None
    removed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Journal:
    """A journal, as far as it was read.

    Attributes:
        path: The file.
        end: The end of the last sound record in bytes; 0 where nothing was read.
        records: The number of records up to there.
        digest: The chained sha256 of these records.
        committed: The committed end in bytes when the journal was read. A record after it may belong to a running
            writer.
    """

    path: Path
    end: int = 0
    records: int = 0
    digest: str = ""
    committed: int = 0

    @property
    def number(self) -> int:
        """The number in the file name."""
        return int(self.path.stem)

    @property
    def state(self) -> End:
        """The committed end that a commit of all records that were read would store."""
        return End(self.end, self.records, self.digest)

    def size(self) -> int:
        """Return the size of the file in bytes; 0 where it is missing."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, committed: End | None, *, uncommitted: bool = True) -> tuple[list[Change], Journal]:
        """Read the changes after `end`.

        Args:
            committed: The committed end; None where it is unknown, since the file of ends is damaged.
            uncommitted: Whether to accept complete records beyond the committed end.

        Returns:
            The changes, and the journal as far as it was read.

        Raises:
            DamagedMemoryError: The journal differs from what was committed, or a bad record is followed by a sound one.
        """
        read = self._read_unprotected if committed is None else partial(self._read_committed, committed, uncommitted)
        try:
            return read()
        except DamagedFile:
            return read()  # a writer may have replaced a torn record during the first attempt

    def read_sound(self, committed: End | None) -> Journal:
        """Read up to the first damaged record.

        Args:
            committed: The committed end; None where it is unknown.

        Returns:
            The journal up to there. It has no records if all of them are sound, but not the ones that were committed.
        """
        _, content = self._content()
        _, journal, passed = self._parse(content, self.end + len(content))
        if committed is not None and journal.end >= committed.bytes and committed not in passed:
            return self
        return replace(journal, committed=journal.end)

    def _content(self) -> tuple[int | None, bytes]:
        """Return the size of the file, None where it is missing, and the content after `end`."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.end)
                content = file.read()
                return (self.end + len(content) if content else os.fstat(file.fileno()).st_size), content
        except FileNotFoundError:
            return None, b""
        except OSError as error:
            raise read_error(self.path, error) from error

    def _read_committed(self, committed: End, uncommitted: bool) -> tuple[list[Change], Journal]:
        size, content = self._content()
        if (size or 0) < committed.bytes:
            found = "the file is missing" if size is None else f"it has {size} bytes"
            raise DamagedFile(self.path, f"{found}, and {_describe_end(committed)} were committed", ACCEPT_LOSS)
        changes, journal, passed = self._parse(content, size or 0 if uncommitted else committed.bytes)
        if journal.end < committed.bytes:
            where = f"the record at byte {journal.end}" if journal.end else "its beginning"
            raise DamagedFile(
                self.path, f"{where} is damaged, and {_describe_end(committed)} were committed", ACCEPT_LOSS
            )
        if committed.bytes and committed not in passed:
            raise DamagedFile(self.path, "it is not the journal whose end was committed", ACCEPT_LOSS)
        self._check_torn(content)
        return changes, replace(journal, committed=committed.bytes)

    def _read_unprotected(self) -> tuple[list[Change], Journal]:
        _, content = self._content()
        changes, journal, _ = self._parse(content, self.end + len(content))
        place = journal.end - self.end
        if _is_complete(content, place if journal.end else len(_HEADER)):
            raise DamagedFile(self.path, f"the record at byte {journal.end or len(_HEADER)} is damaged")
        self._check_torn(content)
        return changes, replace(journal, committed=journal.end)

    def _parse(self, content: bytes, last: int) -> tuple[list[Change], Journal, set[End]]:
        """Return the changes in the sound records up to byte `last`, the journal there, and the state after each."""
        digest = self.digest
        passed = {self.state}
        changes: list[Change] = []
        if not self.end:
            if not content.startswith(_HEADER):
                return changes, self, passed
            digest = _chain(digest, _HEADER)
        journal = self
        for record, start, stop in self._records(content):
            if self.end + stop > last:
                break
            changes.append(_decode(record, self.path))
            digest = _chain(digest, content[start:stop])
            journal = replace(journal, end=self.end + stop, records=journal.records + 1, digest=digest)
            passed.add(journal.state)
        return changes, journal, passed

    def append(self, change: Change) -> Journal:
        """Write a change after `end`, durably; `append_change` commits it.

        The caller must hold the lock and must have read and committed all sound records.

        Args:
            change: The change.

        Returns:
            The journal with the change.

        Raises:
            DamagedFile: The file is shorter than what was read of it; nothing was changed.
            OSError: The write failed; the file is as before.
            MemoryFolderError: The write failed, and so did its removal: the change may be recorded.
        """
        record = _encode(change)
        first = not self.end
        # A killed writer may have made the folder and the file without syncing their names: only a committed record
        # proves that they are durable.
        if first:
            make_directory(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            if size < self.end:
                raise DamagedFile(self.path, describe_size(size, self.end), ACCEPT_LOSS)
            if size > self.end:
                os.ftruncate(descriptor, self.end)  # a torn record of a killed writer
            start = self.end or len(_HEADER)
            header = _HEADER if first else b""
            framed = _frame(record, start)
            try:
                _write(descriptor, header + framed, self.end)
                os.fsync(descriptor)
                if first:
                    sync_directory(self.path.parent)
            except OSError as error:
                if not _truncate_if_possible(descriptor, self.end):
                    raise uncertain_error(self.path, error) from error
                raise
        finally:
            os.close(descriptor)
        digest = _chain(_chain("", header) if first else self.digest, framed)
        return replace(self, end=start + len(framed), records=self.records + 1, digest=digest)

    def truncate_uncommitted(self, end: int) -> bool:
        """Truncate the file to `end`, to remove a record that was not committed.

        Args:
            end: The committed end in bytes.

        Returns:
            Whether this was possible. A complete record that stays is accepted by the next reader.
        """
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except OSError:
            return False
        try:
            return _truncate_if_possible(descriptor, end)
        finally:
            os.close(descriptor)

    def truncate(self) -> None:
        """Truncate the file to `end`, durably, after the user accepted the loss."""
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, self.end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Sync the file, its folder and the memory's folder, so that all records that were read are durable."""
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        make_directory(self.path.parent)
        sync_directory(self.path.parent)

    def _records(self, content: bytes) -> Iterator[tuple[memoryview, int, int]]:
        """Yield the sound records of the content, each with its start and end."""
        view = memoryview(content)
        start = 0 if self.end else len(_HEADER)
        while (stop := self._sound(view, start)) is not None:
            yield view[start + _FRAME.size : stop], start, stop
            start = stop

    def _sound(self, content: memoryview, start: int) -> int | None:
        """Return the end of the record that starts at a position; None if there is no sound record."""
        if len(content) - start < _FRAME.size:
            return None
        mark, length, crc = _FRAME.unpack_from(content, start)
        stop = start + _FRAME.size + length
        if mark != _MARK or stop > len(content):
            return None
        return stop if _checksum(content[start + _FRAME.size : stop], self.end + start) == crc else None

    def _check_torn(self, content: bytes) -> None:
        """Raise DamagedFile if a bad record is followed by a sound one."""
        end = 0
        if self.end or content.startswith(_HEADER):
            end = max((stop for _, _, stop in self._records(content)), default=0)
        for found in re.finditer(re.escape(_MARK), content[end + 1 :]):
            if self._sound(memoryview(content), end + 1 + found.start()) is not None:
                where = f"the record at byte {self.end + end} is damaged, and sound records follow"
                raise DamagedFile(self.path, where, ACCEPT_LOSS)


def _is_complete(content: bytes, start: int) -> bool:
    """Return whether a record with the length of its header starts here, without a check of its checksum."""
    if len(content) - start < _FRAME.size:
        return False
    mark, length, _ = _FRAME.unpack_from(content, start)
    return bool(mark == _MARK and start + _FRAME.size + length <= len(content))


def _describe_end(end: End) -> str:
    return f"{end.records} record{'s' if end.records != 1 else ''} of {end.bytes} bytes"


def _chain(digest: str, content: bytes) -> str:
    """Return the chained digest after further content."""
    return hashlib.sha256(digest.encode("ascii") + content).hexdigest()


def _truncate_if_possible(descriptor: int, end: int) -> bool:
    try:
        os.ftruncate(descriptor, end)
    except OSError:
        return False
    return True


def uncertain_error(path: Path, error: OSError) -> MemoryFolderError:
    """Return the error for a record that was written in part or as a whole, and could not be removed again.

    Args:
        path: The journal.
        error: The error of the operating system.
    """
    return MemoryFolderError(
        f"could not write to {path}: {error.strerror}; the change may be recorded or not, since it could not be taken "
        "back: check the disk, then look at the pairs with `ibidem export` before you repeat the change"
    )


def list_journals(folder: Path, first: int) -> list[Path]:
    """List the journals of a memory from a number on, in order.

    Args:
        folder: The folder of the memory.
        first: The lowest number to list.
    """
    found = (path for path in (folder / JOURNALS).glob("*.log") if re.fullmatch(JOURNAL_NAME, path.name))
    return sorted((path for path in found if int(path.stem) >= first), key=lambda path: int(path.stem))


def journal_path(folder: Path, number: int) -> Path:
    """Return the file of a journal.

    Args:
        folder: The folder of the memory.
        number: The number of the journal, from 1; the file need not exist.
    """
    return folder / JOURNALS / f"{number:06d}.log"


def _write(descriptor: int, content: bytes, place: int) -> None:
    os.lseek(descriptor, place, os.SEEK_SET)
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _frame(record: bytes, place: int) -> bytes:
    if len(record) >= 1 << 32:
        raise MemoryFolderError("a change of more than 4 GiB cannot be written at once: add the pairs in parts")
    return _FRAME.pack(_MARK, len(record), _checksum(record, place)) + record


def _checksum(record: bytes | memoryview, place: int) -> int:
    return zlib.crc32(record, zlib.crc32(struct.pack("<Q", place)))


def _encode(change: Change) -> bytes:
    added = change.added
    notes: dict[str, Any] = {"removed": list(change.removed), "added": None}
    arrays: list[NDArray[Any]] = []
    if added is not None:
        notes["added"] = {
            "sources": list(added.sources),
            "targets": list(added.targets),
            "origins": list(added.origins),
            "locations": [int(location) for location in added.locations],
            "lengths": [int(length) for length in added.lengths],
            "keys": None if added.keys is None else added.keys.shape[1],
            "compact": None if added.compact is None else added.compact.shape[1],
        }
        arrays = [added.values.astype("<i4"), round_log_probs(added.log_probs).astype("<f2")]
        arrays += [] if added.keys is None else [added.keys.astype("<f2")]
        arrays += [] if added.compact is None else [added.compact]
        arrays.append(added.stored_source_vectors())
    text = json.dumps(notes, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return b"".join([_JSON_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)])


def _decode(record: memoryview, file: Path) -> Change:
    """Decode and check the change in a record with a valid checksum."""
    try:
        length = _JSON_LENGTH.unpack_from(record)[0]
        fields = Fields(json.loads(bytes(record[_JSON_LENGTH.size : _JSON_LENGTH.size + length])), file)
        removed = fields.integers("removed")
        if fields.optional_mapping("added") is None:
            return Change(None, removed)
        return Change(_decode_pairs(fields.fields("added"), record[_JSON_LENGTH.size + length :], file), removed)
    except (ValueError, struct.error, RecursionError, MemoryFolderError) as error:
        if isinstance(error, DamagedFile):
            raise
        raise DamagedFile(file, f"a record is invalid ({error})") from error


_KEY_DTYPES = {"keys": "<f2", "compact": "|i1"}


def _decode_pairs(fields: Fields, arrays: memoryview, file: Path) -> SegmentData:
    lengths = np.array(fields.integers("lengths"), np.int64)
    entries = int(lengths.sum())
    widths = {name: fields.optional_integer(name, 1, LARGEST_DIMENSION) for name in ("keys", "compact")}
    shapes: list[tuple[str, tuple[int, ...]]] = [("<i4", (entries,)), ("<f2", (entries,))]
    shapes += [(_KEY_DTYPES[name], (entries, width)) for name, width in widths.items() if width is not None]
    shapes.append(("|i1", (len(lengths), SOURCE_WIDTH)))
    sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for dtype, shape in shapes]
    if sum(sizes) != len(arrays):
        raise DamagedFile(file, f"a record has {len(arrays)} bytes of arrays instead of {sum(sizes)}")
    places = np.cumsum([0, *sizes]).tolist()
    found = iter(
        [
            np.frombuffer(arrays[place : place + size], dtype).reshape(shape)
            for place, size, (dtype, shape) in zip(places, sizes, shapes, strict=False)
        ]
    )
    values, log_probs = next(found).astype(np.int32), next(found).astype(np.float32)
    keys = None if widths["keys"] is None else next(found).astype(np.float16)
    compact = None if widths["compact"] is None else next(found).astype(np.int8)
    source_vectors = next(found).astype(np.int8)
    return SegmentData(
        keys=keys,
        values=values,
        log_probs=log_probs,
        lengths=lengths,
        sources=fields.all_texts("sources"),
        targets=fields.all_texts("targets"),
        origins=fields.all_texts("origins"),
        locations=fields.integers("locations", most=(1 << 63) - 1),
        compact=compact,
        source_vectors=source_vectors,
    )
