"""The checkpoint of a clustering: the labels of finished families, so that an interrupted run can resume.

The folder holds `state.json`, the identity of the clustering, and `families.log`, to which every finished family is
appended: its value, the number of labels, a crc32 and the labels. A torn record at the end is cut off.
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


class Checkpoint:
    """Open the checkpoint of a clustering in a folder; a checkpoint of another identity is discarded.

    Args:
        folder: The folder; it is created if it does not exist.
        identity: All that the labels depend on, as JSON.

    Attributes:
        notes: What `begin` stored in this or an earlier run; None before.

    Raises:
        MemoryFolderError: The folder or the log cannot be written.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        with _report_errors(folder):
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
        with _report_errors(folder):
            self._log: BinaryIO = (folder / LOG).open("a+b")

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def begin(self, notes: dict[str, Any]) -> None:
        """Store what was computed before the first family, such as eps, as the `notes` of this and later runs.

        Args:
            notes: JSON values.

        Raises:
            MemoryFolderError: The checkpoint cannot be written.
        """
        content = {"identity": self._identity, "notes": notes}
        with _report_errors(self._folder):
            replace_file(self._folder / STATE, json.dumps(content, indent=1).encode())
        self.notes = json.loads(json.dumps(notes))

    def read(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Read the value and labels of each finished family, and cut off the log after the last valid record."""
        self._log.seek(0)
        valid = 0
        while (record := _read_record(self._log)) is not None:
            yield record
            valid = self._log.tell()
        self._log.truncate(valid)

    def append(self, value: int, labels: NDArray[np.int32]) -> None:
        """Append a finished family; a later run finds it once `flush` has returned.

        Args:
            value: The token id of the family.
            labels: [n] the labels of its sampled entries, numbered from 0 in the family.

        Raises:
            MemoryFolderError: The checkpoint cannot be written.
        """
        content = labels.astype("<i4").tobytes()
        with _report_errors(self._folder):
            self._log.write(_HEADER.pack(value, len(labels), _checksum(value, content)) + content)

    def flush(self) -> None:
        """Write appended families to the system; families lost in a power cut are clustered again."""
        with _report_errors(self._folder):
            self._log.flush()


@contextlib.contextmanager
def _report_errors(folder: Path) -> Iterator[None]:
    """Turn a failed write into a MemoryFolderError."""
    try:
        yield
    except OSError as error:
        raise MemoryFolderError(
            f"The checkpoint of the clustering could not be written to {folder}: {error.strerror}. Free some space or "
            "change the permissions, and run again: finished families are not clustered again."
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
