"""Bodies and options of requests."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.memory import Memory
from ibidem.serve.http_error import HttpError
from ibidem.serve.request import choose_memories, choose_pair

from .conftest import OPEN, TEXT, Client, Response, connect, served, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.decode import Translator


NAMED = b'Content-Disposition: form-data; name="q"'


def part(header: bytes, value: bytes = b"Datei") -> bytes:
    return b"--b\r\n" + header + b"\r\n\r\n" + value + b"\r\n"


def send_form(client: Client, *parts: bytes, end: bytes = b"--b--\r\n") -> Response:
    return client.send("POST", "/detect", b"".join(parts) + end, Content_Type="multipart/form-data; boundary=b")


@pytest.mark.parametrize(
    "header",
    [
        NAMED,
        b'content-disposition: form-data; name="q"; filename="a.txt"\r\nContent-Type: text/plain; charset=UTF-8',
        b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Disposition: form-data; name=q",
    ],
)
def test_multipart_form(client: Client, header: bytes) -> None:
    assert send_form(client, part(header)).status == 200


def test_a_part_with_80000_semicolons_is_refused_at_once() -> None:
    """Searching every parameter from the start of the header would take quadratic time."""
    from ibidem.serve.request import _parse_multipart

    began = time.process_time()
    with pytest.raises(ValueError, match="header length"):
        _parse_multipart("multipart/form-data; boundary=b", part(NAMED + b";" * 80_000) + b"--b--\r\n")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "body",
    [
        part(NAMED + b";" * 5_000),
        part(NAMED + b"\r\nX: y" * 8),
        part(NAMED + b"\r\n continued"),
        part(NAMED, b"x") * 150,
        part(b"Content-Disposition: attachment"),
        part(b"X: y"),
        part(NAMED + b"\r\nContent-Type: text/plain; charset=unicode_escape", b"\\ud800"),
        part(NAMED + b"\r\nContent-Type: text/plain; charset=idna", b"x" * 5_000),
        part(NAMED, b"\xff"),
    ],
)
def test_forms_outside_the_limits_are_refused(client: Client, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.serve.request._MAX_FIELDS", 100)
    refused = send_form(client, body)
    assert (refused.status, refused.json) == (400, {"error": "Invalid body: expected a form in UTF-8."})


def test_an_incomplete_form_is_refused(client: Client) -> None:
    assert send_form(client, part(NAMED), end=b"").status == 400
    nameless = client.send("POST", "/detect", part(NAMED) + b"--b--", Content_Type="multipart/form-data")
    assert nameless.status == 400


def test_body_size_is_counted_while_it_arrives(client: Client) -> None:
    """The limit of this server is 20,000 bytes, also for a body without a declared length."""
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


def test_a_large_declared_length_is_refused_before_the_body(client: Client) -> None:
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
    """At 64 KiB a second, the body takes longer than a small body may."""
    parts = 6
    limits = replace(OPEN.limits, body_seconds=0.4)
    with served(translator, replace(OPEN, limits=limits)) as (client, _), connect(client) as connection:
        length = parts << 14
        connection.sendall(f"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        for number in range(parts):
            time.sleep(0.25 if number else 0)
            connection.sendall(b" " * (1 << 14))
        assert b"expected JSON" in connection.recv(4096)


def test_a_disconnect_during_the_body_is_not_logged(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    with served(translator) as (client, _):
        with connect(client) as connection:
            connection.sendall(b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(0.2)
        wait_until(lambda: 'code="499",path="/detect"' in client.get("/metrics").body.decode())
    assert caplog.text == ""


JSON = {"Content_Type": "application/json"}


@pytest.mark.parametrize("body", [b'{"q": "\xed\xa0\x80"}', '{"q": "a"}'.encode("utf-16"), b'{"\\udfff": 1, "q": "a"}'])
def test_json_must_be_utf8(writer: Client, body: bytes) -> None:
    assert writer.send("POST", "/detect", body, **JSON).status == 400
    assert writer.send("POST", "/detect", b'\xef\xbb\xbf{"q": "\\ud83d\\ude00"}', **JSON).status == 200


def test_json_values_are_not_converted(writer: Client, folder: Path) -> None:
    before = Memory.open(folder).active_pairs
    for ids in ([True], [1.0], ["1"], "1", True, {"1": 1}):
        refused = writer.send("DELETE", "/memories/mine/pairs", json.dumps({"ids": ids}).encode(), **JSON)
        assert (refused.status, "ids" in refused.json["error"]) == (400, True), ids
    assert Memory.open(folder).active_pairs == before
    for wrong in ({"alternatives": True}, {"alternatives": "1"}, {"alternatives": 1.0}, {"explain": 1}):
        assert writer.post("/translate", {"q": "Datei", **wrong}).status == 400, wrong
    assert writer.form("/translate", {"q": "Datei", "alternatives": "1", "explain": "true"}).status == 200


AVAILABLE = {"mine": 1.0, "other": 2.0, "a:3": 1.0}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, (("mine", 1.0), ("other", 2.0), ("a:3", 1.0))),
        ([], ()),
        (["none"], ()),
        (["other", "mine"], (("mine", 1.0), ("other", 2.0))),
        (["other:0.5"], (("other", 0.5),)),
        (["a:3"], (("a:3", 1.0),)),
        ({"other": 1, "mine": 3.0}, (("mine", 3.0), ("other", 1.0))),
    ],
)
def test_selected_memories_have_the_order_of_the_server(given: Any, expected: Any) -> None:
    assert choose_memories(given, AVAILABLE, 3) == expected


@pytest.mark.parametrize("given", [["third"], ["mine:x"], ["mine:0"], ["mine:nan"], {"mine": -1.0}, ["mine"] * 4])
def test_invalid_selections_are_refused(given: Any) -> None:
    with pytest.raises(HttpError) as caught:
        choose_memories(given, AVAILABLE, 3)
    assert caught.value.status == 400


def test_languages_are_compared_without_their_region() -> None:
    for source, target in ((None, None), ("auto", ""), ("DE", "en-GB"), ("de_CH", "EN")):
        choose_pair([("de", "en")], source, target)
    for source, target in (("fr", "en"), ("de", "fr"), ("en", "de")):
        with pytest.raises(HttpError, match="is not supported"):
            choose_pair([("de", "en")], source, target)
