"""Processes of `ibidem serve`: a writer and two followers that are killed at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import ibidem
from ibidem.memory import Memory, verify_folder
from ibidem.serve import add_key

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = ["Der Mandant wurde gelöscht.", "Datei", "Neues Wort 3", "Neues Wort 7"]


class Server:
    """A process of `ibidem serve`."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._command = [sys.executable, "-m", "ibidem", "serve", "--port", str(self.port), *arguments]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)

    def send(self, path: str, body: dict[str, Any] | None = None, key: str = "") -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, content, headers), timeout=30) as answer:
            return json.load(answer)

    def wait(self, status: str = "ready", seconds: float = 240) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.send("/ready")["status"] == status:
                    return
            time.sleep(0.1)
        raise TimeoutError(self.url)


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(ibidem.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def servers(
    memory: Memory, tiny_folder: Path, tmp_path: Path, environment: dict[str, str]
) -> Iterator[tuple[Path, str, list[Server]]]:
    folder = shutil.copytree(memory.path, tmp_path / "writer" / "it")
    keys = tmp_path / "keys"
    key, follow = add_key(keys, "test", "admin"), add_key(keys, "test", "replicate")
    common = ["--model", str(tiny_folder), "--device", "cpu", "--keys", str(keys), "--set", "rate=1000"]
    writer = Server(["-m", str(folder), *common], environment)
    found = [writer]
    for name in "ab":
        arguments = ["-m", str(tmp_path / name / "it"), "--follow", writer.url, "--set", "follow_seconds=0.05", *common]
        found.append(Server(arguments, {**environment, "IBIDEM_FOLLOW_KEY": follow}))
    try:
        for one in found:
            one.start()
        for one in found:
            one.wait()
        yield folder, key, found
    finally:
        for one in found:
            one.kill()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills(servers: tuple[Path, str, list[Server]], tmp_path: Path) -> None:
    folder, key, (writer, *followers) = servers
    randomness = random.Random(int(os.environ.get("IBIDEM_TRUST_SEED", "1")))
    for number in range(8):
        pairs = [{"source": f"Neues Wort {number}.{i}", "target": f"New word {number}.{i}"} for i in range(3)]
        writer.send("/memories/it/pairs", {"pairs": pairs, "origin": "test"}, key)
        if number % 3 == 1:
            Memory.open(folder).sealed()
        time.sleep(randomness.random() * 0.2)
        killed = followers[number % 2] if number % 4 != 3 else writer
        killed.kill()
        for one in (tmp_path / "a" / "it", tmp_path / "b" / "it"):
            assert verify_folder(one)[1] == []
        if killed is writer:  # readers go on
            for one in followers:
                body = {"q": WORDS, "source": "de", "target": "en"}
                with contextlib.suppress(urllib.error.URLError):
                    assert one.send("/translate", body, key)
        killed.start()
        killed.wait()
    wanted = Memory.open(folder)
    for name in "ab":
        deadline = time.monotonic() + 60
        while Memory.open(tmp_path / name / "it").active_pairs != wanted.active_pairs:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        copy = Memory.open(tmp_path / name / "it")
        assert list(copy.sentences()) == list(wanted.sentences())
    body = {"q": WORDS, "source": "de", "target": "en"}
    answers = [one.send("/translate", body, key)["translatedText"] for one in (writer, *followers)]
    assert answers[0] == answers[1] == answers[2]
