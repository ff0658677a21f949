"""Functions that the tests of the executors run in workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from ibidem.errors import MismatchError


def square(number: int) -> int:
    print("what a library prints is no answer")
    return number * number


def sleep_and_square(number: int) -> int:
    time.sleep(0.05 * (number % 3))
    return number * number


def refuse(_: object) -> None:
    raise MismatchError("another model")


def fail(_: object) -> None:
    raise ValueError("a deliberate bug")


def unpicklable(_: object) -> object:
    return lambda: None


def die_until(argument: tuple[str, int]) -> int:
    """Kill this process unless it was called `times` times before; return the number of the call."""
    folder, times = Path(argument[0]), argument[1]
    call = len(list(folder.iterdir()))
    (folder / f"{call}-{os.getpid()}").touch()
    if call < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return call


def wait_for(file: str) -> str:
    Path(file).with_suffix(f".{os.getpid()}").touch()
    while not Path(file).exists():
        time.sleep(0.02)
    return file


def threads(_: object) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def exit_interpreter(_: object) -> None:
    sys.exit(3)
