"""Parts: the results of tasks, sealed in folders under the work folder of a stage.

A part is written under a name of its own and renamed when it is complete, so that two attempts of one task do not meet.
Its digest identifies the task's input, and its content hash the result: a second attempt finds the part and changes
nothing, and one with another result is an error.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import DamagedMemoryError, WorkerError
from ibidem.memory import (
    encode_document,
    has_valid_checksum,
    read_document,
    remove_file,
    rename,
    replace_file,
    unique_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

RECORD = "part.json"
_SEALED_BLOBS = ".bin"


@dataclass(frozen=True)
class Part:
    """A sealed part.

    Attributes:
        folder: The folder.
        number: The number of the task.
        digest: The digest of the task's input.
        content: The content hash: the sha256 of the names and digests of all files.
        files: The sha256 of each file.
        info: What the task returned, as JSON.
    """

    folder: Path
    number: int
    digest: str
    content: str
    files: Mapping[str, str]
    info: Mapping[str, Any]

    def read(self, name: str) -> bytes:
        """Read a file of the part, verified.

        Args:
            name: The name of the file.

        Raises:
            DamagedMemoryError: The file is missing or changed.
        """
        file = self.folder / name
        try:
            content = file.read_bytes()
        except OSError as error:
            raise self._damage(file, str(error.strerror)) from error
        if hashlib.sha256(content).hexdigest() != self.files.get(name):
            raise self._damage(file, "its sha256 is not the one recorded")
        return content

    def array(self, name: str) -> NDArray[Any]:
        """Read an array of the part, verified.

        Args:
            name: The name that `save_array` was called with.

        Raises:
            DamagedMemoryError: The file is missing or changed.
        """
        found: NDArray[Any] = np.load(io.BytesIO(self.read(f"{name}.npy")), allow_pickle=False)
        return found

    def remove(self) -> None:
        """Delete the part, after its content was committed."""
        remove_file(self.folder)

    def _damage(self, file: Path, reason: str) -> DamagedMemoryError:
        return DamagedMemoryError(f"{file} is damaged: {reason}; delete {self.folder} and run the same command again.")


def save_array(folder: Path, name: str, array: NDArray[Any]) -> None:
    """Write an array of a part that is not sealed yet, durably.

    Args:
        folder: The folder that the task was given.
        name: The name of the array.
        array: The array, of numbers.
    """
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    replace_file(folder / f"{name}.npy", stream.getvalue())


def part_folder(folder: Path, number: int) -> Path:
    """Return the folder of a part.

    Args:
        folder: The work folder of the stage.
        number: The number of the task.
    """
    return folder / f"{number:09d}"


def find_part(folder: Path, number: int, digest: str) -> Part | None:
    """Return the sealed part of a task; one of another input is deleted.

    Args:
        folder: The work folder of the stage.
        number: The number of the task.
        digest: The digest of the task's input.

    Returns:
        The part; None if it does not exist.
    """
    place = part_folder(folder, number)
    try:
        content = (place / RECORD).read_bytes()
    except OSError:
        return None
    if has_valid_checksum(content):
        fields = read_document(content, place / RECORD)
        if fields.text("digest") == digest:
            files, info = fields.mapping("files"), fields.mapping("info")
            return Part(place, number, digest, fields.sha256("content"), files, info)
    remove_file(place)
    return None


def seal_part(folder: Path, number: int, digest: str, write: Callable[[Path], Mapping[str, Any]]) -> Part:
    """Write the part of a task, unless it is there already.

    Args:
        folder: The work folder of the stage, which must exist: it is deleted when the stage is complete.
        number: The number of the task.
        digest: The digest of the task's input.
        write: Writes the files into the folder that it is given, and returns what is stored with them, as JSON.

    Returns:
        The sealed part; that of another attempt, if this was sealed earlier.

    Raises:
        WorkerError: Another attempt gave another result.
        OSError: The part could not be written.
    """
    place = part_folder(folder, number)
    temporary = unique_path(place)
    temporary.mkdir()
    try:
        info = write(temporary)
        found = sorted(file for file in temporary.rglob("*") if file.is_file() and file.suffix != _SEALED_BLOBS)
        files = {
            file.relative_to(temporary).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in found
        }
        content = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        record = {"number": number, "digest": digest, "content": content, "files": files, "info": dict(info)}
        replace_file(temporary / RECORD, encode_document(record, "the record of a part"))
        try:
            rename(temporary, place)
        except OSError:
            other = find_part(folder, number, digest)
            if other is None:  # what was there had another input, and is deleted now
                rename(temporary, place)
            elif other.content != content:
                raise WorkerError(
                    f"Two attempts of task {number} gave different results in {other.folder}: the workers do not "
                    "compute alike. Use machines of one kind with the same versions of all libraries, and the same "
                    "number of threads."
                ) from None
            else:
                return other
        return Part(place, number, digest, content, files, dict(info))
    finally:
        remove_file(temporary)
