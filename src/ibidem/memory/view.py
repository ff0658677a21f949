"""A consistent view of a memory: one manifest with its snapshots and the committed ends of its journals.

Files of segments and artefacts never change, so a view is all that a copy needs to be exact. Backups, replicas and
object storage copy what a view names.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import MemoryFolderError
from ibidem.memory.files import DamagedFile, read_error
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    SEGMENTS,
    SNAPSHOTS,
    decode_manifest,
    load_snapshot,
)
from ibidem.memory.journal import Ends, Journal, decode_ends, encode_ends, journal_path, read_ends
from ibidem.memory.json_document import encode_document, has_valid_checksum, parse
from ibidem.memory.segment import RECORD, Segment
from ibidem.memory.tail import read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.memory.manifest import Manifest, SegmentRecord

CARD = "README.md"
_FORMAT = 1
_ATTEMPTS = 100


class RecordedFile(NamedTuple):
    """A file that never changes, as a manifest or segment.json records it.

    Attributes:
        path: Its path relative to the folder of the memory, with `/`.
        size: Its size in bytes; None if it is not recorded.
        sha256: Its sha256 in hexadecimal.
    """

    path: str
    size: int | None
    sha256: str


@dataclass(frozen=True)
class View:
    """What was read of a memory at one moment.

    Attributes:
        manifest: The current generation.
        content: The bytes of its manifest.
        snapshots: File name, bytes and manifest of each snapshot.
        ends: The committed ends of the journals that the manifests need.
        card: The bytes of the card; None without one.
    """

    manifest: Manifest
    content: bytes
    snapshots: list[tuple[str, bytes, Manifest]] = field(default_factory=list)
    ends: Ends = field(default_factory=Ends)
    card: bytes | None = None

    @property
    def manifests(self) -> list[Manifest]:
        """The manifest of the generation, and those of the snapshots."""
        return [self.manifest, *(kept for _, _, kept in self.snapshots)]


def read_bytes(path: Path) -> bytes:
    """Read a file of a memory.

    Args:
        path: The file.

    Raises:
        DamagedMemoryError: The file is missing or cannot be read.
        MemoryFolderError: The process may not read the file, or has reached a limit.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise read_error(path, error) from error


def read_view_of(folder: Path, content: bytes) -> View:
    """Read snapshots and committed ends that belong to a manifest.

    A commit drops committed ends only of journals that neither its own manifest nor the one before needs. Ends that are
    read between two equal manifests therefore cover the journals of this manifest.

    Args:
        folder: The folder of the memory.
        content: The bytes of its current manifest.

    Raises:
        DamagedMemoryError: A file is damaged, or a writer has committed since.
    """
    manifest = decode_manifest(content, folder / MANIFEST)
    snapshots = []
    for record in manifest.snapshots.values():
        kept = load_snapshot(folder, record)
        snapshots.append((record.file, read_bytes(folder / SNAPSHOTS / record.file), kept))
    ends = read_ends(folder)
    card = None
    with contextlib.suppress(FileNotFoundError):
        card = (folder / CARD).read_bytes()
    if read_bytes(folder / MANIFEST) != content:
        raise DamagedFile(folder / MANIFEST, "it was replaced meanwhile")
    first = min(kept.journal for kept in [manifest, *(kept for _, _, kept in snapshots)])
    kept_ends = ends.since(first)
    last = Journal(journal_path(folder, max([manifest.journal, *kept_ends.journals])))
    read = read_journal(folder, last, ends, uncommitted=False)[1]
    if read.end:  # with the record of a killed writer, which readers see too
        kept_ends = kept_ends.with_end(read.number, read.state)
    return View(manifest, content, snapshots, kept_ends, card)


def read_view(folder: Path) -> View:
    """Read a consistent view while other processes write.

    Args:
        folder: The folder of the memory.

    Raises:
        DamagedMemoryError: A file is damaged.
        MemoryFolderError: There is no memory, or writers change it faster than it can be read.
    """
    for _ in range(_ATTEMPTS):
        before = read_bytes(folder / MANIFEST)
        try:
            return read_view_of(folder, before)
        except MemoryFolderError:
            if read_bytes(folder / MANIFEST) == before:
                raise
    raise MemoryFolderError(f"{folder} changes faster than it can be read: wait for its writers, then run again")


def encode_view(view: View) -> bytes:
    """Encode a view as JSON with a checksum.

    Args:
        view: The view.
    """
    return encode_document(
        {
            "format": _FORMAT,
            "manifest": view.content.decode("utf-8"),
            "snapshots": {name: content.decode("utf-8") for name, content, _ in view.snapshots},
            "ends": encode_ends(view.ends).decode("utf-8"),
            "card": None if view.card is None else view.card.decode("utf-8", "replace"),
        },
        "the view",
    )


def decode_view(content: bytes, file: Path) -> View:
    """Decode a view, and check everything that it contains.

    Args:
        content: The bytes that `encode_view` made.
        file: Its origin for messages.

    Raises:
        DamagedMemoryError: The content is not a valid view.
        MemoryFolderError: The content was written by a newer ibidem.
    """
    if not has_valid_checksum(content):
        raise DamagedFile(file, "its checksum does not match its content", "the copy is repeated")
    fields = parse(content, file)
    if (number := fields.integer("format", 1)) > _FORMAT:
        raise MemoryFolderError(f"{file} was written by a newer ibidem (format {number}): upgrade ibidem")
    text = fields.encoded("manifest")
    manifest = decode_manifest(text, file / MANIFEST)
    stored = fields.fields("snapshots")
    snapshots = []
    for record in manifest.snapshots.values():
        snapshot = stored.encoded(record.file)
        if hashlib.sha256(snapshot).hexdigest() != record.sha256:
            raise DamagedFile(file / SNAPSHOTS / record.file, "its sha256 is not the one in the manifest")
        snapshots.append((record.file, snapshot, decode_manifest(snapshot, file / SNAPSHOTS / record.file)))
    card = None if fields.optional_text("card") is None else fields.encoded("card")
    view = View(
        manifest,
        text,
        snapshots,
        decode_ends(fields.encoded("ends"), file / "journals.json"),
        card,
    )
    if min(kept.journal for kept in view.manifests) < view.ends.first:
        raise DamagedFile(file, "it lacks the committed ends of journals that it needs", "the copy is repeated")
    return view


def segments_of(folder: Path, view: View) -> dict[str, tuple[SegmentRecord, Manifest]]:
    """Return the segments that a view needs, by name, each with a generation that has it.

    Args:
        folder: The folder of the memory, for messages.
        view: The view.

    Raises:
        DamagedFile: A snapshot and the generation have different segments of one name.
    """
    found: dict[str, tuple[SegmentRecord, Manifest]] = {}
    for kept in view.manifests:
        for record in kept.segments:
            if found.setdefault(record.name, (record, kept))[0] != record:
                raise DamagedFile(folder / SEGMENTS / record.name, "a snapshot has another segment of this name")
    return found


def files_of_segment(folder: Path, manifest: Manifest, record: SegmentRecord) -> Iterator[tuple[Path, int | None, str]]:
    """Yield the files of a segment, each with its record; segment.json comes first, and the arrays after it.

    Args:
        folder: The folder of the memory.
        manifest: A generation that has the segment.
        record: The record of the segment.

    Yields:
        The file, its recorded size in bytes (None if it is not recorded) and its recorded sha256.

    Raises:
        DamagedMemoryError: segment.json is damaged when the iteration continues after it.
    """
    segment = Segment(folder / SEGMENTS / record.name, record, manifest.layout, manifest.identity.dimension)
    yield segment.folder / RECORD, None, record.sha256
    for name, array in segment.records.items():
        yield segment.file(name), array.bytes, array.sha256


def files_of_artefacts(folder: Path, manifest: Manifest) -> Iterator[tuple[Path, int | None, str]]:
    """Yield the files of the artefacts of a generation, each with its recorded size in bytes and sha256.

    Args:
        folder: The folder of the memory.
        manifest: The generation.
    """
    for artefact in manifest.artefacts.values():
        yield folder / ARTEFACTS / artefact.file, artefact.bytes, artefact.sha256


def files_of(folder: Path, view: View) -> Iterator[RecordedFile]:
    """Yield all files of segments and artefacts that a view needs; a segment.json comes before its arrays.

    Args:
        folder: A folder that has the segment.json of each segment when the iteration continues after it.
        view: The view.

    Raises:
        DamagedMemoryError: A segment.json is missing or damaged.
    """
    segments = (files_of_segment(folder, kept, record) for record, kept in segments_of(folder, view).values())
    artefacts = (files_of_artefacts(folder, kept) for kept in view.manifests)
    seen: dict[str, str] = {}
    for path, size, sha256 in chain(*segments, *artefacts):
        name = path.relative_to(folder).as_posix()
        if name not in seen:
            seen[name] = sha256
            yield RecordedFile(name, size, sha256)
        elif seen[name] != sha256:
            raise DamagedFile(path, "a snapshot has another file of this name")
