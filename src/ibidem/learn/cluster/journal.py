"""The journal of a clustering: labels of the families that are done, so that a killed run goes on.

A folder with `state.json`, which says what is being clustered and how, and `families.log`, to which every family is
appended: its value, the number of labels, a crc32, and the labels. What is torn at its end is cut off.
"""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.memory import make_directory, remove_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

STATE = "state.json"
LOG = "families.log"
_HEADER = struct.Struct("<iqI")  # value, number of labels, crc32 of both and the labels


class Journal:
    """Opens the journal of this identity in a folder, and discards one of another."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        with _reported(folder):
            make_directory(folder)
        self._folder = folder
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self.notes: dict[str, Any] | None = None
        state = _read_state(folder / STATE)
        if state is not None and state.get("identity") == self._identity and isinstance(state.get("notes"), dict):
            self.notes = state["notes"]
        else:
            for name in (STATE, LOG):
                remove_file(folder / name)
        with _reported(folder):
            self._log: BinaryIO = (folder / LOG).open("a+b")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def begin(self, notes: dict[str, Any]) -> None:
        """Keep what was found before the first family, such as eps, as `notes` of this and later runs."""
        content = {"identity": self._identity, "notes": notes}
        with _reported(self._folder):
            replace_file(self._folder / STATE, json.dumps(content, indent=1).encode())
        self.notes = json.loads(json.dumps(notes))

    def read(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Values and labels of the families that are done, and then cut off what is not sound."""
        self._log.seek(0)
        sound = 0
        while (record := _read_record(self._log)) is not None:
            yield record
            sound = self._log.tell()
        self._log.truncate(sound)

    def append(self, value: int, labels: NDArray[np.int32]) -> None:
        """Add a family; it is there for the next run when `flush` has returned."""
        content = labels.astype("<i4").tobytes()
        with _reported(self._folder):
            self._log.write(_HEADER.pack(value, len(labels), _checksum(value, content)) + content)

    def flush(self) -> None:
        """Hand what was appended to the system. What a power cut loses of it is only done again."""
        with _reported(self._folder):
            self._log.flush()


@contextlib.contextmanager
def _reported(folder: Path) -> Iterator[None]:
    """Turn a failed write into a MemoryFolderError."""
    try:
        yield
    except OSError as error:
        raise MemoryFolderError(
            f"The journal of the clustering could not be written to {folder}: {error.strerror}. Make room, or gain the "
            "permission, and run again: it goes on from the families that are done."
        ) from error


def _read_state(path: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def _read_record(log: BinaryIO) -> tuple[int, NDArray[np.int32]] | None:
    header = log.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    value, count, crc = _HEADER.unpack(header)
    here = log.tell()
    rest = log.seek(0, 2) - here
    log.seek(here)
    if not 0 <= 4 * count <= rest:
        return None
    content = log.read(4 * count)
    if _checksum(value, content) != crc:
        return None
    return value, np.frombuffer(content, "<i4").astype(np.int32)


def _checksum(value: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<iq", value, len(content))))
