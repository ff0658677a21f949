"""The audit log: one line for each change of a memory, without any text."""

from __future__ import annotations

import json
import logging
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

logger = logging.getLogger("ibidem.serve")

_MAX_IDS = 1_000


class AuditLog:
    """Appends a JSON object to a file for each change; each line is on disk before the response is sent.

    A line has `time` (UTC), `action` (`add`, `replace`, `remove`, `import`, `import_done`, `cancel`, and `create`,
    `rename`, `access`, `change`, `delete`, `restore` or `purge` for a whole memory or glossary), `memory` (its name),
    `key` (the first 12 digits of the key's hash, empty without a key), `address`, and numbers such as the ids of the
    pairs. It never has texts, origins or names of files. A line is written after its change: a kill between both loses
    the line, not the change.

    Args:
        file: The file, which is created if it does not exist; None writes nothing.

    Raises:
        UsageError: The file cannot be read or written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._torn = False  # whether the last line was written in part
        if file is not None:
            try:
                self._torn = _ends_within_a_line(file)
                self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as error:
                raise UsageError(f"The audit log {file} cannot be used ({error.strerror}): check the path.") from error

    def write(self, action: str, memory: str, request: Request | None = None, **numbers: object) -> None:
        """Append a line; an error of the disk goes to the log of the server, since the change is already made.

        Args:
            action: What was done.
            memory: Name of the memory.
            request: The request that did it; None for the end of a background job.
            **numbers: Ids, counts and states, without text. Of long lists the first thousand ids are written.
        """
        short = {name: value[:_MAX_IDS] if isinstance(value, list) else value for name, value in numbers.items()}
        row = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "action": action,
            "memory": memory,
            "key": "" if request is None else getattr(request.state, "key", ""),
            "address": "" if request is None or request.client is None else request.client.host,
            **short,
        }
        line = json.dumps(row, ensure_ascii=True).encode("ascii") + b"\n"
        with self._lock:
            if self._descriptor is None:
                return
            rest = b"\n" + line if self._torn else line
            try:
                while rest:
                    written = os.write(self._descriptor, rest)
                    rest = rest[written:]
                    self._torn = bool(rest)
                os.fsync(self._descriptor)
            except OSError as error:
                logger.error("The audit log cannot be written: %s", error)

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


def _ends_within_a_line(file: Path) -> bool:
    """Return whether the last line of a file was written in part."""
    if not file.is_file() or not file.stat().st_size:
        return False
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        return opened.read() != b"\n"
