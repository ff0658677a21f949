"""Giving up what is damaged of a memory's journals and snapshots, once its user has accepted the loss."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import ibidem
from ibidem.errors import DamagedMemoryError
from ibidem.memory.committing import commit_leftovers
from ibidem.memory.damage import Damage, DamagedFile
from ibidem.memory.digests import blocks_of_file
from ibidem.memory.ends import ENDS, Ends, read_ends, seal_ends
from ibidem.memory.files import rename, replace_file, reported_writes, sync_directory, temporary, write_blocks
from ibidem.memory.generations import current_manifest, listed_snapshots, load_snapshot, put_manifest
from ibidem.memory.journal import Journal, journal_path, list_journals
from ibidem.memory.lock import writer_lock
from ibidem.memory.manifest import FORMAT, moment

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory.manifest import Manifest, SnapshotRecord


def accept_loss(folder: Path) -> list[Damage]:
    """Make a memory usable again whose journals or snapshots are damaged, and return what was given up.

    The changes before the first damaged one are kept. Those after it are given up with it, in later journals too:
    they may speak of pairs that are lost. A copy of every file that is cut stays beside it, its name ending in
    `.damaged`. A snapshot is given up where its manifest, or a journal that it needs, is damaged. Damage of segments
    and artefacts is not touched. Raises LockedMemoryError while another writer is at work.
    """
    with writer_lock(folder), reported_writes(folder):
        manifest = current_manifest(folder)
        ends = _readable_ends(folder)
        snapshots, lost = _sound_snapshots(folder, manifest, ends)
        kept = [manifest, *(load_snapshot(folder, record) for record in snapshots.values())]
        first = min(kept_manifest.journal for kept_manifest in kept)
        sound, cut = _sound_journals(folder, first, ends)
        for journal, damage in cut:
            lost.append(damage)
            _set_aside(journal)
        if ends is None and manifest.format > 3:
            lost.append(Damage(ENDS, "it was made anew from the journals"))
        if lost:
            for number in sound.journals:
                Journal(journal_path(folder, number)).sync()
            replace_file(folder / ENDS, seal_ends(sound))
            for journal, _ in cut:
                _cut(journal)
            put_manifest(
                folder,
                replace(
                    manifest,
                    generation=manifest.generation + 1,
                    updated=moment(),
                    ibidem_version=ibidem.__version__,
                    snapshots=snapshots,
                    format=FORMAT,
                ),
            )
        else:  # an older copy of the committed ends is no loss, but is brought up to date
            journals = [_check(folder, number, ends) for number in sound.journals]
            commit_leftovers(folder, journals, required=manifest.format > 3)
        return lost


def _readable_ends(folder: Path) -> Ends | None:
    try:
        return read_ends(folder)
    except DamagedMemoryError:
        return None


def _sound_snapshots(
    folder: Path, manifest: Manifest, ends: Ends | None
) -> tuple[dict[str, SnapshotRecord], list[Damage]]:
    """The snapshots whose manifests and earlier journals are sound, and the damage of the others."""
    sound, lost = {}, []
    for name, record in listed_snapshots(folder, manifest).items():
        try:
            kept = load_snapshot(folder, record)
            for number in range(kept.journal, manifest.journal):
                _check(folder, number, ends)
            sound[name] = record
        except DamagedFile as damage:
            lost.append(_row(folder, damage))
    return sound, lost


def _sound_journals(folder: Path, first: int, ends: Ends | None) -> tuple[Ends, list[tuple[Journal, Damage]]]:
    """The ends of what is sound, and the journals to be cut there, each with its damage."""
    numbers = {int(path.stem) for path in list_journals(folder, first)}
    numbers |= {number for number in ends.journals if number >= first} if ends is not None else set()
    sound = Ends(first)
    cut: list[tuple[Journal, Damage]] = []
    for number in sorted(numbers):
        journal = Journal(journal_path(folder, number))
        try:
            if cut:
                raise DamagedFile(journal.path, "an earlier journal lost records")
            read = _check(folder, number, ends)
        except DamagedFile as damage:
            read = journal if cut else journal.read_sound(None if ends is None else ends.of(number))
            cut.append((read, _row(folder, damage)))
        if read.end:
            sound = sound.with_end(number, read.state)
    return sound, cut


def _check(folder: Path, number: int, ends: Ends | None) -> Journal:
    return Journal(journal_path(folder, number)).read(None if ends is None else ends.of(number))[1]


def _row(folder: Path, damage: DamagedFile) -> Damage:
    return Damage(damage.file.relative_to(folder).as_posix(), damage.reason)


def _set_aside(journal: Journal) -> None:
    """Keep a copy of a damaged journal."""
    copy = journal.path.with_name(journal.path.name + ".damaged")
    with contextlib.suppress(FileNotFoundError), journal.path.open("rb") as file:
        write_blocks(temporary(copy), blocks_of_file(file))
        rename(temporary(copy), copy)


def _cut(journal: Journal) -> None:
    """Leave what is sound of a journal, or no file."""
    if journal.end:
        journal.truncate()
    elif journal.path.exists():
        journal.path.unlink()
        sync_directory(journal.path.parent)
