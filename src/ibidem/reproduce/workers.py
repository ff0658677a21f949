"""Worker processes: each has its own bench, takes one stage or row at a time, and may die without harm to others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, NamedTuple, cast

from ibidem.errors import IbidemError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import TracebackType

    from ibidem.reproduce.bench import Setting
    from ibidem.reproduce.rows.row import Row
    from ibidem.reproduce.stages import Stage


class Outcome(NamedTuple):
    """How a task ended: its key, its seconds, and what went wrong, if anything did."""

    key: str
    seconds: float
    failure: str | None


class Workers:
    """A fixed number of processes; one that dies is replaced, and its task counted as failed."""

    def __init__(self, setting: Setting, count: int) -> None:
        self._setting = setting
        self._context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.idle: list[Connection] = []
        self._processes: dict[Connection, SpawnProcess] = {}
        self._busy: dict[Connection, str] = {}
        for _ in range(count):
            self._hire()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for connection, process in self._processes.items():
            if connection in self._busy or kind is not None:
                process.terminate()
            else:
                _send(connection, None)
            process.join()
            connection.close()

    def give(self, key: str, thing: Stage | Row) -> None:
        """Give a task to an idle worker."""
        connection = self.idle.pop()
        _send(connection, (key, thing))
        self._busy[connection] = key

    def wait(self) -> list[Outcome]:
        """Wait until at least one task has ended."""
        outcomes = []
        for ready in wait(list(self._busy)):
            connection = cast("Connection", ready)  # on Windows it is a class of another name
            key = self._busy.pop(connection)
            try:
                outcome: Outcome = connection.recv()
                self.idle.append(connection)
            except (EOFError, OSError):
                process = self._processes.pop(connection)
                process.join()
                outcome = Outcome(key, 0.0, f"its process died (exit code {process.exitcode}): out of memory?")
                connection.close()
                self._hire()
            outcomes.append(outcome)
        return outcomes

    def _hire(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=serve, args=(theirs, self._setting), daemon=True)
        process.start()
        theirs.close()
        self._processes[ours] = process
        self.idle.append(ours)


def serve(connection: Connection, setting: Setting) -> None:
    """The life of a worker: perform one task after another until there is none."""
    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.running import perform

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    threading.Thread(target=_die_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")
    if setting.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(setting.threads)  # faiss, which is not loaded yet, heeds it
    bench = Workspace(setting)
    while (given := _next(connection)) is not None:
        key, thing = given
        started, failure = time.perf_counter(), None
        try:
            perform(bench, thing)
        except IbidemError as error:
            failure = str(error)
        except Exception:  # a bug in one row must not cost the others
            failure = traceback.format_exc()
        connection.send(Outcome(key, time.perf_counter() - started, failure))


def _send(connection: Connection, message: object) -> None:
    """Send to a worker; that it is dead shows when one waits for its answer."""
    with suppress(OSError):
        connection.send(message)


def _die_with_parent() -> None:
    """End this process when the parent was killed: another run must not meet it at work in the same folders."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _next(connection: Connection) -> tuple[str, Stage | Row] | None:
    try:
        given: tuple[str, Stage | Row] | None = connection.recv()
    except EOFError:  # the parent is gone
        return None
    return given
