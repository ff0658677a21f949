"""Files that are imported into a memory in the background, and how far they are."""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ibidem.errors import IbidemError
from ibidem.serve.citations import file_name
from ibidem.serve.refusal import Refusal
from ibidem.text import Corpus, Pair

logger = logging.getLogger("ibidem.serve")

_MOST_WAITING = 8
_MOST_REMEMBERED = 100
_LONGEST_NAME = 100


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


# Adds pairs of a corpus to the job's memory: how many were new, and what was read and left out, in words.
Add = Callable[[Job, Iterator[Pair], Corpus], tuple[int, str]]


class Jobs:
    """Imports one file after the other; the last hundred jobs are remembered."""

    def __init__(self, add: Add, languages: tuple[str, str], most_pairs: int) -> None:
        self._add = add
        self._languages = languages
        self._most_pairs = most_pairs
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._arriving = 0
        self._worker = ThreadPoolExecutor(1, "ibidem-import")

    def find(self, id: str) -> Job:
        """The job with this id; refused where there is none, or none any more."""
        if id not in self._jobs:
            raise Refusal(404, "There is no such job.")
        return self._jobs[id]

    @contextlib.contextmanager
    def receive(self, name: str) -> Iterator[Path]:
        """The path for a file that is being sent, in a folder of its own, which is removed where sending fails."""
        if self._arriving + sum(job.state == "running" for job in self._jobs.values()) >= _MOST_WAITING:
            raise Refusal(503, "Other files are being imported: try again later.", retry_after=30)
        self._arriving += 1
        folder = Path(tempfile.mkdtemp(prefix="ibidem-"))
        try:
            yield folder / safe_name(name)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self._arriving -= 1

    def start(self, memory: str, path: Path) -> Job:
        """Import a file, and remove it and its folder then."""
        job = Job(secrets.token_urlsafe(12), memory, path.name)
        self._jobs[job.id] = job
        while len(self._jobs) > _MOST_REMEMBERED:
            self._jobs.popitem(last=False)
        self._worker.submit(self._run, job, path)
        return job

    def close(self) -> None:
        """Stop what runs where it is; what was added stays."""
        for job in self._jobs.values():
            job.cancelled = True
        self._worker.shutdown(wait=True)

    def _run(self, job: Job, path: Path) -> None:
        try:
            source, target = self._languages
            corpus = Corpus([path], source_language=source, target_language=target)
            job.added, job.message = self._add(job, self._pairs(job, corpus, path), corpus)
            job.state = "cancelled" if job.cancelled else "done"
        except (IbidemError, Refusal) as error:
            job.state, job.message = "failed", str(error).replace(str(path), path.name)
        except Exception:
            logger.exception("An import failed.")
            job.state, job.message = "failed", "Something went wrong on the server; its log says what."
        finally:
            shutil.rmtree(path.parent, ignore_errors=True)

    def _pairs(self, job: Job, corpus: Corpus, path: Path) -> Iterator[Pair]:
        """The pairs of a file under its own name, until the job is cancelled or there are too many."""
        for pair in corpus:
            job.read = corpus.counts.read
            if job.cancelled:
                return
            if job.read > self._most_pairs:
                raise Refusal(400, f"The file holds more than {self._most_pairs:,} pairs: import it in parts.")
            yield replace(pair, origin=path.name)


def safe_name(name: str) -> str:
    """The last part of a name, of letters, digits, dots and dashes, which is no path and not hidden."""
    return re.sub(r"[^\w.-]", "_", file_name(name)).lstrip(".")[-_LONGEST_NAME:] or "file"
