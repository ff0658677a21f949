"""A server is killed during imports and suggestions: the next one has every acknowledged change and ends the import."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("uvicorn")

from ibidem.memory import Memory, verify_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Budget

SCRIPT = Path(__file__).with_name("server_process.py")


class Server:
    """The process that forks servers over one memory."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = 0
        self.address = ""

    def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("start\n")
        self._process.stdin.flush()
        pid, url = self.line().split()
        self.pid, self.address = int(pid), url.removeprefix("http://")

    def end(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        assert self.line() == "ended"
        self.pid = 0

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fork server has ended"
        return line.rstrip("\n")

    def send(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Send a request and return the JSON of the response; OSError if the server ends meanwhile."""
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status in (200, 202), content
        return json.loads(content)


@contextlib.contextmanager
def fork_server(model: Path, folder: Path, **limits: float) -> Iterator[Server]:
    """Run the process that forks servers over a memory; the last server is killed at the end."""
    command = [sys.executable, str(SCRIPT), str(model), str(folder), json.dumps(limits)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        found = Server(process)
        assert found.line() == "ready"
        try:
            yield found
        finally:
            if found.pid:
                os.kill(found.pid, signal.SIGKILL)
            process.kill()


@pytest.fixture
def folder(scratch: Path, tiny_folder: Path) -> Path:
    from ibidem.learn import create_memory
    from ibidem.model import load_model

    return create_memory(scratch / "mine", load_model(tiny_folder, device="cpu")).path


@pytest.fixture
def server(folder: Path, tiny_folder: Path) -> Iterator[Server]:
    with fork_server(tiny_folder, folder) as found:
        yield found


def test_server_killed_during_imports_and_suggestions(server: Server, folder: Path, budget: Budget) -> None:
    suggested: dict[str, str] = {}  # acknowledged, by source
    imported: list[str] = []  # sources of files whose job was acknowledged
    jobs: list[str] = []
    for number in budget.rounds(2):
        server.start()
        check(server, folder, suggested, imported, jobs)
        lines = [f"Datei {number} Zeile {row}\tFile {number} row {row}" for row in range(40)]
        stop = threading.Event()

        pending: list[tuple[str, str]] = []

        def suggest(
            number: int = number, stop: threading.Event = stop, pending: list[tuple[str, str]] = pending
        ) -> None:
            for row in range(1000):
                source, target = f"Vorschlag {number} {row % 7}", f"suggestion {row}"
                body = {"q": source, "s": target, "source": "de", "target": "en"}
                try:
                    server.send("POST", "/suggest", json.dumps(body).encode())
                except (OSError, http.client.HTTPException, ValueError):
                    pending.append((source, target))
                    return
                suggested[source] = target
                if stop.is_set():
                    return

        worker = threading.Thread(target=suggest)
        worker.start()
        path = f"/memories/mine/import?file={urllib.parse.quote(f'{number}.tsv')}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            jobs.append(server.send("POST", path, "\n".join(lines).encode())["id"])
            imported += [line.split("\t")[0] for line in lines]
        time.sleep(budget.random.uniform(0, 0.4))
        server.end(signal.SIGKILL)
        stop.set()
        worker.join()
        budget.count("kills of servers")
        for source, target in pending:  # it may be there or not
            if source in suggested and Memory.open(folder).find(source, target):
                suggested[source] = target
        assert verify_folder(folder)[1] == []
        for source, target in suggested.items():
            assert Memory.open(folder).find(source, target), f"{source!r} was acknowledged"
    server.start()
    check(server, folder, suggested, imported, jobs)
    server.end(signal.SIGTERM)
    assert not list((folder / "work").glob("*/*.tsv"))


def check(server: Server, folder: Path, suggested: dict[str, str], imported: list[str], jobs: list[str]) -> None:
    """Check that the jobs of all former servers end, and that all pairs are there once."""
    end = time.monotonic() + 60
    for job in jobs[-90:]:
        while (found := server.send("GET", f"/jobs/{job}"))["state"] == "running" and time.monotonic() < end:
            time.sleep(0.02)
        assert found["state"] == "done", found
    memory = Memory.open(folder)
    for source in imported:
        assert len(memory.find(source)) == 1, source
    for source, target in suggested.items():
        assert len(memory.find(source, target)) == 1, source
        assert len(memory.find(source)) == 1, source


def test_two_servers_on_one_memory(server: Server, folder: Path, tiny_folder: Path, budget: Budget) -> None:
    """Both accept suggestions and imports at the same time; one is killed, and the other has every change of both."""
    with fork_server(tiny_folder, folder) as other:
        server.start()
        other.start()
        suggested: dict[str, str] = {}
        imported: list[str] = []
        jobs: list[str] = []
        for number in budget.rounds(1):

            def suggest(one: Server, name: str, number: int = number) -> None:
                for row in range(12):
                    source, target = f"Vorschlag {name} {number} {row % 5}", f"suggestion {row}"
                    body = {"q": source, "s": target, "source": "de", "target": "en"}
                    one.send("POST", "/suggest", json.dumps(body).encode())
                    suggested[source] = target

            for one, name in ((server, "eins"), (other, "zwei")):
                lines = [f"Datei {name} {number} Zeile {row}\tFile {name} {number} row {row}" for row in range(20)]
                path = f"/memories/mine/import?file={name}-{number}.tsv"
                jobs.append(one.send("POST", path, "\n".join(lines).encode())["id"])
                imported += [line.split("\t")[0] for line in lines]
            workers = [
                threading.Thread(target=suggest, args=(one, name)) for one, name in ((server, "eins"), (other, "zwei"))
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            other.end(signal.SIGKILL)
            budget.count("kills of servers")
            budget.count("rounds of two servers")
            other.start()
            check(server, folder, suggested, imported, jobs[::2])
            check(other, folder, suggested, imported, jobs[1::2])
        server.end(signal.SIGTERM)
        other.end(signal.SIGTERM)
        assert verify_folder(folder)[1] == []


@pytest.mark.slow
def test_ten_times_the_capacity(folder: Path, tiny_folder: Path, budget: Budget) -> None:
    """Ten times as many clients as requests that the server accepts, for a minute: its size stays, and it recovers."""
    accepted, seconds = 16, min(60.0, 6 * budget.scale)
    body = json.dumps({"q": "Die Datei wurde nicht gefunden.", "source": "de", "target": "en"}).encode()
    with fork_server(tiny_folder, folder, concurrency=accepted, queue_characters=1_000) as server:
        server.start()
        stop = threading.Event()
        statuses: Counter[int] = Counter()

        def send() -> None:
            while not stop.is_set():
                try:
                    connection = http.client.HTTPConnection(server.address, timeout=20)
                    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    answer.read()
                    statuses[answer.status] += 1
                    connection.close()
                except (OSError, http.client.HTTPException):
                    statuses[0] += 1

        clients = [threading.Thread(target=send) for _ in range(10 * accepted)]
        for client in clients:
            client.start()
        time.sleep(seconds / 3)
        early = resident_bytes(server.pid)
        time.sleep(2 * seconds / 3)
        late = resident_bytes(server.pid)
        stop.set()
        began = time.monotonic()
        for client in clients:
            client.join()
        assert server.send("POST", "/translate", body)["translatedText"] is not None
        recovery = time.monotonic() - began
        server.end(signal.SIGTERM)
    for status, count in statuses.items():
        budget.count(f"requests beyond the capacity with status {status or 'none: closed'}", count)
    assert set(statuses) <= {0, 200, 429, 503}
    assert statuses[200]
    assert statuses[503] + statuses[429], "the server was never at its capacity"
    assert late < early + (16 << 20)
    assert recovery < 5


def resident_bytes(process: int) -> int:
    """Return the resident size of a process."""
    return int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
