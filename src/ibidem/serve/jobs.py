"""Background imports of files into a memory, and their progress; they survive a restart of the server.

The file of an import lies in a folder of its own below `work` in the memory, with `job.json`, which is on disk before
the client gets the id of the job. A server that starts continues the imports that no other process has locked. A file
is imported from its beginning again; pairs that the memory holds are not stored twice.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ibidem.check import CheckSettings, check_policy, guard
from ibidem.errors import IbidemError, RefusedTextError, UsageError
from ibidem.memory import LOCK, WORK, make_directory, replace_file
from ibidem.serve.http_error import ClosingError, HttpError
from ibidem.serve.memory_writer import file_name
from ibidem.text import Corpus, Pair, ReadLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.serve.limits import Limits

logger = logging.getLogger("ibidem.serve")

MAX_RUNNING = 8
_WORKERS = 2
_MAX_KEPT = 100
_FOLDER = "import-"
_STATE = "job.json"
_MAX_STATE_BYTES = 1 << 16
_MAX_NAME_BYTES = 100
_MAX_MESSAGE = 1_000
# Limits for uploaded files; the defaults of ReadLimits are for files of the machine's owner.
_UPLOAD_LIMITS = ReadLimits(
    ratio=100,
    ratio_bytes=1 << 26,
    unpack_bytes=1 << 27,
    whole_bytes=1 << 26,
    dropped_in_a_row=500_000,
    segment=20_000,
)


_CHECK = CheckSettings(dense_pairs=20_000, seconds=20.0, memory_pairs=200_000)


@dataclass
class Job:
    """An import.

    Attributes:
        id: Random id, which clients use in paths.
        memory: Name of the memory.
        file: Name of the file.
        state: `running`, then `done`, `failed` or `cancelled`.
        share: Fraction of the file that was learnt, None if unknown.
        read: Pairs that were read.
        added: Pairs that were added.
        message: Result in words.
        cancelled: Whether the job has to stop.
        bad_pairs: What to do about defects of the file: "stop", "fix" or "keep".
        refused: Whether the file has a certain defect, so that nothing was learnt.
        owner: Name of the owner of the API key, "" without a key.
    """

    id: str
    memory: str
    file: str
    state: str = "running"
    share: float | None = None
    read: int = 0
    added: int = 0
    message: str = ""
    cancelled: bool = False
    bad_pairs: str = "stop"
    refused: bool = False
    owner: str = ""


@dataclass
class Upload:
    """A file that a client sends.

    Attributes:
        path: Path of the local copy, in a folder of its own.
        size: Bytes that count against a limit on stored bytes.
    """

    path: Path
    size: int = 0


@dataclass(kw_only=True)
class ImportUpload(Upload):
    """A file to be imported.

    Attributes:
        lock: The lock of its folder, which this process holds; the operating system releases it if the process ends.
        started: Whether the file belongs to a job.
    """

    lock: FileLock
    started: bool = False


class JobStoppedError(Exception):
    """Raised in an import that was cancelled, or when the server is shutting down."""


class _ServerClosedError(Exception):
    """Raised for an import that the next server continues."""


# Adds the pairs of a corpus to the job's memory; returns the number of new pairs and a summary in words.
AddPairs = Callable[[Job, Iterator[Pair], Corpus], tuple[int, str]]


class Jobs:
    """Imports files, two at a time but one of each owner and memory, and keeps the state of the last hundred jobs.

    Args:
        add: Adds pairs to a memory.
        languages: Returns the source and the target language of a memory by its name.
        limits: Limits of imported files.
        folders: The folders of the memories that accept imports, by name.
        finished: Called with each job that has ended.
    """

    def __init__(
        self,
        add: AddPairs,
        languages: Callable[[str], tuple[str, str]],
        limits: Limits,
        folders: Mapping[str, Path],
        finished: Callable[[Job], None] = lambda _: None,
    ) -> None:
        self._add = add
        self._languages = languages
        self._limits = limits
        self._folders = folders
        self._finished = finished
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._receiving: Counter[str] = Counter()
        self._closed = False
        self._max_stored_bytes = MAX_RUNNING * limits.import_bytes
        self._stored_bytes = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[Job, ImportUpload]] = []
        self._active: list[Job] = []
        self._workers = ThreadPoolExecutor(_WORKERS, "ibidem-import")

    def resume(self) -> None:
        """Continue the imports of a server that has ended, and remove files that were not sent completely."""
        for memory, folder in self._folders.items():
            for place in sorted((folder / WORK).glob(_FOLDER + "*")):
                lock = FileLock(place / LOCK, fallback_to_soft=False)
                try:
                    lock.acquire(timeout=0)
                except (Timeout, OSError):
                    continue  # another server on the same memory has this import
                job = _read_job(place, memory)
                upload = ImportUpload(path=place / (job.file if job else "file"), lock=lock)
                if job is not None:
                    self._jobs[job.id] = job
                if job is None or (job.state == "running" and not upload.path.is_file()):
                    self._remove(upload)
                elif job.state == "running":
                    upload.size = upload.path.stat().st_size
                    self._stored_bytes += upload.size
                    upload.started = True
                    self._waiting.append((job, upload))
                else:
                    lock.release()
        self._forget_old()
        with self._lock:
            self._start_waiting()

    def is_importing(self, memory: str) -> bool:
        """Return whether a file is being sent to or imported into a memory.

        Args:
            memory: Name of the memory.
        """
        with self._lock:
            running = any(job.memory == memory and job.state == "running" for job in self._jobs.values())
            return running or self._receiving[memory] > 0

    def find(self, id: str) -> Job:
        """Return a job.

        Args:
            id: The id of the job, as the client sent it.

        Raises:
            HttpError: 404, there is no job with this id, or it was too long ago.
        """
        if id not in self._jobs:
            raise HttpError(404, "There is no such job.")
        return self._jobs[id]

    @contextlib.contextmanager
    def receive(self, memory: str, name: str) -> Iterator[ImportUpload]:
        """Provide a folder for a file that is being sent; it is removed if sending fails.

        The file does not count as an import until `start`, so that slow clients do not block others. `grow` limits the
        disk space of all files.

        Args:
            memory: Name of the memory, which must accept imports.
            name: The client's name of the file; its ending gives the format.

        Yields:
            The upload, whose file does not exist yet.

        Raises:
            HttpError: 404, there is no such memory; 503, too many imports are running.
        """
        self._check_running()
        with self._lock:
            if memory not in self._folders:
                raise HttpError(404, "There is no memory of this name, or the server is read-only.")
            place = self._folders[memory] / WORK / (_FOLDER + secrets.token_urlsafe(12))
            self._receiving[memory] += 1
        try:
            with self._receive(place, name) as upload:
                yield upload
        finally:
            with self._lock:
                self._receiving[memory] -= 1

    @contextlib.contextmanager
    def _receive(self, place: Path, name: str) -> Iterator[ImportUpload]:
        make_directory(place)
        upload = ImportUpload(path=place / safe_name(name), lock=FileLock(place / LOCK, fallback_to_soft=False))
        upload.lock.acquire(timeout=0)
        try:
            yield upload
        except BaseException:
            if not upload.started:
                self._remove(upload)
            raise

    def grow(self, upload: ImportUpload, size: int) -> None:
        """Count bytes before they are written.

        Args:
            upload: The file that is being sent.
            size: Bytes to write next.

        Raises:
            HttpError: 503, all files together are too large.
        """
        with self._lock:
            if self._stored_bytes + size > self._max_stored_bytes:
                raise HttpError(503, "Other files are being imported: try again later.", retry_after=30)
            self._stored_bytes += size
        upload.size += size

    def start(self, memory: str, upload: ImportUpload, bad_pairs: str = "stop", owner: str = "") -> Job:
        """Import a complete file, and remove it afterwards; the job is on disk when the function returns.

        Args:
            memory: Name of the memory, which must exist.
            upload: The complete file.
            bad_pairs: What to do about defects of the file; see `ibidem.check.guard`.
            owner: Name of the owner of the API key, "" without a key.

        Returns:
            The job, whose attributes change while it runs.

        Raises:
            HttpError: 503, too many imports of this owner or of all are running, or the server is shutting down.
        """
        name = upload.path.parent.name.removeprefix(_FOLDER)
        job = Job(name, memory, upload.path.name, bad_pairs=bad_pairs, owner=owner)
        _sync(upload.path)
        _write_job(upload.path.parent, job)
        with self._lock:
            self._check_running(owner)
            if self._closed:
                raise ClosingError
            upload.started = True
            self._jobs[job.id] = job
            self._waiting.append((job, upload))
            self._start_waiting()
            self._forget_old()
        return job

    def check(self, job: Job) -> None:
        """Check whether a job may go on; called often while a file is read and learnt.

        Args:
            job: The running job.

        Raises:
            JobStoppedError: The job was cancelled, or the server is shutting down.
        """
        if job.cancelled or self._closed:
            raise JobStoppedError

    def cancel(self, job: Job) -> None:
        """Cancel a job; pairs that were already added remain.

        Args:
            job: The job; one that has ended stays as it is.
        """
        job.cancelled = True
        with self._lock:
            waiting = [one for one in self._waiting if one[0] is job]
            self._waiting = [one for one in self._waiting if one[0] is not job]
        for one in waiting:
            self._finish(*one)

    def close(self) -> None:
        """Stop all imports; pairs that were already added remain, and the next server continues the imports."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for _, upload in waiting:
            upload.lock.release()  # the file stays for the next server
        self._workers.shutdown(wait=True)

    def _check_running(self, owner: str = "") -> None:
        running = [job.owner for job in list(self._jobs.values()) if job.state == "running"]
        # Half of the places remain for other owners. Without keys all requests have one owner.
        if len(running) >= MAX_RUNNING or (owner and running.count(owner) >= MAX_RUNNING // 2):
            raise HttpError(503, "Other files are being imported: try again later.", retry_after=30)

    def _start_waiting(self) -> None:
        """Start imports in the order of their arrival, but one of each owner and memory; the lock must be held."""
        for job, upload in list(self._waiting):
            if self._closed or len(self._active) == _WORKERS:
                return
            if not any(job.owner == one.owner or job.memory == one.memory for one in self._active):
                self._waiting.remove((job, upload))
                self._active.append(job)
                self._workers.submit(self._run, job, upload)

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.state != "running"]
        for job in ended[: max(0, len(self._jobs) - _MAX_KEPT)]:
            del self._jobs[job.id]
            if job.memory in self._folders:
                shutil.rmtree(self._folders[job.memory] / WORK / (_FOLDER + job.id), ignore_errors=True)

    def _remove(self, upload: ImportUpload) -> None:
        shutil.rmtree(upload.path.parent, ignore_errors=True)
        upload.lock.release()
        self._give_back(upload)

    def _give_back(self, upload: ImportUpload) -> None:
        with self._lock:
            self._stored_bytes -= upload.size

    def _run(self, job: Job, upload: ImportUpload) -> None:
        try:
            self._finish(job, upload)
        finally:
            with self._lock:
                self._active = [one for one in self._active if one is not job]
                self._start_waiting()

    def _finish(self, job: Job, upload: ImportUpload) -> None:
        """Import a file unless its job was cancelled, and store the result."""
        try:
            state, message = self._import(job, upload.path)
        except _ServerClosedError:
            upload.lock.release()  # the file stays for the next server
            return
        # The result is on disk before the file is removed: a kill in between repeats the import, which adds nothing.
        try:
            _write_job(upload.path.parent, replace(job, state=state, message=message))
            upload.path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("The state of an import was not stored: %s", error)
        upload.lock.release()
        self._give_back(upload)
        job.state, job.message = state, message
        self._finished(job)

    def _import(self, job: Job, path: Path) -> tuple[str, str]:
        """Import a file; return the final state of its job and the message."""
        try:
            self.check(job)
            reader = _FileReader(self, job, path, self._limits, self._languages(job.memory))
            report = guard(reader.corpus, job.bad_pairs, settings=_CHECK)
            job.read = 0
            job.added, message = self._add(job, iter(reader), reader.corpus)
            self.check(job)
            if report is not None and report.warnings and job.bad_pairs == "stop":
                message += "; warnings: " + " ".join(finding.message for finding in report.warnings)
                message = message[:_MAX_MESSAGE]
        except JobStoppedError:
            if not job.cancelled:
                raise _ServerClosedError from None
            return "cancelled", f"stopped after {job.read:,} pairs; pairs that were already learnt remain"
        except RefusedTextError as error:
            job.refused = True
            return "failed", error.reasons.replace(str(path), path.name)[:_MAX_MESSAGE]
        except (IbidemError, HttpError) as error:
            return "failed", str(error).replace(str(path), path.name)[:_MAX_MESSAGE]
        except Exception:
            logger.exception("An import failed.")
            return "failed", "Internal error: see the log of the server."
        return "done", message


class _FileReader:
    """Reads the pairs of a file; stops with its job and at the limits of imports."""

    def __init__(self, jobs: Jobs, job: Job, path: Path, limits: Limits, languages: tuple[str, str]) -> None:
        self._jobs = jobs
        self._job = job
        self._path = path
        self._limits = limits
        self._seconds = 0.0
        self._since = monotonic()
        source, target = languages
        self.corpus = Corpus(
            [path],
            source_language=source,
            target_language=target,
            limits=replace(_UPLOAD_LIMITS, expanded_bytes=limits.import_unpacked_bytes),
            check=self._check,
        )

    def __iter__(self) -> Iterator[Pair]:
        self._since = monotonic()
        for pair in self.corpus:
            self._check()
            # The consumer learns while this generator is suspended, which is not time spent on reading.
            self._seconds += monotonic() - self._since
            yield replace(pair, origin=self._path.name)
            self._since = monotonic()

    def _check(self) -> None:
        """Check the state of the job and the limits; called for each block, also for one without a pair."""
        self._job.read = self.corpus.counts.read
        self._jobs.check(self._job)
        if self._job.read > self._limits.import_pairs:
            raise HttpError(400, f"The file has more than {self._limits.import_pairs:,} pairs: import it in parts.")
        if self._seconds + monotonic() - self._since > self._limits.import_seconds:
            raise HttpError(
                400, f"Reading the file takes more than {self._limits.import_seconds:g} seconds: import it in parts."
            )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_job(folder: Path, job: Job) -> None:
    """Store a job durably, without its progress."""
    kept = {name: value for name, value in asdict(job).items() if name != "cancelled"}
    replace_file(folder / _STATE, json.dumps(kept).encode("utf-8"))


def _read_job(folder: Path, memory: str) -> Job | None:
    """Read the job of a folder; None if its file was not sent completely, or the job cannot be read."""
    try:
        with (folder / _STATE).open("rb") as file:
            found = json.loads(file.read(_MAX_STATE_BYTES))
        job = Job(
            folder.name.removeprefix(_FOLDER),
            memory,
            safe_name(str(found["file"])),
            state=str(found["state"]),
            read=int(found["read"]),
            added=int(found["added"]),
            message=str(found["message"])[:_MAX_MESSAGE],
            bad_pairs=check_policy(str(found.get("bad_pairs", "stop"))),
            refused=found.get("refused") is True,
            owner=str(found.get("owner", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, UsageError):
        return None
    return job if job.state in ("running", "done", "failed", "cancelled") else None


@contextlib.contextmanager
def new_upload(name: str) -> Iterator[Upload]:
    """Make a temporary folder for a file that a client sends; it is removed if the block fails.

    Args:
        name: The client's name of the file.

    Yields:
        The upload, whose file does not exist yet.
    """
    upload = Upload(Path(tempfile.mkdtemp(prefix="ibidem-")) / safe_name(name))
    try:
        yield upload
    except BaseException:
        shutil.rmtree(upload.path.parent, ignore_errors=True)
        raise


def safe_name(name: str) -> str:
    """Convert a client's file name to one that is not a path and not hidden.

    Characters other than letters, digits, dots and dashes are replaced by underscores. Of a long name the last 100
    bytes remain, because file systems count bytes.

    Args:
        name: The name as the client sent it, possibly with folders.

    Examples:
        >>> safe_name("../../ä ö.tmx")
        'ä_ö.tmx'
    """
    encoded = re.sub(r"[^\w.-]", "_", file_name(name)).encode("utf-8", "replace")
    found = encoded[-_MAX_NAME_BYTES:].decode("utf-8", "ignore").lstrip(".") or "file"
    return f"_{found}" if found in (_STATE, LOCK) else found
