"""Output files, which take their names when they are complete."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Errors of a full or failing disk, which the operating system reports without the name of the file.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def check_output(path: str | os.PathLike[str]) -> None:
    """Check that a file can have a path, before long work whose result it gets.

    Args:
        path: The file to write.

    Raises:
        UsageError: The path is a folder, or its folder does not exist.
    """
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{path} is a folder: give the name of a file in it.")
    if not target.parent.is_dir():
        raise UsageError(f"Cannot write {path}: there is no folder {target.parent}. Create it, or check the path.")


@contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes its name when it is complete, so that a failure leaves the old file.

    A file that is replaced keeps its permissions; if the path is a link, the file that it points to is replaced. A
    pipe or a device is written directly.

    Args:
        path: The file.

    Yields:
        The open temporary file, a pipe or a device.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "translated.txt")
        ...     with open_output(path) as file:
        ...         _ = file.write(b"complete")
        ...     path.read_bytes()
        b'complete'

    Raises:
        UsageError: The path is a folder, or its folder does not exist.
        OSError: The file cannot be written; the error names it.
    """
    check_output(path)
    try:
        with _open_target(Path(path)) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno in _FULL:
            error.filename = os.fspath(path)
        raise


@contextmanager
def _open_target(target: Path) -> Iterator[BinaryIO]:
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    target = target.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
