"""A real server on loopback over the tiny model and a memory learnt with it."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from ibidem.serve import Key, KeyStore, Limits, ServeSettings, hash_key, make_service, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ibidem.decode import Translator
    from ibidem.memory import Memory
    from ibidem.serve import Service

OPEN = ServeSettings(Limits(rate=1e6, burst=100_000))
"""Settings without keys and practically without a rate limit."""
TEXT = {"q": "Datei", "source": "de", "target": "en"}
GERMAN, WANTED = "Der Mandant wurde gelöscht.", "Stop"


class Response(NamedTuple):
    """A response of the server."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Sends requests to one server."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=body, method=method, headers={**self.headers, **named})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Response(answer.status, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Response(error.code, error.read(), dict(error.headers))

    def get(self, path: str, **headers: str) -> Response:
        return self.send("GET", path, **headers)

    def post(self, path: str, content: Any, **headers: str) -> Response:
        return self.send("POST", path, json.dumps(content).encode(), Content_Type="application/json", **headers)

    def form(self, path: str, content: dict[str, Any], **headers: str) -> Response:
        body = urllib.parse.urlencode(content, doseq=True).encode()
        return self.send("POST", path, body, Content_Type="application/x-www-form-urlencoded", **headers)


@pytest.fixture(scope="session")
def memory(tiny: Any, corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """A memory of all sentences, neither tuned nor indexed."""
    from ibidem.learn import extract
    from ibidem.text import Corpus

    return extract(tiny, Corpus([corpus_file]), tmp_path_factory.mktemp("served") / "sentences")


@pytest.fixture(scope="session")
def translator(memory: Memory, tiny: Any) -> Translator:
    """The tiny untrained model with a memory that determines its translations."""
    return make_translator(tiny, memory)


def make_translator(model: Any, memory: Any) -> Translator:
    from ibidem.combine import FixedCombiner
    from ibidem.decode import SearchSettings, Translator

    settings = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=12)
    combiner = FixedCombiner(2, 0.98, 0.1) if memory else None
    return Translator(model, memory, combiner=combiner, settings=settings, batch_size=8)


@pytest.fixture(scope="session")
def client(translator: Translator) -> Iterator[Client]:
    """A server without keys, with limits that tests do not reach by chance."""
    limits = Limits(characters=2_000, texts=8, lines=40, alternatives=3, body_bytes=20_000, rate=1e6, burst=100_000)
    with running(make_service(translator, ServeSettings(limits))) as url:
        yield Client(url)


@contextmanager
def served(translator: Translator, settings: ServeSettings = OPEN, *keys: str) -> Iterator[tuple[Client, Service]]:
    """A server of its own for a test, with API keys."""
    service = make_service(translator, settings, KeyStore([Key(hash_key(key)) for key in keys]))
    with running(service) as url:
        yield Client(url), service


def connect(client: Client) -> socket.socket:
    """A connection to the server, to send raw bytes."""
    host, _, port = client.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait up to 20 seconds for a condition."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def hold_decoder(service: Service) -> threading.Event:
    """Block the decoding thread until the returned event is set."""
    decode = service.batcher._decode
    begun, free = threading.Event(), threading.Event()

    def hold(options: Any, *given: Any) -> Any:
        if options != "hold":
            return decode(options, *given)
        begun.set()
        free.wait(30)
        raise TimeoutError

    service.batcher._decode = hold
    service.batcher.submit("hold", ["x"])
    assert begun.wait(10)
    return free


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, without a window."""
    from .browser import start_browser

    yield from start_browser(tmp_path_factory.mktemp("browser"))


@pytest.fixture
def folder(memory: Memory, tmp_path: Path) -> Path:
    """A copy of the memory that a test may change."""
    return shutil.copytree(memory.path, tmp_path / "mine")


@pytest.fixture
def service(tiny: Any, folder: Path) -> Service:
    """A service with the copy of the memory."""
    return make_service(make_translator(tiny, folder), OPEN)


@pytest.fixture
def writer(service: Service) -> Iterator[Client]:
    """A server with the copy of the memory."""
    with running(service) as url:
        yield Client(url)
