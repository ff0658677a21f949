"""Repair of a damaged memory: mends what loses nothing, and, where the user accepts a loss, drops what is damaged."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import ibidem
from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory.artefacts import (
    ADAPTIVE_COMBINER_ARTEFACT,
    CONFIDENCE_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
    is_index_artefact,
)
from ibidem.memory.files import (
    Damage,
    DamagedFile,
    blocks_of_file,
    check_file,
    make_directory,
    rename,
    replace_file,
    sync_directory,
    temporary_path,
    write_blocks,
    write_errors,
)
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    PREVIOUS,
    SNAPSHOTS,
    check_newest,
    commit_read_records,
    current_manifest,
    encode_manifest,
    load_manifest,
    load_snapshot,
    put_manifest,
)
from ibidem.memory.integrity import verify
from ibidem.memory.journal import ENDS, Ends, Journal, encode_ends, journal_path, list_journals, read_ends
from ibidem.memory.lock import writer_lock
from ibidem.memory.manifest import SnapshotRecord, utc_timestamp
from ibidem.memory.view import files_of_artefacts, files_of_segment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ibidem.memory.manifest import Manifest, SegmentRecord

_COMBINERS = (FIXED_COMBINER_ARTEFACT, ADAPTIVE_COMBINER_ARTEFACT, CONTEXTUAL_COMBINER_ARTEFACT)
_TUNED = (*_COMBINERS, CONFIDENCE_ARTEFACT)
_INDEX_DROPPED = "it was dropped; an index is built at each start until `ibidem index` stores one"
_DROPPED = {
    **dict.fromkeys(_COMBINERS, "it was dropped; another combiner is used until `ibidem tune` makes it again"),
    CONFIDENCE_ARTEFACT: "it was dropped; the general one is used until `ibidem tune` makes it again",
}


class Repair(NamedTuple):
    """The result of a repair.

    Attributes:
        mended: The files that were mended without a loss, each with what was done.
        lost: The files from which something was dropped, each with the damage.
        left: The damage that remains.
        index_dropped: Whether the index was dropped, so that it can be built again.
    """

    mended: list[Damage]
    lost: list[Damage]
    left: list[Damage]
    index_dropped: bool


def repair_folder(folder: Path, *, accept_loss: bool = False, source: Path | None = None) -> Repair:
    """Repair a damaged memory.

    Without a loss: damaged files are copied back from a backup that has them with the recorded checksum; a damaged
    index or combiner is dropped, since it can be made again; a damaged copy of the previous manifest is written anew;
    committed ends that are older than the journals are brought up to date.

    If the user accepts a loss: the changes of the journals before the first damaged record are kept, and all later ones
    are dropped, in later journals too, since they may refer to lost pairs. A snapshot is dropped if its manifest, or a
    journal that it needs, is damaged. If the manifest is damaged, the previous generation becomes the current one. A
    copy of every truncated or replaced file stays beside it with the ending `.damaged`.

    Damaged segments and other artefacts stay as they are; only a backup can replace them.

    Args:
        folder: The folder of the memory.
        accept_loss: Whether damaged records of journals, snapshots and a damaged manifest may be dropped.
        source: A backup of this memory, of any age.

    Returns:
        What was mended, what was lost, and what is still damaged.

    Raises:
        DamagedMemoryError: The manifest is damaged, and the previous one too, or the loss was not accepted.
        LockedMemoryError: Another writer holds the lock.
        MemoryFolderError: There is no memory, or `source` is no backup.
    """
    if source is not None and not (source / MANIFEST).is_file():
        raise MemoryFolderError(f"there is no backup at {source}: check the path")
    mended: list[Damage] = []
    lost: list[Damage] = []
    with writer_lock(folder), write_errors(folder):
        manifest = _open_manifest(folder, lost, accept_loss=accept_loss)
        if source is not None:
            mended += _copy_back(folder, manifest, source)
        draft = manifest
        if accept_loss:
            draft = _drop_damaged_changes(folder, draft, lost)
        else:
            mended += _update_ends(folder, draft)
        damaged = {damage.file for damage in verify(folder, manifest)}
        dropped = {
            record.file: name
            for kept in _readable_generations(folder, draft)
            for name, record in kept.artefacts.items()
            if (name in _DROPPED or is_index_artefact(name)) and f"{ARTEFACTS}/{record.file}" in damaged
        }
        mended += [Damage(f"{ARTEFACTS}/{file}", _DROPPED.get(name, _INDEX_DROPPED)) for file, name in dropped.items()]
        current = {record.file: name for name, record in manifest.artefacts.items()}
        index_dropped = any(is_index_artefact(current.get(file, "")) for file in dropped)
        draft = _without_artefacts(draft, set(dropped))
        draft = replace(draft, snapshots=_mended_snapshots(folder, draft, set(dropped)))
        if PREVIOUS in damaged:
            mended.append(Damage(PREVIOUS, "it was replaced by a copy of the current manifest"))
        if draft != manifest or lost or PREVIOUS in damaged:
            number = manifest.generation + 1
            put_manifest(
                folder,
                replace(draft, generation=number, updated=utc_timestamp(), ibidem_version=ibidem.__version__),
            )
        return Repair(mended, lost, verify(folder, current_manifest(folder)), index_dropped)


def _open_manifest(folder: Path, lost: list[Damage], *, accept_loss: bool) -> Manifest:
    """Return the current manifest; go back to the previous one where it is damaged and a loss is accepted."""
    try:
        found = current_manifest(folder)
        check_newest(folder, found)
        return found
    except DamagedFile as damage:
        if not accept_loss:
            raise
        try:
            previous = load_manifest(folder / PREVIOUS)
        except MemoryFolderError:
            raise damage from None
        _copy_damaged(folder / MANIFEST)
        replace_file(folder / MANIFEST, (folder / PREVIOUS).read_bytes())
        lost.append(Damage(MANIFEST, f"{damage.reason}; generation {previous.generation} is the current one again"))
        return previous


def _copy_back(folder: Path, manifest: Manifest, source: Path) -> list[Damage]:
    """Replace damaged files by those of a backup that match the records; return the replaced files."""
    done: list[Damage] = []

    def mend(files: Iterable[tuple[Path, int | None, str]]) -> None:
        with contextlib.suppress(DamagedMemoryError):  # the record of a segment is damaged in the backup too
            for path, size, sha256 in files:
                name = path.relative_to(folder)
                if not _matches(path, size, sha256) and _matches(source / name, size, sha256):
                    make_directory(path.parent)
                    _replace_by(path, source / name)
                    done.append(Damage(name.as_posix(), f"it was copied from {source}"))

    snapshots = [(folder / SNAPSHOTS / record.file, None, record.sha256) for record in manifest.snapshots.values()]
    mend(snapshots)
    segments: dict[str, tuple[SegmentRecord, Manifest]] = {}
    for kept in _readable_generations(folder, manifest):
        segments |= {record.name: (record, kept) for record in kept.segments}
        mend(files_of_artefacts(folder, kept))
    for record, kept in segments.values():
        mend(files_of_segment(folder, kept, record))
    if _readable_ends(folder) is None and _has_ends_of(source, manifest):
        _copy_damaged(folder / ENDS)
        _replace_by(folder / ENDS, source / ENDS)
        done.append(Damage(ENDS, f"it was copied from {source}; later changes are taken from the journals"))
    ends = _readable_ends(folder)
    for number, end in ({} if ends is None else ends.journals).items():
        path, copy = journal_path(folder, number), journal_path(source, number)
        try:
            Journal(path).read(end)
        except DamagedMemoryError:
            with contextlib.suppress(DamagedMemoryError):
                Journal(copy).read(end)
                make_directory(path.parent)
                replace_file(path, copy.read_bytes()[: end.bytes])
                done.append(Damage(path.relative_to(folder).as_posix(), f"it was copied from {source}"))
    return done


def _has_ends_of(source: Path, manifest: Manifest) -> bool:
    """Return whether a backup has the committed ends of this generation; another one has other journals."""
    try:
        return load_manifest(source / MANIFEST).generation == manifest.generation and _readable_ends(source) is not None
    except MemoryFolderError:
        return False


def _matches(path: Path, size: int | None, sha256: str) -> bool:
    try:
        check_file(path, path.stat().st_size if size is None else size, sha256)
    except (DamagedMemoryError, OSError):
        return False
    return True


def _replace_by(path: Path, other: Path) -> None:
    with other.open("rb") as file:
        write_blocks(temporary_path(path), blocks_of_file(file))
    rename(temporary_path(path), path)


def _readable_generations(folder: Path, manifest: Manifest) -> list[Manifest]:
    """Return a generation and its snapshots that can be read."""
    kept = [manifest]
    for record in manifest.snapshots.values():
        with contextlib.suppress(DamagedMemoryError):
            kept.append(load_snapshot(folder, record))
    return kept


def _without_artefacts(manifest: Manifest, files: set[str]) -> Manifest:
    """Return a manifest without artefacts that have these files."""
    kept = {name: record for name, record in manifest.artefacts.items() if record.file not in files}
    if any(is_index_artefact(name) for name in manifest.artefacts.keys() - kept.keys()):
        # The parts of an index are of no use without each other.
        kept = {name: record for name, record in kept.items() if not is_index_artefact(name)}
    stages = dict(manifest.stages)
    if any(name in manifest.artefacts and name not in kept for name in _TUNED):
        stages.pop("tune", None)  # so that `learn` tunes again
    return replace(manifest, artefacts=kept, stages=stages) if len(kept) < len(manifest.artefacts) else manifest


def _mended_snapshots(folder: Path, manifest: Manifest, files: set[str]) -> dict[str, SnapshotRecord]:
    """Return the records of the snapshots, after artefacts with these files were dropped from their manifests."""
    records = dict(manifest.snapshots)
    for name, record in manifest.snapshots.items():
        with contextlib.suppress(DamagedMemoryError):
            kept = load_snapshot(folder, record)
            mended = _without_artefacts(kept, files)
            if mended is not kept:
                file = folder / SNAPSHOTS / f"{name}-{manifest.generation + 1:06d}.json"
                records[name] = SnapshotRecord(file.name, replace_file(file, encode_manifest(mended)).sha256)
    return records


def _update_ends(folder: Path, manifest: Manifest) -> list[Damage]:
    """Commit sound records beyond the committed ends; damaged journals are left as they are."""
    before = _readable_ends(folder)
    if before is None:
        return []
    with contextlib.suppress(MemoryFolderError):
        first = min(kept.journal for kept in _readable_generations(folder, manifest))
        numbers = {int(path.stem) for path in list_journals(folder, first)} | {
            number for number in before.journals if number >= first
        }
        read = [_read_journal(folder, number, before) for number in sorted(numbers)]
        if commit_read_records(folder, [journal for journal in read if journal.end]) != before:
            return [Damage(ENDS, "the committed ends were brought up to date")]
    return []


def _drop_damaged_changes(folder: Path, manifest: Manifest, lost: list[Damage]) -> Manifest:
    """Truncate damaged journals and drop damaged snapshots; return the manifest without these snapshots."""
    ends = _readable_ends(folder)
    snapshots, gone = _sound_snapshots(folder, manifest, ends)
    lost += gone
    kept = [manifest, *(load_snapshot(folder, record) for record in snapshots.values())]
    first = min(kept_manifest.journal for kept_manifest in kept)
    sound, cut = _sound_journals(folder, first, ends)
    for journal, damage in cut:
        lost.append(damage)
        _copy_damaged(journal.path)
    if ends is None:
        lost.append(Damage(ENDS, "it was rebuilt from the journals"))
    if cut or gone or ends is None:
        for number in sound.journals:
            Journal(journal_path(folder, number)).sync()
        replace_file(folder / ENDS, encode_ends(sound))
        for journal, _ in cut:
            _truncate_journal(journal)
    else:  # an older copy of the committed ends is no loss, and is updated
        commit_read_records(folder, [_read_journal(folder, number, ends) for number in sound.journals])
    return replace(manifest, snapshots=snapshots)


def _readable_ends(folder: Path) -> Ends | None:
    try:
        return read_ends(folder)
    except DamagedMemoryError:
        return None


def _sound_snapshots(
    folder: Path, manifest: Manifest, ends: Ends | None
) -> tuple[dict[str, SnapshotRecord], list[Damage]]:
    """Return the snapshots with sound manifests and journals, and the damage of the others."""
    sound, lost = {}, []
    for name, record in manifest.snapshots.items():
        try:
            kept = load_snapshot(folder, record)
            for number in range(kept.journal, manifest.journal):
                _read_journal(folder, number, ends)
            sound[name] = record
        except DamagedFile as damage:
            lost.append(_to_damage(folder, damage))
    return sound, lost


def _sound_journals(folder: Path, first: int, ends: Ends | None) -> tuple[Ends, list[tuple[Journal, Damage]]]:
    """Return the ends of the sound records, and the journals to truncate there, each with its damage."""
    numbers = {int(path.stem) for path in list_journals(folder, first)}
    numbers |= {number for number in ends.journals if number >= first} if ends is not None else set()
    sound = Ends(first)
    cut: list[tuple[Journal, Damage]] = []
    for number in sorted(numbers):
        journal = Journal(journal_path(folder, number))
        try:
            if cut:
                raise DamagedFile(journal.path, "an earlier journal lost records")
            read = _read_journal(folder, number, ends)
        except DamagedFile as damage:
            read = journal if cut else journal.read_sound(None if ends is None else ends.of(number))
            cut.append((read, _to_damage(folder, damage)))
        if read.end:
            sound = sound.with_end(number, read.state)
    return sound, cut


def _read_journal(folder: Path, number: int, ends: Ends | None) -> Journal:
    return Journal(journal_path(folder, number)).read(None if ends is None else ends.of(number))[1]


def _to_damage(folder: Path, damage: DamagedFile) -> Damage:
    return Damage(damage.file.relative_to(folder).as_posix(), damage.reason)


def _copy_damaged(path: Path) -> None:
    """Keep a copy of a damaged file."""
    copy = path.with_name(path.name + ".damaged")
    with contextlib.suppress(FileNotFoundError):
        _replace_by(copy, path)


def _truncate_journal(journal: Journal) -> None:
    """Truncate a journal to its sound records; delete it if there are none."""
    if journal.end:
        journal.truncate()
    elif journal.path.exists():
        journal.path.unlink()
        sync_directory(journal.path.parent)
