"""A worker process of the local executor: reads tasks from stdin, and writes their outcomes to stdout.

Messages are pickles behind their length in eight bytes. The first one is the driver's sys.path. The process ends with
its stdin, so that no worker outlives its driver.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = struct.Struct("<Q")


def write_message(stream: IO[bytes], content: bytes) -> None:
    """Write a message.

    Args:
        stream: An open stream.
        content: The pickle.
    """
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """Read a message.

    Args:
        stream: An open stream.

    Returns:
        The pickle; None at the end of the stream.
    """
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    content = stream.read(length)
    return content if len(content) == length else None


def _read_tasks(stream: IO[bytes], tasks: queue.SimpleQueue[bytes]) -> None:
    while (message := read_message(stream)) is not None:
        tasks.put(message)
    os._exit(0)


def main() -> None:
    """Run tasks until the driver closes stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with the messages
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    stdin = os.fdopen(os.dup(0), "rb")
    threading.Thread(target=_read_tasks, args=(stdin, tasks), name="ibidem-tasks", daemon=True).start()
    sys.path[:] = pickle.loads(tasks.get())
    from ibidem.executor.executor import run_task

    while True:
        task = tasks.get()
        outcome = run_task(_call_pickled, task)
        try:
            content = pickle.dumps(outcome)
        except Exception as error:
            content = pickle.dumps(run_task(_refuse, f"The result of a task cannot be pickled: {error!r}"))
        try:
            write_message(answers, content)
        except OSError:
            os._exit(0)


def _call_pickled(task: bytes) -> object:
    """Call a pickled function; a module that is missing in this process is then an error of the task."""
    called: tuple[Callable[[Any], Any], Any] = pickle.loads(task)
    function, argument = called
    return function(argument)


def _refuse(message: str) -> None:
    raise TypeError(message)
