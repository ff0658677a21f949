"""What is said of a file of a memory that is missing, truncated or changed."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.errors import DamagedMemoryError, MemoryFolderError

if TYPE_CHECKING:
    from pathlib import Path

RESTORE = "restore it from a copy, or learn the memory again"

_NOT_DAMAGE = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@dataclass(frozen=True)
class Damage:
    """One damaged file of a memory: its path relative to the folder, and what is wrong with it."""

    file: str
    reason: str


class DamagedFile(DamagedMemoryError):  # noqa: N818 (the family's name is the base class's)
    """The damage of one file; `file` and `reason` are kept apart for `verify`."""

    def __init__(self, file: Path, reason: str, remedy: str = RESTORE, name: str = "") -> None:
        super().__init__(f"{name or file} is damaged: {reason}; {remedy}")
        self.file = file
        self.reason = reason


def unreadable(file: Path, error: OSError, remedy: str = RESTORE, name: str = "") -> MemoryFolderError:
    """The error for a file that the system would not read: damage, unless the reason lies with the reader."""
    if isinstance(error, FileNotFoundError):
        return DamagedFile(file, "the file is missing", remedy, name)
    if error.errno in _NOT_DAMAGE:
        return MemoryFolderError(
            f"cannot read {name or file}: {error.strerror}; check the file's permissions and the limits of "
            "this process (ulimit -a), then run again"
        )
    return DamagedFile(file, f"it cannot be read ({error.strerror})", remedy, name)
