"""Files that are imported into a memory in the background, and how far they are."""

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
from ibidem.serve.citations import file_name
from ibidem.serve.refusal import ClosingError, Refusal
from ibidem.text import Corpus, Pair, ReadLimits

if TYPE_CHECKING:
    from ibidem.serve.settings import Limits

logger = logging.getLogger("ibidem.serve")

MOST_WAITING = 8
_MOST_REMEMBERED = 100
_LONGEST_NAME = 100
_LONGEST_MESSAGE = 1_000
# Limits for uploaded files; the defaults of ReadLimits are for files of the machine's owner.
_STRICT = ReadLimits(
    ratio=100,
    ratio_bytes=1 << 26,
    unpack_bytes=1 << 27,
    whole_bytes=1 << 26,
    dropped_in_a_row=500_000,
    segment=20_000,
)


@dataclass
class Job:
    """An import: `running`, then `done`, `failed` or `cancelled`; share: how much of the file is learnt, if known."""

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
    """A file that a client sends, and how many bytes of it are counted as stored."""

    path: Path
    size: int = 0


class JobStoppedError(Exception):
    """An import was cancelled, or the server is being shut down."""


# Adds pairs of a corpus to the job's memory: how many were new, and what was read and left out, in words.
Add = Callable[[Job, Iterator[Pair], Corpus], tuple[int, str]]


class Jobs:
    """Imports one file after the other; the last hundred jobs are remembered."""

    def __init__(self, add: Add, languages: tuple[str, str], limits: Limits) -> None:
        self._add = add
        self._languages = languages
        self._limits = limits
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._closed = False
        self._most_bytes = MOST_WAITING * limits.import_bytes
        self._stored_bytes = 0
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "ibidem-import")

    def find(self, id: str) -> Job:
        """The job with this id; refused where there is none, or none any more."""
        if id not in self._jobs:
            raise Refusal(404, "There is no such job.")
        return self._jobs[id]

    @contextlib.contextmanager
    def receive(self, name: str) -> Iterator[Upload]:
        """A file that is being sent, in a folder of its own, which is removed where sending fails.

        It takes no place among the imports until `start`, so that clients that send slowly do not keep others out.
        What the files take on the disk is limited by `grow`.
        """
        self._check_waiting()
        upload = Upload(Path(tempfile.mkdtemp(prefix="ibidem-")) / safe_name(name))
        try:
            yield upload
        except BaseException:
            self._remove(upload)
            raise

    def grow(self, upload: Upload, size: int) -> None:
        """Count bytes before they are written; raises Refusal 503 when all files together are too large."""
        with self._lock:
            if self._stored_bytes + size > self._most_bytes:
                raise Refusal(503, "Other files are being imported: try again later.", retry_after=30)
            self._stored_bytes += size
        upload.size += size

    def start(self, memory: str, upload: Upload) -> Job:
        """Import a file that has arrived, and remove it and its folder then; raises Refusal 503 if too many wait."""
        self._check_waiting()
        job = Job(secrets.token_urlsafe(12), memory, upload.path.name)
        try:
            self._worker.submit(self._run, job, upload)
        except RuntimeError:  # it is shut down
            raise ClosingError from None
        self._jobs[job.id] = job
        while len(self._jobs) > _MOST_REMEMBERED:
            self._jobs.popitem(last=False)
        return job

    def _check_waiting(self) -> None:
        if sum(job.state == "running" for job in self._jobs.values()) >= MOST_WAITING:
            raise Refusal(503, "Other files are being imported: try again later.", retry_after=30)

    def _remove(self, upload: Upload) -> None:
        shutil.rmtree(upload.path.parent, ignore_errors=True)
        with self._lock:
            self._stored_bytes -= upload.size

    def close(self) -> None:
        """Stop what runs where it is; what was added stays."""
        self._closed = True
        self._worker.shutdown(wait=True)

    def check(self, job: Job) -> None:
        """Raise JobStoppedError where a job is to stop; called often while a file is read and learnt."""
        if job.cancelled or self._closed:
            raise JobStoppedError

    def _run(self, job: Job, upload: Upload) -> None:
        try:
            state, message = self._import(job, upload.path)
        finally:
            self._remove(upload)
        job.state, job.message = state, message

    def _import(self, job: Job, path: Path) -> tuple[str, str]:
        """The state that a job ends in, and its message."""
        try:
            self.check(job)
            reading = _Reading(self, job, path, self._limits, self._languages)
            job.added, message = self._add(job, iter(reading), reading.corpus)
            self.check(job)
        except JobStoppedError:
            return "cancelled", f"stopped after {job.read:,} pairs; what was learnt until then stays"
        except (IbidemError, Refusal) as error:
            return "failed", str(error).replace(str(path), path.name)[:_LONGEST_MESSAGE]
        except Exception:
            logger.exception("An import failed.")
            return "failed", "Something went wrong on the server; its log says what."
        return "done", message


class _Reading:
    """The pairs of a file under its own name; stops where the job does, and at the limits of imports."""

    def __init__(self, jobs: Jobs, job: Job, path: Path, limits: Limits, languages: tuple[str, str]) -> None:
        self._jobs = jobs
        self._job = job
        self._path = path
        self._limits = limits
        self._spent = 0.0
        self._since = monotonic()
        source, target = languages
        self.corpus = Corpus(
            [path],
            source_language=source,
            target_language=target,
            limits=replace(_STRICT, expanded_bytes=limits.import_unpacked_bytes),
            check=self._check,
        )

    def __iter__(self) -> Iterator[Pair]:
        self._since = monotonic()
        for pair in self.corpus:
            self._check()
            # The consumer learns while this generator is suspended, which is not time spent on reading.
            self._spent += monotonic() - self._since
            yield replace(pair, origin=self._path.name)
            self._since = monotonic()

    def _check(self) -> None:
        """Stop or refuse the file; the reader calls it for each block, also where that holds no pair."""
        self._job.read = self.corpus.counts.read
        self._jobs.check(self._job)
        if self._job.read > self._limits.import_pairs:
            raise Refusal(400, f"The file holds more than {self._limits.import_pairs:,} pairs: import it in parts.")
        if self._spent + monotonic() - self._since > self._limits.import_seconds:
            raise Refusal(
                400, f"Reading the file takes more than {self._limits.import_seconds:g} seconds: import it in parts."
            )


def safe_name(name: str) -> str:
    """The last part of a name, of letters, digits, dots and dashes, which is no path and not hidden.

    File systems count bytes, so of a long name its last `_LONGEST_NAME` bytes are kept.
    """
    encoded = re.sub(r"[^\w.-]", "_", file_name(name)).encode("utf-8", "replace")
    return encoded[-_LONGEST_NAME:].decode("utf-8", "ignore").lstrip(".") or "file"
