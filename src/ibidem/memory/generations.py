"""The manifests on disk: the current generation, the previous one and snapshots; commits, and removal of unused files.

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
from ibidem.memory.journal import (
    ACCEPT_LOSS,
    ENDS,
    JOURNALS,
    Ends,
    Journal,
    encode_ends,
    list_journals,
    read_ends,
    uncertain_error,
)
from ibidem.memory.json_document import encode_document, has_valid_checksum, parse
from ibidem.memory.manifest import (
    ARTEFACT_FILE,
    SEGMENT_NAME,
    SNAPSHOT_FILE,
    Manifest,
    SnapshotRecord,
    check_format,
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
    """Encode a manifest as JSON with a checksum.

    Args:
        manifest: The manifest.

    Raises:
        UsageError: The notes of a stage, or the information of an artefact, cannot be represented as JSON.
    """
    return encode_document(manifest.to_json(), "the manifest")


def decode_manifest(content: bytes, file: Path) -> Manifest:
    """Decode and check the content of a manifest file.

    Args:
        content: The bytes.
        file: The file for messages.

    Raises:
        DamagedMemoryError: The content is not a valid manifest.
        MemoryFolderError: The manifest has a newer format.
    """
    fields = parse(content, file)
    if not has_valid_checksum(content):
        try:
            check_format("it", fields.integer("format", 1))
        except MemoryFolderError as error:
            raise DamagedFile(file, f"its checksum does not match, or {error}") from error
        raise DamagedFile(file, "its checksum does not match its content")
    if not {"generation", "segments"} & set(fields.names()):
        raise DamagedFile(file, "it is not a manifest")
    return Manifest.from_json(fields)


def load_manifest(file: Path) -> Manifest:
    """Read and check a manifest file.

    Args:
        file: The current manifest, the previous one, or that of a snapshot.

    Raises:
        DamagedMemoryError: The file is missing, or not a valid manifest.
        MemoryFolderError: The manifest has a newer format, or the process may not read it.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise read_error(file, error) from error
    return decode_manifest(content, file)


def current_manifest(folder: Path) -> Manifest:
    """Read the manifest of the current generation.

    Args:
        folder: The folder of the memory.

    Raises:
        MemoryFolderError: The folder is no memory, or has a newer format.
        DamagedMemoryError: The manifest is missing or damaged; the message has the steps to return to the previous
            generation.
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
        remedy = (
            f"`ibidem repair --accept-loss` goes back to generation {previous.generation}; or restore the memory from "
            "a backup"
        )
        raise DamagedFile(file, damage.reason, remedy) from damage


def check_newest(folder: Path, manifest: Manifest) -> None:
    """Check that the current manifest is not an old copy: the previous one must not be newer.

    Args:
        folder: The folder of the memory.
        manifest: The current manifest.

    Raises:
        DamagedFile: The previous manifest has a higher generation.
    """
    try:
        previous = load_manifest(folder / PREVIOUS)
    except MemoryFolderError:
        return  # `verify` reports it, and the current manifest is enough for readers
    if previous.generation > manifest.generation:
        raise DamagedFile(
            folder / MANIFEST,
            f"it is an old copy: it has generation {manifest.generation}, and {PREVIOUS} has {previous.generation}",
            f"`ibidem repair --accept-loss` goes to generation {previous.generation}; or restore a backup",
        )


def put_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the current generation, and keep the current one as the previous.

    Args:
        folder: The folder of the memory.
        manifest: The new generation; its number is one more than that on disk.

    Raises:
        OSError: The manifest was not committed.
        CommittedError: It was committed, and the disk did not confirm it.
    """
    content = encode_manifest(manifest)
    file = folder / MANIFEST
    if file.exists():
        replace_file(folder / PREVIOUS, file.read_bytes())
    temporary, _ = prepare_file(file, content)
    commit_file(temporary, file, f"generation {manifest.generation} of the memory {folder} is committed")


def load_snapshot(folder: Path, record: SnapshotRecord) -> Manifest:
    """Read the manifest of a snapshot.

    Args:
        folder: The folder of the memory.
        record: The record of the snapshot in the current manifest.

    Raises:
        DamagedFile: The file is missing or changed.
    """
    file = folder / SNAPSHOTS / record.file
    try:
        content = file.read_bytes()
    except OSError as error:
        raise read_error(file, error, ACCEPT_LOSS) from error
    if hashlib.sha256(content).hexdigest() != record.sha256:
        raise DamagedFile(file, "its sha256 is not the one in the manifest", ACCEPT_LOSS)
    return decode_manifest(content, file)


def keep_snapshot(folder: Path, name: str, generation: int) -> SnapshotRecord:
    """Write the manifest of the current generation as a snapshot.

    Args:
        folder: The folder of the memory.
        name: The name of the snapshot, which matches ARTEFACT_NAME.
        generation: The number of the current generation, for the file name.

    Returns:
        The record of the snapshot, for the next manifest.
    """
    make_directory(folder / SNAPSHOTS)
    file = folder / SNAPSHOTS / f"{name}-{generation:06d}.json"
    return SnapshotRecord(file.name, replace_file(file, (folder / MANIFEST).read_bytes()).sha256)


def kept_manifests(folder: Path) -> list[Manifest]:
    """Read the current manifest, the previous one, and those of the snapshots that either of them lists.

    Args:
        folder: The folder of the memory.

    Raises:
        DamagedMemoryError: One of them cannot be read, so that the files that it needs are unknown.
    """
    kept, listed = _kept(folder)
    return [*kept, *(load_snapshot(folder, record) for record in listed)]


def _kept(folder: Path) -> tuple[list[Manifest], set[SnapshotRecord]]:
    """Return the current and the previous manifest, and the records of the snapshots that either of them lists."""
    files = [folder / MANIFEST, folder / PREVIOUS]
    kept = [load_manifest(file) for file in files if file.name == MANIFEST or file.exists()]
    return kept, {record for manifest in kept for record in manifest.snapshots.values()}


def first_journal(folder: Path, manifest: Manifest) -> int:
    """Return the lowest number of a journal that a manifest, or one on disk, needs.

    Args:
        folder: The folder of the memory.
        manifest: A manifest that may not be on disk yet.

    Returns:
        The number; 1 if a manifest on disk is damaged, so that no journal is deleted.
    """
    try:
        return min(kept.journal for kept in [manifest, *kept_manifests(folder)])
    except DamagedMemoryError:
        return 1


def remove_unused_files(folder: Path) -> None:
    """Delete temporary files, and all files that no manifest needs; the caller holds the lock.

    The needed files are read from disk, since the state of the writer may be wrong after a failed commit.

    Args:
        folder: The folder of the memory.
    """
    for place in (folder, *(folder / name for name in (SEGMENTS, ARTEFACTS, SNAPSHOTS, JOURNALS, WORK))):
        for path in place.glob(TEMPORARY + "*"):
            remove_file(path)
    try:
        kept = kept_manifests(folder)
    except DamagedMemoryError:
        return  # the files of a damaged manifest are unknown, and a repair may need them
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
    """Append a change to a journal and commit it. The change is durable when the function returns.

    The caller must hold the lock and must have read all sound records of the journal.

    Args:
        folder: The folder of the memory.
        journal: The journal, as far as it was read.
        change: The change.

    Returns:
        The journal with the change.

    Raises:
        OSError: The change was not recorded.
        CommittedError: The change was recorded, and the disk did not confirm it.
        MemoryFolderError: The write failed, and so did its removal: the change may be recorded.
        DamagedMemoryError: The journal differs from what was read; nothing was changed.
    """
    ends = commit_read_records(folder, [journal])
    longer = journal.append(change)
    try:
        temporary, _ = prepare_file(folder / ENDS, encode_ends(ends.with_end(longer.number, longer.state)))
        commit_file(temporary, folder / ENDS, f"the change to {folder} is recorded")
    except OSError as error:
        # The rename may have succeeded, and a record before the committed end must never be truncated.
        if read_ends(folder) != ends or not longer.truncate_uncommitted(journal.end):
            raise uncertain_error(journal.path, error) from error
        raise
    return replace(longer, committed=longer.end)


def commit_read_records(folder: Path, journals: Iterable[Journal]) -> Ends:
    """Commit what was read of journals, including the records of killed writers beyond the committed ends.

    A record must be committed before another is appended, so that at most one record is uncommitted, and before it is
    sealed: a snapshot needs the journal again, and the ids in later journals count the pairs in this one.

    Args:
        folder: The folder of the memory.
        journals: The journals, as far as they were read.

    Returns:
        The committed ends.

    Raises:
        MemoryFolderError: The committed ends are not those that the journals were read with.
    """
    ends = before = read_ends(folder)
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


def update_ends(folder: Path, first: int) -> None:
    """Drop the committed ends of journals before `first`.

    Args:
        folder: The folder of the memory.
        first: The lowest number of a journal that a manifest needs.
    """
    ends = read_ends(folder)
    if first > ends.first:
        replace_file(folder / ENDS, encode_ends(ends.since(first)))
