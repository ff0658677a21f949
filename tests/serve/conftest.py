"""A real server on loopback over the tiny model and a memory learnt with it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.decode import Translator
    from ibidem.memory import Memory


class Answer(NamedTuple):
    """What the server said."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Asks one server."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=body, method=method, headers={**self.headers, **named})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(), dict(error.headers))

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, content: Any, **headers: str) -> Answer:
        return self.send("POST", path, json.dumps(content).encode(), Content_Type="application/json", **headers)

    def form(self, path: str, content: dict[str, Any], **headers: str) -> Answer:
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
    """The tiny model, whose words mean nothing, and a memory that it follows."""
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
    from ibidem.serve import Limits, ServeSettings, make_service, running

    limits = Limits(characters=2_000, texts=8, lines=40, alternatives=3, body_bytes=20_000, rate=1e6, burst=100_000)
    with running(make_service(translator, ServeSettings(limits))) as url:
        yield Client(url)
