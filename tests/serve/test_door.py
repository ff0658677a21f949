"""Who is let in, how much of what they send is read, and what they are told."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from ibidem.errors import UsageError
from ibidem.serve import Limits, ServeSettings, hash_key, is_loopback, make_service, running
from ibidem.serve.server import listen

from .conftest import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.decode import Translator
    from ibidem.memory import Memory
    from ibidem.serve import Service

OPEN = ServeSettings(Limits(rate=1e6, burst=100_000))
TEXT = {"q": "Datei", "source": "de", "target": "en"}
KEY = "ibidem-a-key"
SENTENCE = "Die Datei wurde gespeichert."


@contextmanager
def served(translator: Translator, settings: ServeSettings = OPEN, *keys: str) -> Iterator[tuple[Client, Service]]:
    service = make_service(translator, settings, [hash_key(key) for key in keys])
    with running(service) as url:
        yield Client(url), service


def connect(client: Client) -> socket.socket:
    host, _, port = client.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_answers_carry_the_headers_that_a_browser_heeds(client: Client) -> None:
    for answer in (client.get("/"), client.post("/translate", TEXT), client.get("/nowhere")):
        headers = {name.lower(): value for name, value in answer.headers.items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers
        assert not any(name.startswith("access-control") for name in headers)
    assert client.post("/translate", TEXT).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5000", "127.0.0.1.evil.example", "", "[", "localhost."])
def test_a_name_that_was_made_to_point_here_reads_nothing(client: Client, host: str) -> None:
    for path in ("/", "/memories", "/translate?q=a"):
        answer = client.get(path, Host=host)
        assert answer.status == 421, path
        assert set(answer.json) == {"error"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:5000", "[::1]:5000"])
def test_its_own_names(client: Client, host: str) -> None:
    assert client.get("/health", Host=host).status == 200


def test_pages_of_other_origins_change_nothing(client: Client) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert client.form("/translate", TEXT, **headers).status == 403
        assert client.post("/suggest", {}, **headers).status in (403, 404)
    for headers in ({"Origin": client.url}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {}):
        assert client.form("/translate", TEXT, **headers).status == 200


def test_pages_of_other_origins_cannot_ask_with_get_either(client: Client) -> None:
    """An image or a script of any page can name an address, and GET /translate decodes like POST."""
    paths = (
        "/translate?q=Datei&target=en",
        "/memories",
        "/metrics",
        "/v2/usage",
        "/v3/translation_memories",
        "/jobs/a",
    )
    for headers in (
        {"Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert {client.get(path, **headers).status for path in paths} == {403}
        for path in ("/", "/page.js", "/health", "/languages", "/openapi.json", "/frontend/settings"):
            assert client.get(path, **headers).status == 200, "the page may be linked to"
    for headers in ({"Origin": client.url}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}, {}):
        assert client.get(paths[0], **headers).status == 200


def test_an_origin_that_was_named_may(translator: Translator) -> None:
    origin = "https://cat.example"
    with served(translator, replace(OPEN, origins=(origin,))) as (client, _):
        answer = client.post("/translate", TEXT, Origin=origin)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        assert (answer.status, headers["access-control-allow-origin"]) == (200, origin)
        preflight = client.send("OPTIONS", "/translate", Origin=origin, Access_Control_Request_Method="POST")
        assert preflight.status == 200
        assert client.get("/translate?q=a", Origin=origin, Sec_Fetch_Site="cross-site").status == 200
        assert client.post("/translate", TEXT, Origin="https://evil.example").status == 403
    with pytest.raises(UsageError, match="Invalid origin"):
        make_service(translator, replace(OPEN, origins=("*",)))


def test_without_a_key_nothing_but_the_harmless(translator: Translator) -> None:
    with served(translator, replace(OPEN, keys_required=True), KEY, "other") as (client, _):
        for answer in (
            client.post("/translate", TEXT),
            client.post("/translate", {**TEXT, "api_key": "wrong"}),
            client.post("/translate", {**TEXT, "api_key": hash_key(KEY)}),
            client.get("/translate?q=a&api_key=wrong"),
            client.post("/v2/translate", {"text": ["a"], "target_lang": "EN"}),
            client.post("/detect", {"q": "a"}),
            client.get("/memories", Authorization="Bearer wrong"),
            client.get("/metrics", Authorization=f"Basic {KEY}"),
        ):
            assert answer.status == 403
            assert "key" in str(answer.json).lower()
        for answer in (
            client.post("/translate", {**TEXT, "api_key": KEY}),
            client.form("/translate", {**TEXT, "api_key": "other"}),
            client.post("/translate", TEXT, Authorization=f"Bearer {KEY}"),
            client.get(f"/translate?q=a&api_key={KEY}"),
            client.post("/v2/translate", {"text": ["a"], "target_lang": "EN"}, Authorization=f"DeepL-Auth-Key {KEY}"),
            client.get("/memories", Authorization=f"bearer {KEY}"),
            client.get("/metrics", Authorization=f"Bearer {KEY}"),
            client.get("/health"),
            client.get("/languages"),
            client.get("/"),
            client.get("/openapi.json"),
        ):
            assert answer.status == 200
        assert client.get("/frontend/settings").json["keyRequired"] is True
    with pytest.raises(UsageError, match="no API key"):
        make_service(translator, replace(OPEN, keys_required=True))


def test_real_clients_with_keys(translator: Translator) -> None:
    libretranslatepy, deepl = pytest.importorskip("libretranslatepy"), pytest.importorskip("deepl")
    with served(translator, replace(OPEN, keys_required=True), KEY) as (client, _):
        assert libretranslatepy.LibreTranslateAPI(client.url, api_key=KEY).translate(SENTENCE, "de", "en")
        assert deepl.DeepLClient(KEY, server_url=client.url).translate_text(SENTENCE, target_lang="EN-US").text
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=client.url).translate_text("Datei", target_lang="EN-US")


def test_who_asks_too_often_is_told_when_to_come_back(translator: Translator) -> None:
    limits = replace(OPEN.limits, rate=0.5, burst=3)
    with served(translator, replace(OPEN, limits=limits, keys_required=True), KEY, "other") as (client, _):
        statuses = [client.get("/memories", Authorization=f"Bearer {KEY}").status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = client.get("/memories", Authorization=f"Bearer {KEY}")
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert client.get("/memories", Authorization="Bearer other").status == 200, "another key has its own rate"
        guesses = [client.get("/memories", Authorization=f"Bearer {number}").status for number in range(5)]
        assert guesses == [403, 403, 403, 429, 429], "guessing is counted by address"
        assert client.get("/health").status == 200


def test_requests_that_are_refused_are_counted(translator: Translator) -> None:
    """Bodies that are no JSON, missing fields and parameters, and paths that do not exist."""
    limits = replace(OPEN.limits, rate=0.001, burst=3)
    for method, path, body, status in (
        ("POST", "/translate", b"{", 400),
        ("POST", "/v2/translate", b"{}", 400),
        ("POST", "/memories/none/import", b"", 400),
        ("GET", "/nowhere", None, 404),
    ):
        with served(translator, replace(OPEN, limits=limits)) as (client, _):
            statuses = [client.send(method, path, body).status for _ in range(5)]
            assert statuses == [status] * 3 + [429] * 2, path
            assert client.get("/").status == client.get("/health").status == 200, "the page is not the API"


def test_a_key_in_the_body_has_its_own_rate(translator: Translator) -> None:
    limits = replace(OPEN.limits, rate=0.001, burst=3)
    with served(translator, replace(OPEN, limits=limits, keys_required=True), KEY, "other") as (client, _):

        def ask(key: str) -> int:
            return client.post("/detect", {"q": "a", "api_key": key}).status

        assert [ask(KEY) for _ in range(4)] == [200, 200, 200, 429]
        assert [ask("other") for _ in range(3)] == [200, 200, 200]
        assert [ask("wrong") for _ in range(4)] == [403, 403, 403, 429], "guessing is counted by address"


def test_key_and_rate_are_checked_before_the_body_is_read(translator: Translator) -> None:
    """A body that never comes is answered with 408, after 30 seconds."""
    limits = replace(OPEN.limits, rate=0.001, burst=2)

    def ask(path: str, authorization: str) -> bytes:
        with connect(client) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode())
            return connection.recv(4096).split(b" ", 2)[1]

    with served(translator, replace(OPEN, limits=limits, keys_required=True), KEY) as (client, _):
        assert ask("/translate", "Bearer wrong") == b"403"
        assert ask("/v2/translate?api_key=wrong", "none") == b"403"
        assert ask("/translate", "none") == b"429"
        assert ask("/translate?api_key=wrong", "none") == b"429"


def test_a_wrong_key_in_the_body_is_refused_before_the_rest_of_it(translator: Translator) -> None:
    with served(translator, replace(OPEN, keys_required=True), KEY) as (client, _):
        for path in ("/translate", "/suggest", "/detect", "/memories/none/pairs", "/v2/translate"):
            for key in ("wrong", 5, None, [KEY]):
                assert client.post(path, {"api_key": key, "auth_key": key, "q": 3}).status == 403
            assert client.post(path, {"api_key": KEY, "q": 3}).status == 400


def test_an_origin_that_was_named_reads_why_it_was_refused(translator: Translator) -> None:
    origin = "https://cat.example"
    limits = replace(OPEN.limits, rate=0.001, burst=1)
    with served(translator, replace(OPEN, origins=(origin,), limits=limits)) as (client, _):
        answers = [client.post("/translate", TEXT, Origin=origin) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 429]
        assert {answer.headers["access-control-allow-origin"] for answer in answers} == {origin}


def test_bodies_are_counted_while_they_come(client: Client) -> None:
    """The limit of this server is 20,000 bytes: a body without a length, or with a wrong one, is cut off there."""
    with connect(client) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 50_000_000:
                connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                sent += 4096
        except OSError:
            pass
        assert sent < 10_000_000
    with connect(client) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"5000\r\n" + b"x" * 0x5000 + b"\r\n")
        assert b" 413 " in connection.recv(4096)
    assert client.send("POST", "/translate", b"x" * 20_001).status == 413
    refused = client.send("POST", "/translate", b"\x1f\x8b", Content_Encoding="gzip")
    assert refused.status == 415


def test_a_declared_length_is_refused_before_anything_is_read(client: Client) -> None:
    with connect(client) as connection:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        assert b" 413 " in connection.recv(4096)


def test_slow_body_is_refused(translator: Translator) -> None:
    limits = replace(OPEN.limits, body_seconds=0.3)
    with served(translator, replace(OPEN, limits=limits)) as (client, _):
        with connect(client) as connection:
            connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            assert b" 408 " in connection.recv(4096)
        assert client.post("/translate", TEXT).status == 200


def test_a_large_body_over_a_slow_line_arrives(translator: Translator) -> None:
    """64 KiB a second, half a megabit, for longer than a small body may take."""
    parts = 6
    limits = replace(OPEN.limits, body_seconds=0.4)
    with served(translator, replace(OPEN, limits=limits)) as (client, _), connect(client) as connection:
        length = parts << 14
        connection.sendall(f"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        for number in range(parts):
            time.sleep(0.25 if number else 0)
            connection.sendall(b" " * (1 << 14))
        assert b"expected JSON" in connection.recv(4096)


def test_a_client_that_hangs_up_while_it_sends_is_no_error(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    with served(translator) as (client, _):
        with connect(client) as connection:
            connection.sendall(b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(0.2)
        wait_until(lambda: 'code="499",path="/detect"' in client.get("/metrics").body.decode())
    assert caplog.text == ""


def test_work_of_a_client_that_hangs_up_leaves_the_queue(translator: Translator) -> None:
    with served(translator) as (client, service):
        begun, free = threading.Event(), threading.Event()
        service.batcher.run(lambda: (begun.set(), free.wait(20)))
        assert begun.wait(10)
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
        assert "ibidem_batch_lines_sum 1.0" in figures, "what nobody waits for was not decoded"


def test_a_full_queue_answers_at_once(translator: Translator) -> None:
    limits = replace(OPEN.limits, waiting=100)
    with served(translator, replace(OPEN, limits=limits)) as (client, service):
        begun, free = threading.Event(), threading.Event()
        service.batcher.run(lambda: (begun.set(), free.wait(30)))
        assert begun.wait(10)
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


def test_too_many_at_once(translator: Translator) -> None:
    limits = replace(OPEN.limits, concurrency=2)
    with served(translator, replace(OPEN, limits=limits)) as (client, service):
        begun, free = threading.Event(), threading.Event()
        service.batcher.run(lambda: (begun.set(), free.wait(30)))
        assert begun.wait(10)
        waiting = [threading.Thread(target=client.post, args=("/translate", TEXT)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        wait_until(lambda: service.batcher.waiting_characters == 80)
        refused = client.post("/translate", TEXT)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert client.get("/health").status == 200
        free.set()
        for thread in waiting:
            thread.join()


def test_shutting_down_finishes_what_was_accepted(translator: Translator) -> None:
    answers: list[Any] = []
    with served(translator) as (client, service):
        begun, free = threading.Event(), threading.Event()
        service.batcher.run(lambda: (begun.set(), free.wait(30)))
        assert begun.wait(10)
        asking = threading.Thread(target=lambda: answers.append(client.post("/translate", TEXT)))
        asking.start()
        wait_until(lambda: service.batcher.waiting_characters > 0)
        threading.Timer(0.3, free.set).start()
    asking.join(10)
    assert answers[0].status == 200


def test_what_goes_wrong_inside_is_not_told(
    translator: Translator, memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = f"cannot open {memory.path}/segments"

    def fail(*_: object) -> None:
        raise RuntimeError(secret)

    with served(translator) as (client, service):
        monkeypatch.setattr(service.batcher, "_decode", fail)
        for path, body in (("/translate", TEXT), ("/v2/translate", {"text": ["a"], "target_lang": "EN"})):
            answer = client.post(path, body)
            assert answer.status == 500
            assert "RuntimeError" not in answer.body.decode()
            assert str(memory.path) not in answer.body.decode()
            assert "Traceback" not in answer.body.decode()
        monkeypatch.undo()
        assert client.post("/translate", TEXT).status == 200, "the server goes on"
    assert secret in caplog.text


def test_no_text_in_the_log(
    client: Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "Kanarienvogel"
    client.post("/translate", {**TEXT, "q": canary})
    client.get(f"/translate?q={canary}")
    client.post("/translate", {**TEXT, "q": canary, "source": "fr"})
    out, err = capfd.readouterr()
    assert canary not in caplog.text + out + err


def test_many_requests_on_one_connection(client: Client) -> None:
    connection = http.client.HTTPConnection(client.url.removeprefix("http://"), timeout=20)
    for _ in range(3):
        connection.request("POST", "/translate", json.dumps(TEXT), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, set(json.loads(answer.read()))) == (200, {"translatedText"})
    connection.close()


def test_answers_do_not_wait_for_each_other(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of an answer are sent at once, and not when the client has acknowledged the first of them."""
    real, seen = H11Protocol.data_received, []

    def look(self: H11Protocol, data: bytes) -> None:
        seen.append(self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        real(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", look)
    assert client.get("/health").status == 200
    assert seen
    assert all(seen)


def test_labels_of_figures_are_not_made_up_by_clients(client: Client) -> None:
    client.get("/made-up-by-me")
    client.send("BREW", "/translate")
    figures = client.get("/metrics")
    assert figures.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "made-up" not in figures.body.decode()
    for line in figures.body.decode().splitlines():
        assert re.fullmatch(r'# TYPE \w+ \w+|# HELP \w+ [\w ]+|\w+(\{(\w+="[^"]*",?)+\})? [\d.e+-]+', line), line


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_port_that_is_taken(client: Client) -> None:
    port = int(client.url.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 cannot be listened on"):
        listen("127.0.0.1", port)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
