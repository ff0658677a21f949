"""The server process: its socket, its connections, its log and its shutdown."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from ibidem.errors import UsageError
from ibidem.serve import Certificate, is_loopback, make_service, running
from ibidem.serve.server import listen

from .conftest import OPEN, TEXT, Client, hold_decoder, served, wait_until

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A self-signed certificate for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "chain.pem"]
    subprocess.run(command, check=True, capture_output=True)
    return Certificate(folder / "chain.pem", folder / "key.pem")


def test_tls(translator: Translator, certificate: Certificate) -> None:
    with running(make_service(translator, OPEN), certificate=certificate) as url:
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(certificate.chain))
        with urllib.request.urlopen(f"{url}/health", timeout=20, context=trusted) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{url}/health", timeout=20)  # the certificate is not trusted
        old = ssl.create_default_context(cafile=str(certificate.chain))
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((urllib.error.URLError, ssl.SSLError)):
            urllib.request.urlopen(f"{url}/health", timeout=20, context=old)
        with pytest.raises((urllib.error.URLError, OSError, http.client.HTTPException)):
            urllib.request.urlopen(url.replace("https", "http"), timeout=20)
        with urllib.request.urlopen(f"{url}/health", timeout=20, context=trusted) as answer:
            assert answer.status == 200


def test_invalid_certificates_are_refused(translator: Translator, certificate: Certificate, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    assert certificate.key is not None
    locked = tmp_path / "locked.pem"
    command = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", certificate.key, "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    service = make_service(translator, OPEN)
    for wrong in (
        Certificate(tmp_path / "missing"),
        Certificate(tmp_path / "text"),
        Certificate(certificate.chain),
        Certificate(certificate.chain, locked),
    ):
        with pytest.raises(UsageError, match="cannot be used"), running(service, certificate=wrong):
            pass
    service.close()
