"""Zip archives of which some members are replaced, while the bytes of all others are copied as they are.

Only the members that a reader requests are unpacked. Images, macros, signatures and embedded files are neither unpacked
nor packed again.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.document import Document
from ibidem.text.replacement import ReplacementBuilder
from ibidem.text.stream import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ibidem.text.document import Edit

MAX_PART_BYTES = 2**25
"""The largest XML file of an office document, and the largest sum of those that are read, in bytes."""

MAX_MEMBERS = 10_000
"""The most files in an office document."""

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"
_END = struct.Struct("<4s4H2LH")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_NONE = 0xFFFFFFFF
_UTF_8_NAME = 0x0800
_ENCRYPTED = 0x0001
_STORED, _DEFLATED = 0, 8
# What `zipfile` raises for a damaged member; ValueError for a local name that is not UTF-8.
_DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, RuntimeError, OSError)


class _Member(NamedTuple):
    """A member of an archive: its central record, and the positions of its local header and of the next one."""

    name: str
    record: bytes
    start: int
    end: int


class Package:
    """An office document as a zip archive.

    Args:
        data: The bytes of the file.
        name: The name of the file, for messages.
        kind: The name of the format, for messages.

    Attributes:
        names: The names of the members.

    Raises:
        TextError: If the file is not such an archive, is damaged, or exceeds a limit.
    """

    def __init__(self, data: bytes, name: str, kind: str) -> None:
        self.data = data
        self.name = name
        if data.startswith(_COMPOUND_FILE):
            raise TextError(
                f"{name}: an encrypted document, or one of the old binary format. "
                f"Open it in its program and save it as {kind} without a password."
            )
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
            self._members = self._read_members()
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OSError) as error:
            raise TextError(
                f"{name}: not a complete {kind} file ({error}). Copy it again, or open and save it in its program."
            ) from error
        self.names = [member.name for member in self._members]
        self._unpacked = 0

    def read(self, member: str) -> bytes:
        """Unpack a member.

        Args:
            member: Its name, one of `names`.

        Raises:
            TextError: If it is damaged, encrypted or too large.
        """
        info = self._archive.getinfo(member)
        if info.flag_bits & _ENCRYPTED:
            raise TextError(f"{self.name}: {member} is encrypted. Save the document without a password.")
        blocks: list[bytes] = []
        try:
            with self._archive.open(info) as file:
                while block := file.read(BLOCK_BYTES):
                    self._unpacked += len(block)
                    if self._unpacked > MAX_PART_BYTES:
                        raise TextError(
                            f"{self.name}: its text unpacks to more than {MAX_PART_BYTES:,} bytes. "
                            "Divide the document into several."
                        )
                    blocks.append(block)
        except _DAMAGES as error:
            raise TextError(
                f"{self.name}: {member} is damaged ({error}). Copy the file again, or open and save it in its program."
            ) from error
        return b"".join(blocks)

    def write(self, changed: Mapping[str, bytes]) -> Iterator[bytes | memoryview]:
        """Yield the archive with new contents of some members.

        Args:
            changed: The new contents by the names of the members; without any, the file is unchanged.
        """
        view = memoryview(self.data)
        if not changed:
            yield view
            return
        position = 0
        records: dict[str, bytes] = {}
        for member in sorted(self._members, key=lambda one: one.start):
            head: bytes | memoryview = b""
            body: bytes | memoryview = view[member.start : member.end]
            records[member.name] = _move_record(member.record, position)
            if member.name in changed:
                records[member.name], head, body = _pack(member.record, changed[member.name], position)
            yield head
            yield body
            position += len(head) + len(body)
        directory = b"".join(records[member.name] for member in self._members)
        yield directory
        count = len(self._members)
        yield _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), position, len(self._archive.comment))
        yield self._archive.comment

    def _read_members(self) -> list[_Member]:
        infos = self._archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise ValueError(f"more than {MAX_MEMBERS:,} files in it")
        end = self.data.rindex(b"PK\5\6")
        *_, size, start, comment = _END.unpack_from(self.data, end)
        if start + size != end or end + _END.size + comment != len(self.data):
            raise ValueError("bytes that belong to no file in it")
        order = sorted(info.header_offset for info in infos)
        if not infos or order[0] != 0 or len(set(order)) < len(order) or len({i.filename for i in infos}) < len(infos):
            raise ValueError("files in it that overlap or have the same name")
        following = dict(zip(order, [*order[1:], start], strict=True))
        members = []
        for info in infos:
            fields = _CENTRAL.unpack_from(self.data, start)
            length = _CENTRAL.size + sum(fields[10:13])
            if fields[0] != b"PK\1\2" or fields[-1] != info.header_offset or _NONE in fields[8:10]:
                raise ValueError("an unusual directory")
            record = self.data[start : start + length]
            members.append(_Member(info.filename, record, info.header_offset, following[info.header_offset]))
            start += length
        if start != end:  # a comment that is longer than the directory
            raise ValueError("an unusual directory")
        return members


def _move_record(record: bytes, position: int) -> bytes:
    """Return a central record for a member that stands at another position."""
    return record[: _CENTRAL.size - 4] + struct.pack("<L", position) + record[_CENTRAL.size :]


def _pack(record: bytes, content: bytes, position: int) -> tuple[bytes, bytes, bytes]:
    """Return the central record, the local header and the compressed content of a changed member."""
    fields = list(_CENTRAL.unpack_from(record))
    stored = fields[4] == _STORED
    compressor = zlib.compressobj(wbits=-15)
    packed = content if stored else compressor.compress(content) + compressor.flush()
    fields[3] &= _UTF_8_NAME
    fields[4] = _STORED if stored else _DEFLATED
    fields[7:10] = zlib.crc32(content), len(packed), len(content)
    fields[-1] = position
    name = record[_CENTRAL.size : _CENTRAL.size + fields[10]]
    local = _LOCAL.pack(b"PK\3\4", 20, *fields[3:10], len(name), 0)
    return _CENTRAL.pack(*fields) + record[_CENTRAL.size :], local + name, packed


@dataclass(frozen=True)
class PackageDocument(Document):
    """A document in a zip archive.

    Attributes:
        package: The archive.
        parts: The contents of the members with texts, and their edits.
    """

    package: Package | None = None
    parts: Mapping[str, tuple[bytes, list[Edit]]] = field(default_factory=dict)

    def write(self, targets: Mapping[int, bytes]) -> Iterator[bytes | memoryview]:
        """Yield the file with encoded targets; a member without a new text is copied as it is.

        Args:
            targets: The encoded targets, by the numbers of their segments, as `fill` returns them.
        """
        if self.package is None:
            return
        changed: dict[str, bytes] = {}
        for member, (content, edits) in self.parts.items():
            part = Document(member, self.format, content, self.segments, edits, self.encode)
            written = b"".join(part.write(targets))
            if written != content:
                changed[member] = written
        yield from self.package.write(changed)


class PackageBuilder(ReplacementBuilder):
    """Collects the texts of an office document.

    Args:
        package: The archive.

    Attributes:
        parts: The contents of the members that were opened, and their edits.
    """

    def __init__(self, package: Package) -> None:
        super().__init__(name=package.name)
        self.package = package
        self.parts: dict[str, tuple[bytes, list[Edit]]] = {}

    def open(self, members: Iterable[str]) -> Iterator[tuple[str, bytes, list[Edit]]]:
        """Yield the name, the content and the list of edits of members.

        Args:
            members: Their names; those that the archive lacks are left out.

        Raises:
            TextError: If a member cannot be unpacked.
        """
        for member in members:
            if member in self.package.names and member not in self.parts:
                self.parts[member] = (self.package.read(member), [])
                yield member, *self.parts[member]

    def build_package(self, format: str) -> PackageDocument:
        """Return the document of everything that was added.

        Args:
            format: The name of the format, for reports.
        """
        package = self.package
        return PackageDocument(
            package.name, format, package.data, self.segments, [], self.encode, package=package, parts=self.parts
        )
