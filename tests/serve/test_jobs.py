"""Imports of files: limits, cancellation, and removal of all files from the disk."""

from __future__ import annotations

import gzip
import lzma
import struct
import tempfile
import time
import urllib.parse
import zlib
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.serve import Limits, Service
from ibidem.serve import jobs as module
from ibidem.serve.http_error import ClosingError
from ibidem.serve.jobs import Job, Jobs, JobStoppedError, safe_name
from ibidem.text import Corpus, Pair, ReadLimits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import Client


MAX_SECONDS = 5.0


"""Seconds; each file below takes several times as long to read."""


@cache
def pack(head: bytes, part: bytes, times: int) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    at_once = 2**20 // len(part)
    parts = [packer.compress(head), *(packer.compress(part * at_once) for _ in range(times // at_once))]
    return b"".join([*parts, packer.flush()])


def headers_of_mo() -> bytes:
    """Five million entries without a source, which give no pair."""
    count = 5_000_000
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28, 0, 0) + bytes(8 * count)


BOMBS = {
    "a.tsv.gz": lambda: pack(b"", b"\n", 50_000_000),
    "a.jsonl.gz": lambda: pack(b"", b"\n", 50_000_000),
    "a.tmx.gz": lambda: pack(b"<tmx><body>", b"<tu/>", 10_000_000),
    "a.xlf.gz": lambda: pack(b'<xliff version="1.2"><file><body>', b"<g/>", 10_000_000),
    "b.tsv.gz": lambda: gzip.compress(b"") * 3_000_000,
    "b.tsv.xz": lambda: lzma.compress(b"") * 1_000_000,
    "de.mo": headers_of_mo,
}


@pytest.fixture(autouse=True)
def upload_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of uploaded files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def loose(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Limits that no file here exceeds, so that only a cancellation ends its import."""
    monkeypatch.setattr(module, "_UPLOAD_LIMITS", ReadLimits(ratio=10**9, dropped_in_a_row=10**12))
    return Limits(import_pairs=10**12, import_unpacked_bytes=10**12, import_seconds=10**6)


def add(_: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
    """Replace a memory that learns without delay."""
    return sum(1 for _ in pairs), corpus.counts.describe()


def send(jobs: Jobs, name: str, content: bytes) -> Job:
    with jobs.receive(name) as upload:
        upload.path.write_bytes(content)
        return jobs.start("mine", upload)


def wait(job: Job, seconds: float = MAX_SECONDS) -> Job:
    deadline = time.monotonic() + seconds
    while job.state == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    return job


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_can_be_cancelled(name: str, upload_folder: Path, loose: Limits) -> None:
    jobs = Jobs(add, ("de", "en"), loose)
    job = send(jobs, name, BOMBS[name]())
    assert wait(job, 0.2).state == "running"
    assert list(upload_folder.iterdir())
    job.cancelled = True
    assert wait(job).state == "cancelled"
    assert "pairs that were already learnt remain" in job.message
    assert not list(upload_folder.iterdir())
    jobs.close()


def test_closing_cancels_running_and_waiting_jobs(upload_folder: Path, loose: Limits) -> None:
    jobs = Jobs(add, ("de", "en"), loose)
    sent = [send(jobs, "a.tsv.gz", BOMBS["a.tsv.gz"]()) for _ in range(3)]
    begun = time.monotonic()
    jobs.close()
    assert time.monotonic() - begun < MAX_SECONDS
    assert [job.state for job in sent] == ["cancelled"] * 3
    with pytest.raises(ClosingError):
        send(jobs, "a.tsv", b"a\tb\n")
    assert not list(upload_folder.iterdir())


def test_reading_time_is_limited(upload_folder: Path, loose: Limits) -> None:
    jobs = Jobs(add, ("de", "en"), replace(loose, import_seconds=0.2))
    job = send(jobs, "a.tsv.gz", BOMBS["a.tsv.gz"]())
    assert wait(job).state == "failed"
    assert job.message == "Reading the file takes more than 0.2 seconds: import it in parts."
    assert not list(upload_folder.iterdir())
    jobs.close()


def test_learning_time_is_not_limited() -> None:
    def learn(_: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        for _pair in pairs:
            time.sleep(0.1)
        return 0, corpus.counts.describe()

    jobs = Jobs(learn, ("de", "en"), Limits(import_seconds=0.25))
    assert wait(send(jobs, "a.tsv", b"a\tb\n" * 5)).state == "done"
    jobs.close()


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.tsv", lambda: b"\n" * 200_000, "more than 1,000 pairs"),
        (
            "a.tsv.gz",
            lambda: pack(b"", b"a" * 10_000 + b"\tb\n", 10_000),
            "a.tsv.gz: unpacks to more than 1,000,000 bytes",
        ),
        ("a.tmx.gz", lambda: pack(b"<tmx>", b"<a>", 16_700_000), "a.tmx.gz, line 1: more than 256 elements"),
        ("a.jsonl", lambda: b'{"%s": 1}' % (b"x" * 900_000), "a.jsonl, line 1: no 'de' side"),
    ],
)
def test_imports_are_limited(name: str, content: Any, what: str, upload_folder: Path) -> None:
    jobs = Jobs(add, ("de", "en"), Limits(import_pairs=1_000, import_unpacked_bytes=1_000_000))
    job = wait(send(jobs, name, content()))
    assert (job.state, what in job.message) == ("failed", True), job
    assert len(job.message) <= 1_000
    assert str(upload_folder) not in job.message
    assert not list(upload_folder.iterdir())
    jobs.close()


def test_long_segments_are_skipped() -> None:
    jobs = Jobs(add, ("de", "en"), Limits())
    job = wait(send(jobs, "a.tsv", b"a\tb\n" + b"a" * 30_000 + b"\tb\n"))
    assert (job.state, job.added) == ("done", 1)
    assert "1 longer than 20,000 characters" in job.message
    jobs.close()


def test_learning_stops_at_the_next_chunk() -> None:
    job = Job("1", "mine", "a.tsv")
    learnt: list[int] = []

    def learn(_: str, __: Any, ___: Any, tell: Any) -> None:
        for done in range(1, 10):
            learnt.append(done)
            job.cancelled = done == 3
            tell("Adding", None, done, "pairs")

    jobs = Jobs(add, ("de", "en"), Limits())
    corpus = SimpleNamespace(counts=None, fraction=lambda: None)
    service: Any = SimpleNamespace(jobs=jobs, writers=SimpleNamespace(add=learn))
    with pytest.raises(JobStoppedError):
        Service._import(service, job, iter(()), corpus)  # type: ignore[arg-type]
    assert learnt == [1, 2, 3]
    jobs.close()


@pytest.mark.parametrize(
    "name", ["../../x.tmx", "..\\x.tmx", ".x.tmx", "/etc/x.tmx", "a\x00b.tmx", "ä ö.tmx", "x" * 500 + ".tmx"]
)
def test_safe_names_are_not_paths(name: str) -> None:
    safe = safe_name(name)
    assert "/" not in safe
    assert "\\" not in safe
    assert not safe.startswith(".")
    assert safe.endswith(".tmx")
    assert len(safe) <= 100


@pytest.mark.parametrize("name", ["ä" * 500 + ".tsv", "😀" * 200 + ".tsv"])
def test_long_file_names_are_cut_in_bytes(writer: Client, name: str) -> None:
    assert len(safe_name(name).encode()) <= 100
    assert safe_name(name).endswith(".tsv")
    answer = writer.send("POST", f"/memories/mine/import?file={urllib.parse.quote(name)}", b"a\tb\n")
    assert answer.status == 202
