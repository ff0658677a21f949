"""The manifests on disk: the current generation, the previous one and snapshots; commits, and removal of other files.

A journal record is committed in two steps: the record is written and synced, then the committed end. A writer that is
killed in between leaves one record beyond the committed end, which was not acknowledged.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory.files import (
    TEMPORARY,
    DamagedFile,
    commit_file,
    make_directory,
    prepare_file,
    read_error,
    remove_file,
    replace_file,
)
from ibidem.memory.journal import ACCEPT_LOSS, ENDS, JOURNALS, Ends, Journal, encode_ends, list_journals, read_ends
from ibidem.memory.json_document import encode_document, has_valid_checksum, parse
from ibidem.memory.lock import HOLDER, LOCK
from ibidem.memory.manifest import (
    ARTEFACT_FILE,
    ARTEFACT_NAME,
    FORMAT,
    SEGMENT_NAME,
    SNAPSHOT_FILE,
    Manifest,
    SnapshotRecord,
    newer_format,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ibidem.memory.journal import Change


MANIFEST = "manifest.json"
PREVIOUS = "manifest.previous.json"
SEGMENTS = "segments"
ARTEFACTS = "artefacts"
SNAPSHOTS = "snapshots"
WORK = "work"


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest, with the sha256 of all that follows it in the first field."""
    return encode_document(manifest.to_json(), "the manifest")


def decode_manifest(content: bytes, file: Path) -> Manifest:
    """The manifest in these bytes of `file`; raises DamagedMemoryError, or MemoryFolderError if newer."""
    fields = parse(content, file)
    if not has_valid_checksum(content):
        number = fields.integer("format", 1)
        if number > FORMAT:
            raise DamagedFile(file, f"its checksum does not match, or {newer_format('it', number)}")
        raise DamagedFile(file, "its checksum does not match its content")
    return Manifest.from_json(fields)


def load_manifest(file: Path) -> Manifest:
    """Read one manifest file and check it wholly."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise read_error(file, error) from error
    return decode_manifest(content, file)


def current_manifest(folder: Path) -> Manifest:
    """The current generation of a memory.

    Raises MemoryFolderError if the folder is no memory, and DamagedMemoryError, with the way back, if its
    manifest is missing or damaged.
    """
    file = folder / MANIFEST
    if not any((folder / name).exists() for name in (MANIFEST, PREVIOUS, SEGMENTS)):
        raise MemoryFolderError(f"there is no memory at {folder}: check the path, or make one with `ibidem learn`")
    try:
        return load_manifest(file)
    except DamagedFile as damage:
        try:
            previous = load_manifest(folder / PREVIOUS)
        except MemoryFolderError:
            raise damage from None
        back = f"copy {PREVIOUS} over {MANIFEST} to go back to generation {previous.generation}"
        remedy = f"{back}, or restore it from a copy"
        raise DamagedFile(file, damage.reason, remedy) from damage


def put_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the current generation, and the current one the previous.

    Raises OSError where it was not committed, and CommittedError where it was, and the disk did not confirm it.
    """
    content = encode_manifest(manifest)
    file = folder / MANIFEST
    if file.exists():
        replace_file(folder / PREVIOUS, file.read_bytes())
    beside, _ = prepare_file(file, content)
    commit_file(beside, file, f"generation {manifest.generation} of the memory {folder} is committed")


def check_empty_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but what a `create` that was killed leaves behind."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise MemoryFolderError(f"{folder} is a file: give the path of a new folder")
    for path in folder.iterdir():
        left_over = path.name in (LOCK, HOLDER, ENDS) or path.name.startswith(TEMPORARY)
        empty = path.name in (SEGMENTS, ARTEFACTS, JOURNALS) and path.is_dir() and not any(path.iterdir())
        if not left_over and not empty:
            raise MemoryFolderError(f"{folder} is not empty ({path.name} is there): give the path of a new folder")


def listed_snapshots(folder: Path, manifest: Manifest) -> dict[str, SnapshotRecord]:
    """Return the generations that a manifest keeps by name.

    Older formats do not list them: all that are in the folder are kept then.
    """
    if manifest.format > 3:
        return dict(manifest.snapshots)
    found = (folder / SNAPSHOTS).glob("[a-z]*.json")
    files = sorted(file for file in found if re.fullmatch(ARTEFACT_NAME, file.stem))
    return {file.stem: SnapshotRecord(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files}


def load_snapshot(folder: Path, record: SnapshotRecord) -> Manifest:
    """Read the manifest of a snapshot; raises DamagedFile where it is missing or not the one that was kept."""
    file = folder / SNAPSHOTS / record.file
    try:
        content = file.read_bytes()
    except OSError as error:
        raise read_error(file, error, ACCEPT_LOSS) from error
    if hashlib.sha256(content).hexdigest() != record.sha256:
        raise DamagedFile(file, "its sha256 is not the one in the manifest", ACCEPT_LOSS)
    return decode_manifest(content, file)


def keep_snapshot(folder: Path, name: str, generation: int) -> SnapshotRecord:
    """Write the manifest of the current generation as a snapshot; a manifest that lists the record keeps it."""
    make_directory(folder / SNAPSHOTS)
    file = folder / SNAPSHOTS / f"{name}-{generation:06d}.json"
    return SnapshotRecord(file.name, replace_file(file, (folder / MANIFEST).read_bytes()).sha256)


def kept_manifests(folder: Path) -> list[Manifest]:
    """Return the current manifest, the previous one, and those of the snapshots that either of them lists.

    Raises DamagedMemoryError where one of them cannot be read: what it names is unknown then.
    """
    kept, listed = _kept(folder)
    return [*kept, *(load_snapshot(folder, record) for record in listed)]


def _kept(folder: Path) -> tuple[list[Manifest], set[SnapshotRecord]]:
    """The current manifest and the previous one, and the snapshots that either of them lists."""
    files = [folder / MANIFEST, folder / PREVIOUS]
    kept = [load_manifest(file) for file in files if file.name == MANIFEST or file.exists()]
    return kept, {record for manifest in kept for record in listed_snapshots(folder, manifest).values()}


def first_journal(folder: Path, manifest: Manifest) -> int:
    """Return the lowest number of a journal that this manifest, or one on disk, needs."""
    try:
        return min(kept.journal for kept in [manifest, *kept_manifests(folder)])
    except DamagedMemoryError:
        return 1


def remove_unused_files(folder: Path) -> None:
    """Remove temporary files, and what no manifest needs of all others; only the writer may.

    The kept files are read from disk, not from the state of the writer, which may be wrong after a failed commit.
    """
    for place in (folder, folder / SEGMENTS, folder / ARTEFACTS, folder / SNAPSHOTS, folder / JOURNALS):
        for path in place.glob(TEMPORARY + "*"):
            remove_file(path)
    try:
        kept = kept_manifests(folder)
    except DamagedMemoryError:
        return  # what a damaged manifest names is unknown, and may be wanted for its repair
    segments = {segment.name for manifest in kept for segment in manifest.segments}
    artefacts = {artefact.file for manifest in kept for artefact in manifest.artefacts.values()}
    _remove_others(folder / SEGMENTS, SEGMENT_NAME, segments)
    _remove_others(folder / ARTEFACTS, ARTEFACT_FILE, artefacts)
    _remove_others(folder / SNAPSHOTS, SNAPSHOT_FILE, {record.file for record in _kept(folder)[1]})
    first = min(manifest.journal for manifest in kept)
    for path in set(list_journals(folder, 0)) - set(list_journals(folder, first)):
        remove_file(path)


def _remove_others(place: Path, pattern: str, kept: set[str]) -> None:
    for path in place.glob("*"):
        if path.name not in kept and re.fullmatch(pattern, path.name):
            remove_file(path)


def append_change(folder: Path, journal: Journal, change: Change) -> Journal:
    """Append a change to a journal and commit it; it is durable when this returns.

    The caller must hold the lock and must have read all sound records of the journal. Raises OSError where
    the change is not recorded, CommittedError where it is and the disk did not confirm it, and DamagedMemoryError,
    with nothing changed, where the journal is not what was read of it.
    """
    ends = commit_leftovers(folder, [journal])
    assert ends is not None
    longer = journal.append(change)
    try:
        beside, _ = prepare_file(folder / ENDS, encode_ends(ends.with_end(longer.number, longer.state)))
        commit_file(beside, folder / ENDS, f"the change to {folder} is recorded")
    except OSError:
        # The rename may have succeeded, and a record below the committed end must never be cut off.
        if read_ends(folder) == ends:
            longer.truncate_uncommitted(journal.end)
        raise
    return replace(longer, committed=longer.end)


def commit_leftovers(folder: Path, journals: Iterable[Journal], *, required: bool = True) -> Ends | None:
    """Commit what was read of these journals, with the records that killed writers left beyond the committed ends.

    A record must be committed before another is appended, so that at most one record is uncommitted, and before it is
    sealed: a snapshot needs the journal again, and the ids in later journals count the pairs in this one. Returns the
    committed ends, None where the memory has none and its format requires none. Raises MemoryFolderError where the
    ends are not those that the journals were read with.
    """
    ends = before = read_ends(folder, required=required)
    if ends is None:
        return None
    for journal in journals:
        committed = ends.of(journal.number)
        if committed == journal.state:
            continue
        if committed.bytes != journal.committed:
            raise MemoryFolderError(f"{journal.path} was written by another process meanwhile: run this again")
        journal.sync()
        ends = ends.with_end(journal.number, journal.state)
    if ends != before:
        replace_file(folder / ENDS, encode_ends(ends))
    return ends


def update_ends(folder: Path, first: int, *, required: bool) -> None:
    """Make sure that there are committed ends, and drop those of journals before `first`, which no manifest needs.

    A memory of an older format has none, and requires none: what its journals hold now is committed then.
    """
    ends = read_ends(folder, required=required)
    if ends is None:
        ends = Ends(first)
        for path in list_journals(folder, first):
            journal = Journal(path).read(None)[1]
            if journal.end:
                journal.sync()
                ends = ends.with_end(journal.number, journal.state)
    elif first <= ends.first:
        return
    else:
        ends = ends.since(first)
    replace_file(folder / ENDS, encode_ends(ends))
