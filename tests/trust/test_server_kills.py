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


@pytest.fixture
def server(scratch: Path, tiny_folder: Path) -> Iterator[Server]:
    from ibidem.learn import create_memory
    from ibidem.model import load_model

    create_memory(scratch / "mine", load_model(tiny_folder, device="cpu"))
    command = [sys.executable, str(SCRIPT), str(tiny_folder), str(scratch / "mine")]
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


def test_server_killed_during_imports_and_suggestions(server: Server, scratch: Path, budget: Budget) -> None:
    folder = scratch / "mine"
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
