"""Translation of uploaded documents in the background, by a bounded number of jobs whose files are removed later."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from ibidem.errors import IbidemError
from ibidem.memory import remove_file
from ibidem.serve.http_error import ClosingError, HttpError
from ibidem.serve.jobs import JobStoppedError, Upload, new_upload, safe_name
from ibidem.text import (
    FillSettings,
    check_languages,
    document_endings,
    fill,
    find_document_format,
    open_document,
    plain_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.serve.limits import Limits
    from ibidem.serve.request import RequestOptions
    from ibidem.serve.text_translation import TextTranslation

logger = logging.getLogger("ibidem.serve")

_WORKERS = 8
_OWNER_WORKERS = 2
_SWEEP_SECONDS = 10.0
_MAX_MESSAGE = 1_000
_MAX_FAILURES = 200
# Documents of the largest size that may arrive at the same time.
_MAX_INCOMING = 8
_ACTIVE = ("queued", "running")


@dataclass
class DocumentJob:
    """A document that is translated, or was translated and can be downloaded.

    Attributes:
        id: Random id, which clients use in paths.
        key: A second random text, which DeepL's clients send with the id.
        owner: Name of the owner of the API key; "" without a key.
        file: Name of the file.
        format: Name of its format.
        options: The memories.
        folder: Folder of the upload and of the translation.
        min_confidence: Texts of a lower confidence are left out.
        state: `queued`, `running`, then `done`, `failed` or `cancelled`.
        share: Fraction of the segments that were translated.
        characters: Characters of all segments.
        message: Result in words.
        failures: The segments without a translation, each with its place and the reason.
        confidence: The mean confidence of the translated segments; None if it is unknown.
        cancelled: Whether the job has to stop.
        delivered: Whether the translation was downloaded; it is removed first if there is no room.
        finished: Time at which the job ended, by the monotonic clock.
        ended: Completed when the job ends.
    """

    id: str
    key: str
    owner: str
    file: str
    format: str
    options: RequestOptions
    folder: Path
    min_confidence: float = 0.0
    state: str = "queued"
    share: float = 0.0
    characters: int = 0
    message: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    confidence: float | None = None
    cancelled: bool = False
    delivered: bool = False
    finished: float | None = None
    ended: Future[None] = field(default_factory=Future)

    @property
    def source(self) -> Path:
        """Path of the upload."""
        return self.folder / self.file

    @property
    def result(self) -> Path:
        """Path of the translation."""
        return self.folder / "translated"


# Translates single lines with options; calls the check often while it waits.
TranslateLines = Callable[["RequestOptions", list[str], Callable[[], None]], Sequence["TextTranslation"]]


class Documents:
    """Translates documents, a few at a time, and keeps the translations for a while.

    Args:
        translate: Translates lines, in small parts so that other requests are not delayed.
        languages: Source and target language of jobs whose options name none.
        limits: Limits on the number, the size and the age of documents.
    """

    def __init__(self, translate: TranslateLines, languages: tuple[str, str], limits: Limits) -> None:
        self._translate = translate
        self._languages = languages
        self._limits = limits
        self._jobs: OrderedDict[str, DocumentJob] = OrderedDict()
        self._queue: list[DocumentJob] = []
        self._running: Counter[str] = Counter()
        self._incoming_bytes = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._workers = ThreadPoolExecutor(_WORKERS, "ibidem-document")
        self._sweeper: threading.Thread | None = None

    @contextlib.contextmanager
    def receive(self, name: str) -> Iterator[Upload]:
        """Provide a folder for a document that is being sent; it is removed if sending fails.

        Args:
            name: The client's name of the file.

        Yields:
            The upload, whose file does not exist yet.

        Raises:
            HttpError: 503, too many documents are stored.
        """
        self._check_count("")
        with new_upload(name) as upload:
            try:
                yield upload
            finally:
                with self._lock:
                    self._incoming_bytes -= upload.size

    def grow(self, upload: Upload, size: int) -> None:
        """Count bytes of uploads in progress before they are written.

        Args:
            upload: The file that is being sent.
            size: Bytes to write next.

        Raises:
            HttpError: 503, all uploads together are too large.
        """
        with self._lock:
            if self._incoming_bytes + size > _MAX_INCOMING * self._limits.document_bytes:
                raise HttpError(503, "Other documents are being sent: try again later.", retry_after=30)
            self._incoming_bytes += size
        upload.size += size

    def start(
        self,
        upload: Upload,
        owner: str,
        options: RequestOptions,
        name: str | None = None,
        *,
        min_confidence: float = 0.0,
    ) -> DocumentJob:
        """Translate a complete document.

        Args:
            upload: The complete file; its folder is removed with the document.
            owner: Name of the owner of the API key, "" without a key.
            options: The memories.
            name: A name of the file whose ending gives the format, if that of the upload gives none.
            min_confidence: Texts of a lower confidence are left out.

        Returns:
            The job, whose attributes change while it runs.

        Raises:
            HttpError: 400, the format is unknown; 429, the key has too many documents; 503, too many are stored, or the
                server is shutting down.
        """
        self._check_count(owner)
        path = upload.path
        if name and find_document_format(path.name) is None:
            path = path.rename(path.with_name(safe_name(name)))
        format = find_document_format(path.name)
        if format is None:
            known = ", ".join(document_endings())
            raise HttpError(400, f"Invalid request: file format not supported; known are {known}")
        tokens = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        job = DocumentJob(*tokens, owner, path.name, format, options, path.parent, min_confidence)
        with self._lock:
            if self._closed.is_set():
                raise ClosingError
            self._jobs[job.id] = job
            self._queue.append(job)
            self._start_queued()
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._sweep, name="ibidem-sweeper", daemon=True)
                self._sweeper.start()
        return job

    def find(self, id: str, owner: str, key: str | None = None) -> DocumentJob:
        """Return a document of a client.

        Args:
            id: The id of the document, as the client sent it.
            owner: Name of the owner of the API key of the request, "" without a key.
            key: The second text, if the API requires it.

        Raises:
            HttpError: 404, there is no such document, it was removed, or it belongs to another key.
        """
        job = self._jobs.get(id)
        if job is None or job.owner != owner or not (key is None or secrets.compare_digest(job.key, key)):
            raise HttpError(404, "There is no such document: it was removed, or it belongs to another key.")
        return job

    def find_result(self, name: str) -> DocumentJob:
        """Return a translated document by the name in its address.

        Args:
            name: The id of the document and the ending of its file.

        Raises:
            HttpError: 404, there is no such document.
        """
        job = self._jobs.get(name.partition(".")[0])
        if job is None or job.state != "done":
            raise HttpError(404, "There is no such file: it was removed.")
        return job

    def remove(self, job: DocumentJob) -> None:
        """Stop a job and remove its files; a running job removes them when it stops.

        Args:
            job: The document.
        """
        job.cancelled = True
        with self._lock:
            self._jobs.pop(job.id, None)
            if job in self._queue:
                self._queue.remove(job)
                self._end(job, "cancelled")
        if job.state not in _ACTIVE:
            shutil.rmtree(job.folder, ignore_errors=True)

    def close(self) -> None:
        """Stop all jobs and remove all files."""
        with self._lock:
            self._closed.set()
        self._workers.shutdown(wait=True)
        for job in list(self._jobs.values()):
            self.remove(job)

    def _check_count(self, owner: str) -> None:
        self._remove_old()
        jobs = list(self._jobs.values())
        own = [job for job in jobs if job.owner == owner]
        # Other owners find room, whatever one owner sends. Without keys all requests have one owner.
        most = self._limits.documents // 2 if owner else self._limits.documents
        for stored, limit in ((own, max(most, 1)), (jobs, self._limits.documents)):
            if len(stored) >= limit:
                delivered = next((job for job in stored if job.delivered), None)
                if delivered is None:
                    raise HttpError(503, "Too many documents are stored: try again later.", retry_after=60)
                self.remove(delivered)
        active = [job for job in own if job.state in _ACTIVE]
        if owner and len(active) >= self._limits.client_documents:
            raise HttpError(429, "Too many documents at once: wait until one is translated.", retry_after=10)

    def _remove_old(self) -> None:
        limit = monotonic() - self._limits.document_keep_seconds
        for job in list(self._jobs.values()):
            if job.finished is not None and job.finished < limit:
                self.remove(job)

    def _sweep(self) -> None:
        while not self._closed.wait(min(_SWEEP_SECONDS, self._limits.document_keep_seconds)):
            self._remove_old()

    def _check(self, job: DocumentJob) -> None:
        if job.cancelled or self._closed.is_set():
            raise JobStoppedError

    def _start_queued(self) -> None:
        """Start documents in the order of their arrival, but only two of each owner; the lock must be held."""
        for job in list(self._queue):
            if self._closed.is_set() or self._running.total() == _WORKERS:
                return
            if self._running[job.owner] < _OWNER_WORKERS:
                self._queue.remove(job)
                self._running[job.owner] += 1
                job.state = "running"
                self._workers.submit(self._run, job)

    def _end(self, job: DocumentJob, state: str) -> None:
        job.finished = monotonic()
        job.state = state
        if not job.ended.done():  # the client may have cancelled it
            job.ended.set_result(None)

    def _run(self, job: DocumentJob) -> None:
        try:
            self._finish(job)
        finally:
            with self._lock:
                self._running[job.owner] -= 1
                self._running += Counter()  # without owners that have no document
                self._start_queued()

    def _finish(self, job: DocumentJob) -> None:
        """Translate a document, and store how it ended."""
        try:
            self._check(job)
            self._translate_document(job)
            state = "done"
        except JobStoppedError:
            state, job.message = "cancelled", "stopped"
        except (IbidemError, HttpError) as error:
            state, job.message = "failed", str(error).replace(str(job.source), job.file)[:_MAX_MESSAGE]
        except Exception:
            logger.exception("The translation of a document failed.")
            state, job.message = "failed", "Internal error: see the log of the server."
        remove_file(job.source)  # whose error must not keep the job from ending
        self._end(job, state)
        if job.cancelled or self._closed.is_set():
            shutil.rmtree(job.folder, ignore_errors=True)

    def _translate_document(self, job: DocumentJob) -> None:
        source, target = job.options.pair or self._languages
        document = open_document(job.source, format=job.format, source_language=source, target_language=target)
        check_languages(document, source, target)
        job.characters = sum(len(plain_text(segment.source)) for segment in document.segments)
        if job.characters > self._limits.document_characters:
            raise HttpError(
                400,
                f"The document has {job.characters:,} characters, more than {self._limits.document_characters:,}: "
                "divide it.",
            )
        done = 0
        confidences: dict[str, float | None] = {}
        missing: set[int] = set()

        def translate(lines: list[str]) -> list[str]:
            nonlocal done
            found: list[str] = []
            for part in split_lines_into_parts(lines):
                translations = self._translate(job.options, part, lambda: self._check(job))
                found += [translation.text for translation in translations]
                known = [translation.confidence for translation in translations]
                confidences.update(zip(part, known, strict=True))
                missing.update(number for translation in translations for number in translation.missing_shards)
                done += sum(map(len, part))
                # Some texts are translated again, so the estimate never reaches the end before the job does.
                job.share = min(0.99, done / max(job.characters, 1))
            return found

        settings = FillSettings(min_confidence=job.min_confidence)
        targets, report = fill(document, translate, settings, confidences=confidences)
        self._check(job)
        with job.result.open("wb") as file:
            file.writelines(document.write(targets))
        job.share = 1.0
        job.failures = [failure.to_json() for failure in (report.failed + report.unsure)[:_MAX_FAILURES]]
        job.confidence = report.mean_confidence
        job.message = report.describe().replace(str(job.source), job.file)
        if missing:
            absent = ", ".join(map(str, sorted(missing)))
            job.message += f"; some texts were translated without shard {absent} of a memory, which did not answer"


_PART_CHARACTERS = 2_000
_PART_LINES = 32


def split_lines_into_parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Divide lines into parts that the decoder translates in about a second.

    Args:
        lines: The lines.

    Yields:
        Lists of lines in order, each of at least one.

    Examples:
        >>> [len(part) for part in split_lines_into_parts(["x" * 1_500] * 3)]
        [1, 1, 1]
    """
    part: list[str] = []
    size = 0
    for line in lines:
        if part and (size + len(line) > _PART_CHARACTERS or len(part) == _PART_LINES):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield part
