"""Imports of files: limits, cancellation, and removal of all files from the disk."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
import threading
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
from ibidem.serve.http_error import ClosingError, HttpError
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


@pytest.fixture
def upload_folder(tmp_path: Path) -> Path:
    """The folder of uploaded files."""
    return tmp_path / "work"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """The folder of the memory."""
    return {"mine": tmp_path}


def left(folder: Path) -> list[str]:
    """Return the names of the uploaded files that are on disk."""
    return [path.name for path in folder.glob("*/*") if path.name not in ("job.json", "lock")]


@pytest.fixture
def loose(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """Limits that no file here exceeds, so that only a cancellation ends its import."""
    monkeypatch.setattr(module, "_UPLOAD_LIMITS", ReadLimits(ratio=10**9, dropped_in_a_row=10**12))
    return Limits(import_pairs=10**12, import_unpacked_bytes=10**12, import_seconds=10**6)


def add(_: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
    """Replace a memory that learns without delay."""
    return sum(1 for _ in pairs), corpus.counts.describe()


def send(jobs: Jobs, name: str, content: bytes) -> Job:
    with jobs.receive("mine", name) as upload:
        upload.path.write_bytes(content)
        return jobs.start("mine", upload)


def wait(job: Job, seconds: float = MAX_SECONDS) -> Job:
    deadline = time.monotonic() + seconds
    while job.state == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    return job


def test_an_owner_does_not_wait_for_the_imports_of_another(folders: dict[str, Path], tmp_path: Path) -> None:
    free = threading.Event()

    def learn(job: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        if job.memory == "mine":
            free.wait(MAX_SECONDS)
        return add(job, pairs, corpus)

    folders["other"] = tmp_path / "other"
    jobs = Jobs(learn, lambda _: ("de", "en"), Limits(), folders)

    def start(memory: str, owner: str) -> Job:
        with jobs.receive(memory, "a.tsv") as upload:
            upload.path.write_bytes(b"Eins\tOne\n")
            return jobs.start(memory, upload, "keep", owner)

    many = [start("mine", "one") for _ in range(4)]
    with pytest.raises(HttpError, match="Other files"):
        start("mine", "one")
    assert wait(start("other", "two")).state == "done"
    same = start("mine", "two")
    jobs.cancel(many[3])
    assert many[3].state == "cancelled", "a job that waits ends at once"
    assert [job.state for job in (*many[:3], same)] == ["running"] * 4
    free.set()
    assert {wait(job).state for job in (*many[:3], same)} == {"done"}
    jobs.close()


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_can_be_cancelled(
    name: str, upload_folder: Path, loose: Limits, folders: dict[str, Path]
) -> None:
    jobs = Jobs(add, lambda _: ("de", "en"), loose, folders)
    job = send(jobs, name, BOMBS[name]())
    assert wait(job, 0.2).state == "running"
    assert left(upload_folder)
    job.cancelled = True
    assert wait(job).state == "cancelled"
    assert "pairs that were already learnt remain" in job.message
    assert not left(upload_folder)
    jobs.close()


def test_closing_stops_jobs_and_the_next_server_continues_them(
    upload_folder: Path, loose: Limits, folders: dict[str, Path]
) -> None:
    jobs = Jobs(add, lambda _: ("de", "en"), loose, folders)
    sent = [send(jobs, "a.tsv.gz", BOMBS["a.tsv.gz"]()), send(jobs, "b.tsv", b"a\tb\n")]
    begun = time.monotonic()
    jobs.close()
    assert time.monotonic() - begun < MAX_SECONDS
    assert [job.state for job in sent] == ["running"] * 2
    with pytest.raises(ClosingError):
        send(jobs, "c.tsv", b"a\tb\n")
    assert sorted(left(upload_folder)) == ["a.tsv.gz", "b.tsv"]
    finished: list[Job] = []
    second = Jobs(add, lambda _: ("de", "en"), loose, folders, finished.append)
    second.resume()
    bomb, small = (second.find(job.id) for job in sent)
    second.cancel(bomb)
    assert wait(bomb).state == "cancelled"
    assert (wait(small).state, small.added, small.file) == ("done", 1, "b.tsv")
    assert [job.id for job in finished] in ([bomb.id, small.id], [small.id, bomb.id])
    assert not left(upload_folder)
    second.close()
    third = Jobs(add, lambda _: ("de", "en"), loose, folders)
    third.resume()
    assert [(third.find(job.id).state, third.find(job.id).added) for job in sent] == [("cancelled", 0), ("done", 1)]
    third.close()


def test_imports_of_another_server_and_incomplete_ones(upload_folder: Path, folders: dict[str, Path]) -> None:
    free = threading.Event()

    def slow(_: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        free.wait(20)
        return add(_, pairs, corpus)

    first = Jobs(slow, lambda _: ("de", "en"), Limits(), folders)
    job = send(first, "a.tsv", b"a\tb\n")
    (upload_folder.parent / "manifest.json").write_bytes(b"precious")
    forged = {"file": "../../manifest.json", "state": "running", "read": 0, "added": 0, "message": ""}
    states = {"partial": None, "broken": b"{", "other": b'{"file": 1}', "forged": json.dumps(forged).encode()}
    for name, content in ((f"import-{kind}", content) for kind, content in states.items()):
        (upload_folder / name).mkdir()
        (upload_folder / name / "a.tsv").write_bytes(b"a")
        if content is not None:
            (upload_folder / name / "job.json").write_bytes(content)
    second = Jobs(add, lambda _: ("de", "en"), Limits(), folders)
    second.resume()
    with pytest.raises(HttpError):
        second.find(job.id)  # the first server has it
    assert [path.name for path in upload_folder.iterdir()] == [f"import-{job.id}"]
    assert (upload_folder.parent / "manifest.json").read_bytes() == b"precious"
    free.set()
    assert wait(job).state == "done"
    first.close()
    second.close()


def test_names_of_uploaded_files_do_not_replace_the_state() -> None:
    assert [safe_name(name) for name in ("job.json", "lock", ".job.json")] == ["_job.json", "_lock", "_job.json"]


def test_old_jobs_are_removed_from_the_disk(
    upload_folder: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_KEPT", 3)
    jobs = Jobs(add, lambda _: ("de", "en"), Limits(), folders)
    for _ in range(6):
        assert wait(send(jobs, "a.tsv", b"a\tb\n")).state == "done"
    assert len(list(upload_folder.iterdir())) == 3
    jobs.close()


def test_a_running_job_is_kept_while_others_end(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_KEPT", 2)
    free = threading.Event()

    def learn(job: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        if job.memory == "mine":
            assert free.wait(MAX_SECONDS)
        return add(job, pairs, corpus)

    jobs = Jobs(learn, lambda _: ("de", "en"), Limits(), {**folders, "other": tmp_path / "other"})
    first = send(jobs, "a.tsv", b"Haus\thouse\n")
    for _ in range(3):
        with jobs.receive("other", "b.tsv") as upload:
            upload.path.write_bytes(b"Welt\tworld\n")
            wait(jobs.start("other", upload, owner="another"))
    assert jobs.find(first.id) is first
    assert jobs.is_importing("mine")
    free.set()
    assert wait(first).state == "done"
    jobs.close()


def test_reading_time_is_limited(upload_folder: Path, loose: Limits, folders: dict[str, Path]) -> None:
    jobs = Jobs(add, lambda _: ("de", "en"), replace(loose, import_seconds=0.2), folders)
    job = send(jobs, "a.tsv.gz", BOMBS["a.tsv.gz"]())
    assert wait(job).state == "failed"
    assert job.message == "Reading the file takes more than 0.2 seconds: import it in parts."
    assert not left(upload_folder)
    jobs.close()


def test_learning_time_is_not_limited(folders: dict[str, Path]) -> None:
    def learn(_: Job, pairs: Iterator[Pair], corpus: Corpus) -> tuple[int, str]:
        for _pair in pairs:
            time.sleep(0.1)
        return 0, corpus.counts.describe()

    jobs = Jobs(learn, lambda _: ("de", "en"), Limits(import_seconds=0.25), folders)
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
def test_imports_are_limited(name: str, content: Any, what: str, upload_folder: Path, folders: dict[str, Path]) -> None:
    jobs = Jobs(add, lambda _: ("de", "en"), Limits(import_pairs=1_000, import_unpacked_bytes=1_000_000), folders)
    job = wait(send(jobs, name, content()))
    assert (job.state, what in job.message) == ("failed", True), job
    assert len(job.message) <= 1_000
    assert str(upload_folder) not in job.message
    assert not left(upload_folder)
    jobs.close()


def test_long_segments_are_skipped(folders: dict[str, Path]) -> None:
    jobs = Jobs(add, lambda _: ("de", "en"), Limits(), folders)
    job = wait(send(jobs, "a.tsv", b"a\tb\n" + b"a" * 30_000 + b"\tb\n"))
    assert (job.state, job.added) == ("done", 1)
    assert "1 longer than 20,000 characters" in job.message
    jobs.close()


def test_learning_stops_at_the_next_chunk(folders: dict[str, Path]) -> None:
    job = Job("1", "mine", "a.tsv")
    learnt: list[int] = []

    def learn(_: str, __: Any, ___: Any, tell: Any) -> None:
        for done in range(1, 10):
            learnt.append(done)
            job.cancelled = done == 3
            tell("Adding", None, done, "pairs")

    jobs = Jobs(add, lambda _: ("de", "en"), Limits(), folders)
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
