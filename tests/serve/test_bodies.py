"""Bodies of requests: parsed in linear time, within limits, and only after the key was checked where that can be."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Answer, Client

NAMED = b'Content-Disposition: form-data; name="q"'


def part(header: bytes, value: bytes = b"Datei") -> bytes:
    return b"--b\r\n" + header + b"\r\n\r\n" + value + b"\r\n"


def send_form(client: Client, *parts: bytes, end: bytes = b"--b--\r\n") -> Answer:
    return client.send("POST", "/detect", b"".join(parts) + end, Content_Type="multipart/form-data; boundary=b")


@pytest.mark.parametrize(
    "header",
    [
        NAMED,
        b'content-disposition: form-data; name="q"; filename="a.txt"\r\nContent-Type: text/plain; charset=UTF-8',
        b"Content-Type: text/plain; charset=iso-8859-1\r\nContent-Disposition: form-data; name=q",
    ],
)
def test_parts_of_a_form(client: Client, header: bytes) -> None:
    assert send_form(client, part(header)).status == 200


def test_a_part_with_80000_semicolons_is_refused_at_once() -> None:
    """It took 21 seconds of the event loop while every parameter was searched from the header's start."""
    from ibidem.serve.request_body import _parse_multipart

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
    monkeypatch.setattr("ibidem.serve.request_body._MAX_FIELDS", 100)
    refused = send_form(client, body)
    assert (refused.status, refused.json) == (400, {"error": "Invalid body: expected a form in UTF-8."})


def test_a_form_that_ends_early_is_refused(client: Client) -> None:
    assert send_form(client, part(NAMED), end=b"").status == 400
    nameless = client.send("POST", "/detect", part(NAMED) + b"--b--", Content_Type="multipart/form-data")
    assert nameless.status == 400
