"""Background imports of files into a memory, and their progress."""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ibidem.errors import IbidemError
from ibidem.serve.http_error import ClosingError, HttpError
from ibidem.serve.memory_writer import file_name
from ibidem.text import Corpus, Pair, ReadLimits

if TYPE_CHECKING:
    from ibidem.serve.limits import Limits

logger = logging.getLogger("ibidem.serve")

MAX_RUNNING = 8
_MAX_KEPT = 100
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


@dataclass
class Upload:
    """A file that a client sends.

    Attributes:
        path: Path of the local copy, in a folder of its own.
        size: Bytes that count against the limit on stored bytes.
    """

    path: Path
    size: int = 0


class JobStoppedError(Exception):
    """Raised in an import that was cancelled, or when the server is shutting down."""


# Adds the pairs of a corpus to the job's memory; returns the number of new pairs and a summary in words.
AddPairs = Callable[[Job, Iterator[Pair], Corpus], tuple[int, str]]


class Jobs:
    """Imports one file after the other, and keeps the state of the last hundred jobs.

    Args:
        add: Adds pairs to a memory.
        languages: Source and target language of the pairs.
        limits: Limits of imported files.
    """

    def __init__(self, add: AddPairs, languages: tuple[str, str], limits: Limits) -> None:
        self._add = add
        self._languages = languages
        self._limits = limits
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._closed = False
        self._max_stored_bytes = MAX_RUNNING * limits.import_bytes
        self._stored_bytes = 0
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "ibidem-import")

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
    def receive(self, name: str) -> Iterator[Upload]:
        """Provide a folder for a file that is being sent; it is removed if sending fails.

        The file does not count as an import until `start`, so that slow clients do not block others. `grow` limits the
        disk space of all files.

        Args:
            name: The client's name of the file; its ending gives the format.

        Yields:
            The upload, whose file does not exist yet.

        Raises:
            HttpError: 503, too many imports are running.
        """
        self._check_running()
        with new_upload(name) as upload:
            try:
                yield upload
            except BaseException:
                self._count_removed(upload)
                raise

    def grow(self, upload: Upload, size: int) -> None:
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

    def start(self, memory: str, upload: Upload) -> Job:
        """Import a complete file, and remove it with its folder afterwards.

        Args:
            memory: Name of the memory, which must exist.
            upload: The complete file.

        Returns:
            The job, whose attributes change while it runs.

        Raises:
            HttpError: 503, too many imports are running, or the server is shutting down.
        """
        self._check_running()
        job = Job(secrets.token_urlsafe(12), memory, upload.path.name)
        try:
            self._worker.submit(self._run, job, upload)
        except RuntimeError:  # the pool was shut down
            raise ClosingError from None
        self._jobs[job.id] = job
        while len(self._jobs) > _MAX_KEPT:
            self._jobs.popitem(last=False)
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

    def close(self) -> None:
        """Stop all imports; pairs that were already added remain."""
        self._closed = True
        self._worker.shutdown(wait=True)

    def _check_running(self) -> None:
        if sum(job.state == "running" for job in self._jobs.values()) >= MAX_RUNNING:
            raise HttpError(503, "Other files are being imported: try again later.", retry_after=30)

    def _count_removed(self, upload: Upload) -> None:
        with self._lock:
            self._stored_bytes -= upload.size

    def _run(self, job: Job, upload: Upload) -> None:
        try:
            state, message = self._import(job, upload.path)
        finally:
            shutil.rmtree(upload.path.parent, ignore_errors=True)
            self._count_removed(upload)
        job.state, job.message = state, message

    def _import(self, job: Job, path: Path) -> tuple[str, str]:
        """Import a file; return the final state of its job and the message."""
        try:
            self.check(job)
            reader = _FileReader(self, job, path, self._limits, self._languages)
            job.added, message = self._add(job, iter(reader), reader.corpus)
            self.check(job)
        except JobStoppedError:
            return "cancelled", f"stopped after {job.read:,} pairs; pairs that were already learnt remain"
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
    return encoded[-_MAX_NAME_BYTES:].decode("utf-8", "ignore").lstrip(".") or "file"
