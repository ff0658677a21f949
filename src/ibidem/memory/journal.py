"""Journals: changes to a memory that were committed one by one, each by one append and one fsync.

A journal is a file of records after a line that names its format. A record is a mark, the length of what follows, a
crc32 of its place in the file and of what follows, and then a change: pairs that were added, with all that a
segment would hold of them, and the ids of pairs that were removed. What a killed writer left at the end is no
record: readers stop before it, and the next writer cuts it off. A bad record that a good one follows is damage.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.memory.damage import DamagedFile, unreadable
from ibidem.memory.fields import LARGEST_DIMENSION, Fields
from ibidem.memory.files import make_directory, sync_directory
from ibidem.memory.pairs import SegmentData

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

JOURNALS = "journals"
JOURNAL_NAME = r"[0-9]{6,12}\.log"

_HEADER = b"ibidem journal 1\n"
_MARK = b"\xf1ibj"
_FRAME = struct.Struct("<4sII")  # mark, length of the content, crc32
_JSON_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, eq=False)
class Change:
    """Pairs that were added and ids of pairs that were removed, both at once."""

    added: SegmentData | None = None
    removed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Journal:
    """One journal, from its beginning up to `end`, where the last sound record ends; 0 where there is no file yet."""

    path: Path
    end: int = 0

    @property
    def number(self) -> int:
        """The number in its name."""
        return int(self.path.stem)

    def size(self) -> int:
        """The bytes of its file, sound or not; 0 where there is none."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self) -> tuple[list[Change], Journal]:
        """The changes after `end`, and the journal as far as it was read. Raises DamagedMemoryError."""
        try:
            return self._parse(self._content())
        except DamagedFile:
            return self._parse(self._content())  # it may have been read while a writer was at it

    def _content(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self.end)
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _parse(self, content: bytes) -> tuple[list[Change], Journal]:
        place = 0 if self.end or not content.startswith(_HEADER) else len(_HEADER)
        changes = []
        if self.end or place:
            for record, stop in self._records(content, place):
                changes.append(_decode(record, self.path))
                place = stop
        self._check_torn(content, place)
        return changes, Journal(self.path, self.end + place)

    def append(self, change: Change) -> Journal:
        """Add a change durably; only the writer, who holds the lock and has read all records, may."""
        record = _encode(change)
        new = not self.end
        if new:
            make_directory(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if os.fstat(descriptor).st_size != self.end:
                os.ftruncate(descriptor, self.end)  # what a killed writer left behind
            start = self.end or len(_HEADER)
            content = (_HEADER if new else b"") + _frame(record, start)
            try:
                _write(descriptor, content, self.end)
                os.fsync(descriptor)
                if new:
                    sync_directory(self.path.parent)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, self.end)
                raise
        finally:
            os.close(descriptor)
        return Journal(self.path, self.end + len(content))

    def _records(self, content: bytes, start: int) -> Iterator[tuple[memoryview, int]]:
        """The sound records from a place in the content on, each with the place where it ends."""
        view = memoryview(content)
        while (stop := self._sound(view, start)) is not None:
            yield view[start + _FRAME.size : stop], stop
            start = stop

    def _sound(self, content: memoryview, start: int) -> int | None:
        """Where the record that begins at this place of the content ends; None if there is none, or it is not sound."""
        if len(content) - start < _FRAME.size:
            return None
        mark, length, crc = _FRAME.unpack_from(content, start)
        stop = start + _FRAME.size + length
        if mark != _MARK or stop > len(content):
            return None
        return stop if _checksum(content[start + _FRAME.size : stop], self.end + start) == crc else None

    def _check_torn(self, content: bytes, end: int) -> None:
        """Tell what is torn off at the end, which was never promised to anybody, from a record that was damaged."""
        for found in re.finditer(re.escape(_MARK), content[end + 1 :]):
            if self._sound(memoryview(content), end + 1 + found.start()) is not None:
                where = f"the record at byte {self.end + end} is not as written, and others follow"
                raise DamagedFile(self.path, where)


def list_journals(folder: Path, first: int) -> list[Path]:
    """The journals of a memory from this number on, in order."""
    found = (path for path in (folder / JOURNALS).glob("*.log") if re.fullmatch(JOURNAL_NAME, path.name))
    return sorted((path for path in found if int(path.stem) >= first), key=lambda path: int(path.stem))


def journal_path(folder: Path, number: int) -> Path:
    """The file of a journal."""
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
        arrays = [added.values.astype("<i4"), added.log_probs.astype("<f4")]
        arrays += [keys.astype("<f2") for keys in (added.keys, added.compact) if keys is not None]
    text = json.dumps(notes, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return b"".join([_JSON_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)])


def _decode(record: memoryview, file: Path) -> Change:
    """The change in a record whose checksum is right; what it says is checked all the same."""
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
        raise DamagedFile(file, f"a record says what cannot be ({error})") from error


def _decode_pairs(fields: Fields, arrays: memoryview, file: Path) -> SegmentData:
    lengths = np.array(fields.integers("lengths"), np.int64)
    entries = int(lengths.sum())
    widths = {name: fields.optional_integer(name, 1, LARGEST_DIMENSION) for name in ("keys", "compact")}
    shapes: list[tuple[str, tuple[int, ...]]] = [("<i4", (entries,)), ("<f4", (entries,))]
    shapes += [("<f2", (entries, width)) for width in widths.values() if width is not None]
    sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for dtype, shape in shapes]
    if sum(sizes) != len(arrays):
        raise DamagedFile(file, f"a record has {len(arrays)} bytes of arrays, and says {sum(sizes)}")
    places = np.cumsum([0, *sizes]).tolist()
    found = iter(
        [
            np.frombuffer(arrays[place : place + size], dtype).reshape(shape)
            for place, size, (dtype, shape) in zip(places, sizes, shapes, strict=False)
        ]
    )
    values, log_probs = next(found).astype(np.int32), next(found).astype(np.float32)
    keys, compact = (None if width is None else next(found).astype(np.float16) for width in widths.values())
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
    )
