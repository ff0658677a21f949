"""Processes of `ibidem serve`: a writer and two followers that are killed at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
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


def send(url: str, body: dict[str, Any] | None = None, key: str = "") -> Any:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers), timeout=30) as answer:
        return json.load(answer)


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
        return send(self.url + path, body, key)

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
    common += ["--allow-host", "translate.example.org", "--allow-host", "127.0.0.1"]  # the first is the proxy's
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


@pytest.fixture
def proxy(servers: tuple[Path, str, list[Server]], tmp_path: Path) -> Iterator[str]:
    """HAProxy with the configuration of deploy/, in front of the servers of this test."""
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not installed")
    _, _, (writer, *readers) = servers
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (Path(__file__).parents[2] / "deploy" / "haproxy.cfg").read_text("utf-8")
    names = {"writer": writer, "reader-1": readers[0], "reader-2": readers[1]}
    for name, server in names.items():
        text, found = re.subn(rf"(server {name}) {name}:5000", rf"\1 127.0.0.1:{server.port}", text)
        assert found == (2 if name == "writer" else 1)
    text = text.replace("bind :8080", f"bind 127.0.0.1:{port}").replace("resolvers names init-addr", "init-addr")
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(text, "utf-8")
    process = subprocess.Popen([program, "-f", configuration], stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_reader_behind_the_proxy_is_killed(
    servers: tuple[Path, str, list[Server]], proxy: str, tmp_path: Path
) -> None:
    """200 requests are answered while a reader is killed and started again; what it had is sent again by the client."""
    _, key, (_, *readers) = servers
    failures: list[str] = []
    answers: list[list[str]] = []

    def translate(number: int) -> None:
        for _ in range(50):
            for attempt in range(3):
                try:
                    body = {"q": WORDS, "source": "de", "target": "en"}
                    answers.append(send(f"{proxy}/translate", body, key)["translatedText"])
                    break
                except OSError as error:  # the reader that was killed had this request: the client sends it again
                    failures.append(f"client {number}, attempt {attempt}: {error!r}")
                    time.sleep(0.1)

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # the first checks of the proxy
        with contextlib.suppress(OSError):
            send(f"{proxy}/translate", {"q": WORDS, "source": "de", "target": "en"}, key)
            break
        time.sleep(0.1)
    clients = [threading.Thread(target=translate, args=(number,)) for number in range(4)]
    for client in clients:
        client.start()
    while len(answers) < 40:
        time.sleep(0.01)
    readers[0].kill()
    killed = len(answers)
    while len(answers) < 100:
        time.sleep(0.01)
    assert len(answers) > killed
    readers[0].start()
    readers[0].wait()
    for client in clients:
        client.join()
    assert len(answers) == 200
    assert all(answer == answers[0] for answer in answers)
    assert len(failures) <= 4, failures  # at most one request of each client was at the reader that was killed
    change = {"q": "Neues Wort 3", "s": "Brand new", "source": "de", "target": "en"}
    assert send(f"{proxy}/suggest", change, key)["success"]
    deadline = time.monotonic() + 60
    for name in "ab":
        while "Brand new" not in {pair.target for pair in Memory.open(tmp_path / name / "it").sentences()}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for hidden in ("/metrics", "/replication/it/view"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            send(proxy + hidden, key=key)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        readers[0].send("/suggest", change, key)
