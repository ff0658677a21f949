"""The commands index --shards, shard, and those that search in shards, with real processes and sockets."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.learn import index_memory
from ibidem.memory import Memory
from ibidem.retrieve import load_part, read_plan
from ibidem.retrieve.sharded import ShardServer, describe_part, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Run

SECRET = "a secret of the tests"
# A busy machine may need longer than the default.
PATIENT = ("--shard-deadline", 20_000)


@contextmanager
def serving(folder: Path, number: int, address: str = "127.0.0.1:0", secret: bytes | None = None) -> Iterator[str]:
    """Serve one part in this process; yields its address."""
    memory = Memory.open(folder)
    plan = read_plan(memory)
    assert plan is not None
    part = load_part(memory, plan, number)
    server = ShardServer(part, describe_part(memory, plan, number), parse_address(address), secret)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield str(server.address)
    finally:
        server.close()
        thread.join(5)


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory, learnt: Memory) -> Path:
    folder = Path(shutil.copytree(learnt.path, tmp_path_factory.mktemp("divided") / "memory"))
    index_memory(Memory.open(folder), "exact", shards=2)
    return folder


@pytest.fixture
def shards(divided: Path) -> Iterator[str]:
    with ExitStack() as stack:
        yield ",".join(stack.enter_context(serving(divided, number)) for number in (1, 2))


def start(folder: Path, number: int, address: str = "127.0.0.1:0") -> tuple[subprocess.Popen[str], str]:
    """Start `ibidem shard`; returns the process and its address."""
    command = [sys.executable, "-m", "ibidem", "shard", "-m", str(folder), "--part", str(number), "--listen", address]
    process = subprocess.Popen([*command, "--threads", "1"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Serving part"):
            return process, line.split(" on ")[1].split(" - ")[0]
    raise AssertionError(f"the shard ended with {process.wait()}")


def test_index_divides_and_inspect_shows_it(ibidem: Run, memory: Path) -> None:
    done = ibidem("index", "-m", memory, "exact", "--shards", 3)
    assert done.code == 0, done.err
    assert "3 shards, exact" in done.out
    assert json.loads(ibidem("inspect", "-m", memory, "--json").out)["stages"]["index"]["shards"] == 3
    assert "3 shards, exact" in (memory / "README.md").read_text(encoding="utf-8")
    assert ibidem("verify", "-m", memory).code == 0
    assert ibidem("index", "-m", memory, "exact").code == 0
    assert "shards" not in json.loads(ibidem("inspect", "-m", memory, "--json").out)["stages"]["index"]


def test_translations_equal_those_of_the_whole_index(ibidem: Run, divided: Path, learnt: Memory, shards: str) -> None:
    text = "Guten Morgen.\nDie Datei ist leer.\n"
    plain = ibidem("translate", "-m", learnt.path, "--index", "exact", stdin=text)
    local = ibidem("translate", "-m", divided, stdin=text)
    remote = ibidem("translate", "-m", divided, "--shards", shards, *PATIENT, stdin=text)
    assert remote.code == 0, remote.err
    assert plain.out == local.out == remote.out
    rows = [
        json.loads(line)
        for line in ibidem("translate", "-m", divided, "--shards", shards, *PATIENT, "--json", stdin=text).lines
    ]
    assert not any("missing_shards" in row for row in rows)
    explained = ibidem("explain", "-m", divided, "--shards", shards, *PATIENT, "--json", stdin=text)
    assert explained.code == 0, explained.err


def test_a_missing_shard_is_flagged_or_refused(ibidem: Run, divided: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ibidem.retrieve import LoadedPart

    search = LoadedPart.search
    with ExitStack() as stack:
        given = ",".join(stack.enter_context(serving(divided, number)) for number in (1, 2))

        def fail(part: LoadedPart, rows: object) -> object:
            if part.plan.first:
                raise MemoryError
            return search(part, rows)  # type: ignore[arg-type]

        monkeypatch.setattr(LoadedPart, "search", fail)
        flagged = ibidem("translate", "-m", divided, "--shards", given, *PATIENT, "--json", stdin="Guten Morgen.\n")
        assert flagged.code == 0
        assert json.loads(flagged.out)["missing_shards"] == [2]
        assert flagged.err.count("warning: Shard 2 of") == 1
        refused = ibidem(
            "translate", "-m", divided, "--shards", given, *PATIENT, "--missing", "refuse", stdin="Guten Morgen.\n"
        )
        assert refused.code == 1
        assert "error: Shard 2 of" in refused.err


def test_wrong_options_are_errors(fails: Run, divided: Path, learnt: Memory, tmp_path: Path, shards: str) -> None:
    assert "has no shards" in fails(2, "shard", "-m", learnt.path, "--part", 1)
    assert "the parts 1 to 2, and no part 3" in fails(2, "shard", "-m", divided, "--part", 3)
    assert "Another program listens on" in fails(
        2, "shard", "-m", divided, "--part", 1, "--listen", shards.split(",")[0]
    )
    assert "IBIDEM_SHARD_SECRET" in fails(2, "shard", "-m", divided, "--part", 1, "--listen", "0.0.0.0:0")
    assert "no address of a shard" in fails(2, "shard", "-m", divided, "--part", 1, "--listen", "7001")
    assert "No memory has shards" in fails(2, "translate", "-m", learnt.path, "--shards", shards)
    assert "give --shards" in fails(2, "translate", "-m", divided, "--missing", "refuse")
    assert "Unknown value 'hide'" in fails(2, "translate", "-m", divided, "--shards", shards, "--missing", "hide")
    assert "Invalid deadline" in fails(2, "translate", "-m", divided, "--shards", shards, "--shard-deadline", 0)
    assert "given twice" in fails(2, "translate", "-m", divided, "--shards", "localhost:1,localhost:1")
    assert "cannot be divided into 2000" in fails(2, "index", "-m", divided, "--shards", 2000)
    short = tmp_path / "secret"
    short.write_text("short")
    short.chmod(0o600)
    assert "a secret of 5 characters" in fails(
        2, "translate", "-m", divided, "--shards", shards, "--shard-secret", short
    )
    short.write_text(SECRET)
    short.chmod(0o644)
    assert "can be read by all users" in fails(
        2, "translate", "-m", divided, "--shards", shards, "--shard-secret", short
    )


def test_a_shard_starts_answers_and_ends(ibidem: Run, divided: Path) -> None:
    process, address = start(divided, 1)
    try:
        with serving(divided, 2) as other:
            done = ibidem(
                "translate", "-m", divided, "--shards", f"{address},{other}", *PATIENT, stdin="Guten Morgen.\n"
            )
        assert done.code == 0, done.err
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_shard_is_killed_while_lines_are_translated(divided: Path, learnt: Memory) -> None:
    """Answers go on within the deadline and are flagged, and are whole again after the shard was started again."""
    sources = [pair.source for pair in learnt.sentences()][:40]
    from ibidem import Translator

    expected = dict(zip(sources, Translator(memory=Memory.open(divided)).translate(sources), strict=True))
    shards = [start(divided, number) for number in (1, 2)]
    addresses = ",".join(address for _, address in shards)
    command = [sys.executable, "-m", "ibidem", "translate", "-m", str(divided), "--shards", addresses, "--json"]
    client = subprocess.Popen(
        [*command, "--batch-size", "1", "--shard-deadline", "20000", "--threads", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None

    def ask(source: str) -> tuple[dict[str, object], float]:
        assert client.stdin is not None
        assert client.stdout is not None
        begun = time.monotonic()
        client.stdin.write(f"{source}\n")
        client.stdin.flush()
        return json.loads(client.stdout.readline()), time.monotonic() - begun

    again = None
    try:
        for source in sources[:5]:
            answer, _ = ask(source)
            assert answer["translation"] == expected[source]
            assert "missing_shards" not in answer
        timer = threading.Timer(0.05, shards[1][0].kill)  # in the middle of the next sentences
        timer.start()
        slowest, flagged = 0.0, 0
        for source in sources[5:25]:
            answer, seconds = ask(source)
            slowest, flagged = max(slowest, seconds), flagged + ("missing_shards" in answer)
        timer.join()
        assert flagged >= 10
        again = start(divided, 2, shards[1][1])
        whole = []
        end = time.monotonic() + 30
        while len(whole) < 5 and time.monotonic() < end:
            source = sources[25 + len(whole)]
            answer, _ = ask(source)
            if "missing_shards" not in answer:
                assert answer["translation"] == expected[source]
                whole.append(source)
            else:
                time.sleep(0.2)
        assert len(whole) == 5
        client.stdin.close()
        assert client.stderr is not None
        assert client.wait(20) == 0
        assert client.stderr.read().count("warning: Shard 2 of") == 1
        assert slowest < 10
    finally:
        for process in [client, *(one for one, _ in shards), *([again[0]] if again else [])]:
            process.kill()
            process.wait(10)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
