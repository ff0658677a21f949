"""Moving a memory to another place in the same file system, such as a new name or a folder of deleted memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import MemoryFolderError
from ibidem.memory.files import make_directory, remove_file, rename, sync_directory, write_errors
from ibidem.memory.lock import HOLDER, writer_lock

if TYPE_CHECKING:
    from pathlib import Path


def move_folder(folder: Path, target: Path, lock_timeout: float = 0.0) -> None:
    """Move the folder of a memory, durably and in one step; no writer is active meanwhile.

    Readers that have the memory open keep the files that they have mapped, and must open the memory again for others.

    Args:
        folder: The folder of the memory.
        target: Its new path in the same file system, which must not exist. Missing parents are made.
        lock_timeout: Seconds to wait while another writer holds the lock.

    Raises:
        LockedMemoryError: Another writer still holds the lock.
        MemoryFolderError: The folder is missing, the target exists, or the folder cannot be moved.

    Examples:
        >>> from pathlib import Path
        >>> move_folder(Path("memories/it"), Path("memories/software"))  # doctest: +SKIP
    """
    with writer_lock(folder, lock_timeout), write_errors(folder):
        if target.exists():
            raise MemoryFolderError(f"{target} exists already: choose another name")
        make_directory(target.parent)
        rename(folder, target)
        # The holder's file would name this process as the writer of the moved memory.
        remove_file(target / HOLDER)
        if folder.parent != target.parent:
            sync_directory(folder.parent)
