"""Backup of a memory: a verified copy of one generation, made while other processes read and write the memory."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory.files import (
    DamagedFile,
    blocks_of_file,
    check_file,
    commit_file,
    make_directory,
    read_error,
    replace_file,
    sync_directory,
    temporary_path,
    write_blocks,
)
from ibidem.memory.generations import (
    ARTEFACTS,
    MANIFEST,
    PREVIOUS,
    SEGMENTS,
    SNAPSHOTS,
    current_manifest,
)
from ibidem.memory.integrity import verify
from ibidem.memory.journal import ENDS, JOURNALS, encode_ends, journal_path
from ibidem.memory.lock import HOLDER, LOCK, writer_lock
from ibidem.memory.view import CARD, files_of_artefacts, files_of_segment, read_bytes, read_view_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.memory.view import View

_ATTEMPTS = 100


@dataclass(frozen=True)
class Backup:
    """A finished backup.

    Attributes:
        path: The folder of the copy.
        generation: The generation that was copied.
        records: The number of journal records that were copied with it.
        bytes: The size of all files of the copy.
    """

    path: Path
    generation: int
    records: int
    bytes: int


def back_up(folder: Path, target: Path, progress: Callable[[int, int], None] | None = None) -> Backup:
    """Copy the current generation of a memory to a new folder, and verify every byte of the copy.

    Other processes may read and write the memory meanwhile; the writer's lock is not taken. The copy is one generation
    with its snapshots and with all changes that were acknowledged before the function started. Files are copied, never
    linked: a link would share damaged blocks with the original. The copy is made under a temporary name beside
    `target` and renamed when it is complete, so that a killed backup leaves no folder with the name `target`.

    The copy is a memory like any other. To restore it, move the damaged folder away, and back up the copy to the old
    place.

    Args:
        folder: The folder of the memory.
        target: The folder of the copy; it must be missing or empty, and outside the memory.
        progress: A function that is called with the bytes verified so far and the total bytes.

    Returns:
        A description of the copy.

    Raises:
        MemoryFolderError: The target is not empty or is inside the memory, there is no memory, a write failed, or
            writers change the memory faster than it can be copied.
        DamagedMemoryError: The memory is damaged; nothing is left at the target.
        LockedMemoryError: Another backup to the same target is running.
        CommittedError: The copy is complete, and the disk did not confirm its name.

    Examples:
        >>> back_up(Path("memory"), Path("backups/monday")).generation
        2
    """
    current_manifest(folder)
    _check_target(folder, target)
    try:
        return _back_up(folder, target, progress)
    except OSError as error:
        raise MemoryFolderError(
            f"could not copy {folder} to {target}: {error.strerror}; nothing is left there: free disk space or get "
            "write permission, then run again"
        ) from error


def _back_up(folder: Path, target: Path, progress: Callable[[int, int], None] | None) -> Backup:
    temporary = temporary_path(target)
    make_directory(temporary)
    with writer_lock(temporary):
        try:
            _empty(temporary)
            state = _copy_state(folder, temporary)
            damages = verify(temporary, state.manifest, progress)
            if damages:
                raise MemoryFolderError(
                    f"the copy of {folder} differs from what was read: {damages[0].file}: {damages[0].reason}; check "
                    f"the disk of {target}, then run again"
                )
            size = sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file())
            _finish(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    for name in (LOCK, HOLDER):
        (target / name).unlink(missing_ok=True)
    records = sum(end.records for end in state.ends.journals.values())
    return Backup(target, state.manifest.generation, records, size)


def _check_target(folder: Path, target: Path) -> None:
    inside, outside = target.resolve(), folder.resolve()
    if inside.is_relative_to(outside):
        raise MemoryFolderError(f"{target} is inside the memory {folder}: give a folder elsewhere")
    if outside.is_relative_to(inside):
        raise MemoryFolderError(f"{target} contains the memory {folder}: give a folder elsewhere")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise MemoryFolderError(f"{target} is a file or a link: give the path of a new folder")
    if target.is_dir() and (found := next(target.iterdir(), None)) is not None:
        raise MemoryFolderError(
            f"{target} is not empty ({found.name} is there), and a backup replaces nothing: give a new folder"
        )


def _empty(folder: Path) -> None:
    """Delete the remains of a killed backup, except the lock that this process holds."""
    for path in folder.iterdir():
        if path.name not in (LOCK, HOLDER):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _finish(temporary: Path, target: Path) -> None:
    try:
        commit_file(temporary, target, f"the backup {target} is complete")
    except OSError as error:
        if target.is_dir() and any(target.iterdir()):
            raise MemoryFolderError(f"{target} was made by another process meanwhile: give a new folder") from error
        raise


def _copy_state(folder: Path, target: Path) -> View:
    """Copy a generation; start again from the newest one where a writer deleted a file of the former."""
    for _ in range(_ATTEMPTS):
        before = read_bytes(folder / MANIFEST)
        try:
            state = read_view_of(folder, before)
            _copy_generation(folder, target, state)
            _copy_journals(folder, target, state)
        except MemoryFolderError:
            if read_bytes(folder / MANIFEST) == before:
                raise
            continue  # a writer has committed since, and deleted files of the generation
        for name, content, _kept in state.snapshots:
            make_directory(target / SNAPSHOTS)
            replace_file(target / SNAPSHOTS / name, content)
        if state.card is not None:
            replace_file(target / CARD, state.card)
        replace_file(target / ENDS, encode_ends(state.ends))
        # The generation before is not copied: its manifest would name files that are not there.
        replace_file(target / PREVIOUS, state.content)
        replace_file(target / MANIFEST, state.content)
        return state
    raise MemoryFolderError(f"{folder} changes faster than it can be copied: wait for its writers, then run again")


def _copy_generation(folder: Path, target: Path, state: View) -> None:
    """Copy all segments and artefacts that the target does not have yet, each compared with its record."""
    for name in (SEGMENTS, ARTEFACTS):
        make_directory(target / name)
    places = set()
    for kept in [state.manifest, *(kept for _, _, kept in state.snapshots)]:
        segments = (files_of_segment(folder, kept, record) for record in kept.segments)
        for path, size, sha256 in chain(*segments, files_of_artefacts(folder, kept)):
            copy = target / path.relative_to(folder)
            if not copy.parent.is_dir():
                make_directory(copy.parent)
            places.add(copy.parent)
            _copy(path, copy, size, sha256)
    for place in places:
        sync_directory(place)


def _copy(path: Path, copy: Path, size: int | None, sha256: str) -> None:
    """Copy a file that never changes, unless an earlier attempt copied it."""
    if copy.exists():
        with contextlib.suppress(DamagedMemoryError):
            check_file(copy, copy.stat().st_size if size is None else size, sha256)
            return
    try:
        file = path.open("rb")
    except OSError as error:
        raise read_error(path, error) from error
    with file:
        digest = write_blocks(copy, blocks_of_file(file))
    if digest.sha256 != sha256:
        raise DamagedFile(path, "its sha256 is not the one recorded")


def _copy_journals(folder: Path, target: Path, state: View) -> None:
    """Copy the journals up to their committed ends; a writer may append to them meanwhile."""
    if state.ends.journals:
        make_directory(target / JOURNALS)
    for number, end in state.ends.journals.items():
        path = journal_path(folder, number)
        try:
            with path.open("rb") as file:
                content = file.read(end.bytes)
        except OSError as error:
            raise read_error(path, error) from error
        replace_file(journal_path(target, number), content)
