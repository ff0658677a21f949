"""The server process: its socket, its connections, its log and its shutdown."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from ibidem.errors import UsageError
from ibidem.serve import is_loopback
from ibidem.serve.server import listen

from .conftest import TEXT, Client, hold_decoder, served, wait_until

if TYPE_CHECKING:
    from ibidem.decode import Translator


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_port_in_use(client: Client) -> None:
    port = int(client.url.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 cannot be listened on"):
        listen("127.0.0.1", port)


def test_many_requests_on_one_connection(client: Client) -> None:
    connection = http.client.HTTPConnection(client.url.removeprefix("http://"), timeout=20)
    for _ in range(3):
        connection.request("POST", "/translate", json.dumps(TEXT), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert "translatedText" in json.loads(answer.read())
    connection.close()


def test_connections_have_tcp_nodelay(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a response do not wait for an acknowledgement of the first."""
    real, seen = H11Protocol.data_received, []

    def record(self: H11Protocol, data: bytes) -> None:
        seen.append(self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        real(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", record)
    assert client.get("/health").status == 200
    assert seen
    assert all(seen)


def test_the_log_has_no_texts(
    client: Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "Kanarienvogel"
    client.post("/translate", {**TEXT, "q": canary})
    client.get(f"/translate?q={canary}")
    client.post("/translate", {**TEXT, "q": canary, "source": "fr"})
    out, err = capfd.readouterr()
    assert canary not in caplog.text + out + err


def test_shutdown_finishes_accepted_requests(translator: Translator) -> None:
    answers: list[Any] = []
    with served(translator) as (client, service):
        free = hold_decoder(service)
        asking = threading.Thread(target=lambda: answers.append(client.post("/translate", TEXT)))
        asking.start()
        wait_until(lambda: service.batcher.waiting_characters > 0)
        threading.Timer(0.3, free.set).start()
    asking.join(10)
    assert answers[0].status == 200
