"""The local executor: tasks in processes of this machine."""

from __future__ import annotations

import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Self

from ibidem.errors import UsageError
from ibidem.executor.executor import ATTEMPTS, Outcome, Result, check_workers, lost_error, result_of
from ibidem.executor.worker import read_message, write_message

if TYPE_CHECKING:
    from collections.abc import Callable

# Each of these limits the threads of one library of a worker.
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class LocalExecutor:
    """Runs tasks in processes of this machine, which start with the first task and end with the executor.

    Args:
        workers: The number of processes; None starts one for each core.
        threads: The threads of each process; None divides the cores among the processes.
        attempts: How often a task is started if its process dies.

    Raises:
        UsageError: A number is below 1.
    """

    def __init__(self, workers: int | None = None, *, threads: int | None = None, attempts: int = ATTEMPTS) -> None:
        check_workers(workers)
        cores = os.cpu_count() or 1
        self._count = workers or cores
        self._threads = threads or max(1, cores // self._count)
        self._attempts = attempts
        self._tasks: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, int, Outcome | None, int]] = queue.SimpleQueue()
        self._epoch = 0
        self._pending: set[int] = set()
        self._running: list[threading.Thread] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._name = f"{socket.gethostname()}:{os.getpid()}"

    @property
    def workers(self) -> int:
        """The number of processes."""
        return self._count

    @property
    def slots(self) -> int:
        """Two tasks for each process: one that runs, and the next."""
        return 2 * self._count

    @property
    def pending(self) -> int:
        """The number of submitted tasks whose results were not returned yet."""
        return len(self._pending)

    @property
    def process_ids(self) -> list[int]:
        """The process numbers of the workers that are alive."""
        with self._lock:
            return [process.pid for process in self._processes.values() if process.poll() is None]

    def submit(self, number: int, function: Callable[[Any], Any], argument: object) -> None:
        """Start a task when a process is free; see `Executor.submit`."""
        if self._closed:
            raise UsageError("The executor is closed: open another one.")
        if number in self._pending:
            raise UsageError(f"Task {number} is pending already: give each task a number of its own.")
        content = pickle.dumps((function, argument))
        self._pending.add(number)
        while len(self._running) < min(self._count, len(self._pending)):
            thread = threading.Thread(target=self._serve, args=(len(self._running),), daemon=True)
            thread.name = f"ibidem-worker-{len(self._running)}"
            self._running.append(thread)
            thread.start()
        self._tasks.put((self._epoch, number, content))

    def wait(self, timeout: float | None = None) -> Result | None:
        """Return the next result; see `Executor.wait`."""
        while self._pending:
            try:
                epoch, number, outcome, attempts = self._done.get(timeout=timeout)
            except queue.Empty:
                return None
            if epoch != self._epoch:  # the task was cancelled
                continue
            self._pending.discard(number)
            if outcome is None:
                raise lost_error(number, attempts, "its process ended")
            return result_of(number, outcome, attempts)
        return None

    def cancel(self) -> None:
        """Drop all pending tasks, and end the processes that run one."""
        with self._lock:
            self._epoch += 1
            self._pending.clear()
            for process in self._processes.values():
                process.kill()

    def close(self) -> None:
        """Cancel all tasks and end the processes."""
        self._closed = True
        self.cancel()
        for _ in self._running:
            self._tasks.put(None)
        for thread in self._running:
            thread.join()
        self._running.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, place: int) -> None:
        """Give the tasks one after the other to one process, which is started again when it has died."""
        try:
            while (task := self._tasks.get()) is not None:
                epoch, number, content = task
                outcome, attempts = None, 0
                while outcome is None and attempts < self._attempts and epoch == self._epoch:
                    attempts += 1
                    try:
                        outcome = self._ask(place, epoch, content)
                    except Exception:  # the driver waits for an outcome of every task
                        outcome = Outcome(None, self._name, 0.0, "Exception", traceback.format_exc())
                self._done.put((epoch, number, outcome, attempts))
        finally:
            process = self._processes.get(place)
            if process is not None:
                _end(process)

    def _ask(self, place: int, epoch: int, content: bytes) -> Outcome | None:
        """Return the outcome of a task in the process of a place; None if the process died."""
        with self._lock:  # `cancel` must find the process that it is to end
            if epoch != self._epoch:
                return None
            process = self._processes.get(place)
            if process is None or process.poll() is not None:
                if process is not None:
                    _end(process)
                try:
                    process = self._processes[place] = self._start()
                except OSError as error:
                    reason = f"A worker process cannot be started: {error}. Free memory or processes, and run the same "
                    return Outcome(None, self._name, 0.0, "WorkerError", f"{reason}command again")
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_message(process.stdin, content)
            answer = read_message(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            process.kill()
            process.wait()
            return None
        outcome: Outcome = pickle.loads(answer)
        return outcome

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | dict.fromkeys(_THREADS, str(self._threads))
        command = [sys.executable, "-c", "from ibidem.executor.worker import main; main()"]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert process.stdin is not None
        try:
            write_message(process.stdin, pickle.dumps(sys.path))
        except OSError:
            process.kill()  # the next message finds that it has died
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:  # what was not written yet has no reader any more
                continue
