"""A server whose memory is searched in shards: answers are flagged or refused, counted, and follow corrections."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.combine import FixedCombiner
from ibidem.decode import SearchSettings, Translator
from ibidem.learn import index_memory
from ibidem.memory import Memory
from ibidem.retrieve import LoadedPart, load_part, read_plan
from ibidem.retrieve.sharded import ShardServer, ShardSettings, describe_part, parse_address

from .conftest import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import Client

TEXT = "Guten Morgen."


@pytest.fixture
def divided(folder: Path) -> Memory:
    return index_memory(Memory.open(folder), "exact", shards=2)[0]


@contextmanager
def shards_of(memory: Memory) -> Iterator[tuple[str, ...]]:
    """Serve both parts; yields their addresses."""
    plan = read_plan(memory)
    assert plan is not None
    with ExitStack() as stack:
        addresses = []
        for number in (1, 2):
            part = load_part(memory, plan, number)
            server = ShardServer(part, describe_part(memory, plan, number), parse_address("127.0.0.1:0"))
            thread = threading.Thread(target=server.run)
            thread.start()
            stack.callback(thread.join, 5)
            stack.callback(server.close)
            addresses.append(str(server.address))
        yield tuple(addresses)


@contextmanager
def serving(model: Any, memory: Memory, missing: str = "flag") -> Iterator[Client]:
    """A server that searches in shards."""
    with shards_of(memory) as addresses:
        settings = ShardSettings(tuple(map(parse_address, addresses)), deadline_ms=20_000, missing=missing)
        search = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=12)
        combiner = FixedCombiner(2, 0.98, 0.1)
        translator = Translator(model, memory, combiner=combiner, settings=search, batch_size=8, shards=settings)
        with served(translator) as (client, _):
            yield client


def lose_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    search = LoadedPart.search

    def fail(part: LoadedPart, rows: Any) -> Any:
        if part.plan.first:
            raise MemoryError
        return search(part, rows)

    monkeypatch.setattr(LoadedPart, "search", fail)


def test_answers_equal_those_of_one_index_and_follow_corrections(tiny: Any, divided: Memory, translator: Any) -> None:
    with serving(tiny, divided) as client:
        answer = client.post("/translate", {"q": TEXT, "source": "de", "target": "en"}).json
        assert answer["translatedText"] == translator.translate([TEXT])[0]
        assert "missing_shards" not in answer
        assert client.post("/suggest", {"q": TEXT, "s": "Hi there.", "source": "de", "target": "en"}).status == 200
        again = client.post("/translate", {"q": TEXT, "source": "de", "target": "en"}).json
        assert again["translatedText"].startswith("Hi there")


def test_a_missing_shard_is_flagged_and_counted(tiny: Any, divided: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_the_second(monkeypatch)
    with serving(tiny, divided) as client:
        with pytest.warns(UserWarning, match="Shard 2 of"):
            first = client.post("/translate", {"q": TEXT})
        assert first.json["missing_shards"] == [2]
        several = client.post("/translate", {"q": [TEXT, " "]}).json
        assert several["missing_shards"] == [[2], []]
        markup = client.post("/translate", {"q": f"<p>{TEXT}</p>", "format": "html"}).json
        assert markup["missing_shards"] == [2]
        deepl = client.post("/v2/translate", {"text": [TEXT], "target_lang": "EN"}).json
        assert deepl["translations"][0]["missing_shards"] == [2]
        body = {"model": "ibidem-de-en", "messages": [{"role": "user", "content": TEXT}]}
        assert client.post("/v1/chat/completions", body).json["missing_shards"] == [2]
        figures = client.get("/metrics").body.decode()
        missed = next(line for line in figures.splitlines() if line.startswith("ibidem_shard_missed_steps{"))
        assert 'shard="1"' in missed
        assert missed.endswith(" 0.0")
        assert 'ibidem_shard_missed_steps{memory="mine",shard="2"} 0.0' not in figures
        assert 'ibidem_shard_connections{memory="mine",shard="1"} 1.0' in figures


def test_with_refuse_a_missing_shard_is_a_503(tiny: Any, divided: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_the_second(monkeypatch)
    with serving(tiny, divided, "refuse") as client:
        refused = client.post("/translate", {"q": TEXT})
        assert refused.status == 503
        assert "shard" in refused.json["error"]
        assert refused.headers["retry-after"] == "5"
