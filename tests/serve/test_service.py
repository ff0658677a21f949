"""Texts and their lines, long work, and cancelled work."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.decode import SearchSettings, Translator
from ibidem.memory import Memory, SearchResult
from ibidem.model.fast_marian import FastMarianDecoding
from ibidem.model.native_engine import NativeDecoding
from ibidem.serve import Limits, ServeSettings, Service, make_service, running, server
from ibidem.serve.request import RequestOptions
from ibidem.serve.text_translation import pair_lines

from .conftest import OPEN, TEXT, Client, connect, hold_decoder, make_translator, served, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@given(st.text(st.sampled_from("ab \t\n\r\x0b\x85\u2028ß😀"), max_size=30))
def test_lines_are_paired_only_if_their_numbers_agree(text: str) -> None:
    pairs = pair_lines(text, text)
    assert all(source == target == source.strip() and not {"\n", "\r"} & set(source) for source, target in pairs)
    assert pair_lines(text, f"{text}\nmore") == [(text, f"{text}\nmore")]


PAIR = {"source": "de", "target": "en"}
SHORT = {"q": "Datei", **PAIR}
LONG = "b='" * 600


class Steps:
    """Counts the decoding steps of the whole process, and can hold or delay them."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.begun = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def take(self) -> None:
        self.count += 1
        self.begun.set()
        self.free.wait(20)
        time.sleep(self.seconds)

    def hold(self) -> None:
        self.begun.clear()
        self.free.clear()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    made = Steps()
    for kind in (FastMarianDecoding, NativeDecoding):
        step = kind.step

        def counted(self: Any, tokens: Any, step: Callable[..., Any] = step) -> Any:
            made.take()
            return step(self, tokens)

        monkeypatch.setattr(kind, "step", counted)
    yield made
    made.seconds = 0.0
    made.free.set()


@pytest.fixture(scope="module")
def wordy(tiny: Any) -> Translator:
    """The tiny model alone, which writes up to 100 tokens for any source."""
    return Translator(tiny, settings=SearchSettings(beam=2, max_length_ratio=0, max_length_extra=100), batch_size=8)


@contextmanager
def served_slowly(translator: Translator, steps: Steps, **limits: Any) -> Iterator[tuple[Client, Service]]:
    service = make_service(translator, ServeSettings(Limits(rate=1e6, burst=100_000, **limits)))
    with running(service) as url:
        try:
            yield Client(url), service
        finally:
            steps.free.set()


def send(client: Client, method: str, path: str, content: Any = None) -> socket.socket:
    """Send a request without waiting for the response."""
    host, _, port = client.url.removeprefix("http://").partition(":")
    body = b"" if content is None else json.dumps(content).encode()
    connection = socket.create_connection((host, int(port)), timeout=20)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/translate", {"q": LONG, **PAIR}),
        ("POST", "/translate", {"q": LONG, "explain": True, **PAIR}),
        ("POST", "/translate", {"q": f"<p>{LONG}</p>", "format": "html", **PAIR}),
        ("GET", f"/translate?q={LONG[:900]}&source=de&target=en", None),
        ("POST", "/v2/translate", {"text": [LONG, "Datei"], "target_lang": "EN"}),
        ("POST", "/v2/translate", {"text": [f"<p>{LONG}</p>"], "target_lang": "EN", "tag_handling": "html"}),
    ],
    ids=["translate", "explain", "html", "get", "deepl", "deepl-html"],
)
def test_a_disconnect_stops_the_decoder_at_the_next_step(
    wordy: Translator, steps: Steps, method: str, path: str, content: Any
) -> None:
    with served_slowly(wordy, steps) as (client, _):
        assert client.post("/translate", SHORT).status == 200
        alone = steps.count
        steps.hold()
        connection = send(client, method, path, content)
        assert steps.begun.wait(10)
        connection.close()
        wait_until(lambda: 'code="499"' in client.get("/metrics").body.decode())
        steps.free.set()
        assert client.post("/translate", SHORT).status == 200
        # A few steps may pass until the event loop runs; the whole work takes more than a hundred.
        assert steps.count - 2 * alone <= 30


def test_other_requests_are_decoded_between_pieces_of_a_long_line(
    wordy: Translator, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_slowly(wordy, steps) as (client, service):
        batches: list[list[str]] = []
        decode = service.batcher._decode

        def record(options: Any, lines: list[str], *given: Any) -> Any:
            batches.append(lines)
            return decode(options, lines, *given)

        monkeypatch.setattr(service.batcher, "_decode", record)
        steps.hold()
        answers: list[Any] = []
        heavy = threading.Thread(target=lambda: answers.append(client.post("/translate", {"q": LONG * 2, **PAIR})))
        heavy.start()
        assert steps.begun.wait(10)
        small = threading.Thread(target=lambda: answers.append(client.post("/translate", SHORT)))
        small.start()
        wait_until(lambda: any(order.lines == ["Datei"] for order in service.batcher._requests))
        steps.free.set()
        for thread in (heavy, small):
            thread.join(60)
    assert [answer.status for answer in answers] == [200, 200]
    place = next(number for number, lines in enumerate(batches) if "Datei" in lines)
    assert place == 1, "it is in the first batch after the running one"
    assert len(batches) > 3
    assert sum(len(line) for lines in batches for line in lines if line != "Datei") == 2 * len(LONG)


@pytest.mark.parametrize(
    "line", ["Der Hund läuft. " * 60, "Datei", LONG, " \u200b "], ids=["text", "word", "b", "blank"]
)
def test_pieces_are_joined_as_in_the_library(client: Client, translator: Translator, line: str) -> None:
    answer = client.post("/translate", {"q": line, "explain": True, **PAIR}).json
    expected = translator.explain([line])[0]
    assert answer["translatedText"] == expected.translation
    found = [(word["text"], word["start"], word["end"]) for word in answer["explanation"]["words"]]
    assert found == [(word.text, word.start, word.end) for word in expected.words]
    assert [[token["text"] for token in word["tokens"]] for word in answer["explanation"]["words"]] == [
        [token.text for token in word.tokens] for word in expected.words
    ]


def test_a_server_that_does_not_split(tiny: Any, memory: Memory) -> None:
    whole = make_translator(tiny, memory)
    whole.splitting = "off"
    text = "Der Hund läuft. Datei öffnen.\nDatei"
    with served(whole) as (client, _):
        assert client.post("/translate", {"q": text, **PAIR}).json["translatedText"] == whole.translate([text])[0]
        split = client.post("/translate", {"q": text, "split_sentences": "1", **PAIR}).json["translatedText"]
    whole.splitting = "sentences"
    assert split == whole.translate([text])[0]


def test_a_pair_that_was_just_added_is_not_split(tiny: Any, folder: Path) -> None:
    pair = {"source": "Der Hund läuft. Datei öffnen.", "target": "Stop"}
    with served(make_translator(tiny, folder)) as (client, service):

        def count_pieces(*memories: tuple[str, float]) -> int:
            return len(service.engine.split([pair["source"]], RequestOptions(memories), None)[0].pieces)

        assert (count_pieces(), count_pieces((folder.name, 1.0))) == (2, 2)
        assert client.post(f"/memories/{folder.name}/pairs", {"pairs": [pair]}).status == 200
        assert (count_pieces(), count_pieces((folder.name, 1.0))) == (2, 1)


def test_a_line_like_a_stored_source_is_one_piece_as_in_the_library(tiny: Any, folder: Path) -> None:
    stored = {"source": "Der Hund läuft heute. Datei öffnen.", "target": "The dog runs. Open file"}
    line = " Der Hund läuft morgen.  Datei öffnen.\n"
    with served(make_translator(tiny, folder)) as (client, _):

        def count_segments(*memories: str) -> int:
            answer = client.post("/segments", {"q": line, "memories": memories, "source": "de", "target": "en"})
            return len(answer.json["segments"])

        assert client.post(f"/memories/{folder.name}/pairs", {"pairs": [stored]}).status == 200
        assert (count_segments(), count_segments(folder.name)) == (2, 2)
        Memory.open(folder).sealed()
        assert (count_segments(), count_segments(folder.name)) == (2, 1)
        answer = client.post("/translate", {"q": line, "memories": [folder.name], **PAIR}).json
        assert len(answer["segments"]) == 1
    fresh = make_translator(tiny, folder)
    assert answer["translatedText"] == fresh.translate([line])[0]
    fresh.splitting = "off"
    assert answer["translatedText"] == f" {fresh.translate([line.strip()])[0]}\n"


def test_a_request_over_the_time_limit_fails(wordy: Translator, steps: Steps) -> None:
    with served_slowly(wordy, steps, request_seconds=2.0) as (client, _):
        steps.seconds = 0.25
        answer = client.post("/translate", {"q": LONG, **PAIR})
        taken = steps.count
        steps.seconds = 0.0
        assert answer.status == 503
        assert "longer than 2 seconds" in answer.json["error"]
        deepl = client.post("/v2/translate", {"text": ["Datei"], "target_lang": "EN"})
        assert deepl.status == 200
    assert taken < 20


def test_health_reports_a_stuck_decoder(wordy: Translator, steps: Steps) -> None:
    with served_slowly(wordy, steps, stuck_seconds=0.2) as (client, _):
        assert (client.get("/health").status, client.get("/health").json) == (200, {"status": "ok"})
        steps.hold()
        connection = send(client, "POST", "/translate", SHORT)
        assert steps.begun.wait(10)
        wait_until(lambda: client.get("/health").status == 503)
        found = client.get("/health").json
        assert found["status"] == "stuck"
        assert 0.2 <= found["seconds_since_step"] < 20
        steps.free.set()
        assert b" 200 " in connection.recv(4096)
        connection.close()
        wait_until(lambda: client.get("/health").json == {"status": "ok"})
        described = client.get("/openapi.json").json["paths"]["/health"]["get"]["responses"]
        assert "Health" in str(described["503"])


def test_slow_work_does_not_count_as_stuck(wordy: Translator, steps: Steps) -> None:
    with served_slowly(wordy, steps, stuck_seconds=1.0) as (client, _):
        steps.seconds = 0.02
        connection = send(client, "POST", "/translate", {"q": LONG, **PAIR})
        assert steps.begun.wait(10)
        for _ in range(15):
            assert client.get("/health").status == 200
            time.sleep(0.1)
        connection.close()


def test_shutdown_does_not_wait_for_long_work(wordy: Translator, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SHUTDOWN_SECONDS", 1)
    with served_slowly(wordy, steps) as (client, _):
        steps.seconds = 0.1
        connection = send(client, "POST", "/translate", {"q": LONG, **PAIR})
        assert steps.begun.wait(10)
    # The shutdown waits for two seconds, and starting threads takes some time.
    assert steps.count < 60
    connection.close()


def test_a_disconnect_removes_waiting_work(translator: Translator) -> None:
    with served(translator) as (client, service):
        free = hold_decoder(service)
        body = json.dumps(TEXT).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection = connect(client)
        connection.sendall(head + body)
        wait_until(lambda: service.batcher.waiting_characters > 0)
        connection.close()
        stays = connect(client)
        stays.sendall(head + body)
        wait_until(lambda: service.batcher.waiting_characters > 40)
        time.sleep(0.1)
        free.set()
        assert b" 200 " in stays.recv(4096)
        stays.close()
        wait_until(lambda: service.batcher.waiting_characters == 0)
        figures = client.get("/metrics").body.decode()
        assert "ibidem_batch_lines_sum 1.0" in figures, "the cancelled request was not decoded"


def test_a_full_queue_responds_at_once(translator: Translator) -> None:
    """A client may fill half of it."""
    limits = replace(OPEN.limits, queue_characters=200)
    with served(translator, replace(OPEN, limits=limits)) as (client, service):
        free = hold_decoder(service)
        waiting = [threading.Thread(target=client.post, args=("/translate", TEXT)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        wait_until(lambda: service.batcher.waiting_characters == 80)
        refused = client.post("/translate", TEXT)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        deepl = client.post("/v2/translate", {"text": ["Datei"], "target_lang": "EN"})
        assert (deepl.status, set(deepl.json)) == (503, {"message"})
        assert client.get("/health").status == 200
        free.set()
        for thread in waiting:
            thread.join()
        assert client.post("/translate", TEXT).status == 200


def test_slow_requests_of_one_client_delay_no_other(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as exports of a large memory, which take minutes."""
    free, started = threading.Event(), threading.Semaphore(0)

    def search(*_: object) -> SearchResult:
        started.release()
        free.wait(20)
        return SearchResult([], 0, True)

    monkeypatch.setattr("ibidem.serve.routes.memories.search_memory", search)
    with served(translator, replace(OPEN, keys_required=True), "a", "b") as (client, service), ExitStack() as stack:
        name = next(iter(service.engine.memories))
        first, second = ({"Authorization": f"Bearer {key}"} for key in "ab")
        for number, headers in enumerate([first] * 12 + [second]):
            sent = threading.Thread(target=client.get, args=(f"/memories/{name}/search?q=a",), kwargs=headers)
            sent.start()
            stack.callback(sent.join)
            stack.callback(free.set)
            if number in (0, 1, 12):
                assert started.acquire(timeout=10), "the second client does not wait for the first"
        assert client.post("/translate", {**TEXT, "memories": [name]}, **first).status == 200
