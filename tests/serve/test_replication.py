"""Read-only servers that follow a writer over HTTP, over a shared folder, or from object storage."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn import index_memory
from ibidem.memory import Memory, RefusedError, Replica, ServerSource, verify_folder
from ibidem.serve import Key, KeyStore, Limits, ServeSettings, answering, hash_key, listen, make_service, running

from .conftest import GERMAN, TEXT, WANTED, Client, make_translator, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ibidem.serve import Service

LIMITS = Limits(rate=1e6, burst=100_000, follow_seconds=0.05, stale_seconds=1.0)
KEYS = {name: f"key-{name}" for name in ("read", "write", "admin", "replicate")}
QUERIES = [GERMAN, "Datei", "Der Benutzer wurde gelöscht.", "Neues Wort"]


def keys() -> KeyStore:
    return KeyStore([Key(hash_key(key), scope) for scope, key in KEYS.items()])


@contextmanager
def writing(tiny: Any, folder: Path, port: int = 0) -> Iterator[Client]:
    settings = ServeSettings(LIMITS, keys_required=True)
    with running(make_service(make_translator(tiny, folder), settings, keys()), port=port) as url:
        yield Client(url, {"Authorization": f"Bearer {KEYS['admin']}"})


@contextmanager
def following(tiny: Any, folder: Path, url: str, **limits: float) -> Iterator[tuple[Client, Service]]:
    """A read-only server with a replica of the memory `mine`."""
    replica = Replica(folder, ServerSource(url, "mine", KEYS["replicate"], timeout=20))
    if not replica.exists:
        replica.update()
    settings = ServeSettings(Limits(**{**vars(LIMITS), **limits}), read_only=True, writer=url)
    service = make_service(make_translator(tiny, folder), settings, None, {"mine": replica})
    with running(service) as own:
        yield Client(own), service


def translations(client: Client) -> list[str]:
    body = {"q": QUERIES, "source": "de", "target": "en"}
    answer = client.post("/translate", body)
    assert answer.status == 200, answer.body
    return list(answer.json["translatedText"])


def state(client: Client) -> object:
    return client.get("/memories").json["memories"][0]["pairs"]


def test_two_followers_give_the_translations_of_the_writer(tiny: Any, folder: Path, tmp_path: Path) -> None:
    """While pairs are added and removed, and the journal is sealed."""
    with (
        writing(tiny, folder) as writer,
        following(tiny, tmp_path / "a" / "mine", writer.url) as (one, service),
        following(tiny, tmp_path / "b" / "mine", writer.url) as (two, _),
    ):
        assert translations(one) == translations(two) == translations(writer)
        before = translations(writer)

        def check() -> None:
            wait_until(lambda: state(one) == state(two) == state(writer))
            assert translations(one) == translations(two) == translations(writer)

        writer.post("/suggest", {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"})
        check()
        assert translations(one) != before
        added = writer.post(
            "/memories/mine/pairs", {"pairs": [{"source": "Neues Wort", "target": "New word"}], "origin": "test"}
        )
        check()
        Memory.open(folder).sealed()  # another process
        writer.send(
            "DELETE",
            "/memories/mine/pairs",
            json.dumps({"ids": added.json["added"]}).encode(),
            Content_Type="application/json",
        )
        check()
        assert service.followers is not None
        wait_until(lambda: service.followers.states()[0].generation == Memory.open(folder).generation)  # type: ignore[union-attr]
        last = translations(one)
        assert one.get("/ready").json == {"status": "ready"}
        assert translations(one) == last
        assert verify_folder(tmp_path / "a" / "mine")[1] == []


def test_a_writer_that_is_away(tiny: Any, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a" / "mine"
    with writing(tiny, folder) as writer:
        url, port = writer.url, int(writer.url.rpartition(":")[2])
        with following(tiny, copy, url) as (client, _):
            last = translations(client)
    # It starts without its writer, with what it has.
    with following(tiny, copy, url, max_stale_seconds=2.0) as (client, service):
        assert translations(client) == last
        wait_until(lambda: client.get("/ready").json["status"] == "stale")
        found = client.get("/ready")
        assert found.json["seconds_behind"] >= 1
        health = client.get("/health")
        assert (health.status, health.json["status"]) == (200, "ok")
        assert health.json["seconds_behind"] >= 1
        metrics = client.get("/metrics").body.decode()
        assert 'ibidem_follow_stale{memory="mine"} 1.0' in metrics
        assert 'ibidem_follow_failures{memory="mine"} 0.0' not in metrics
        wait_until(lambda: client.get("/ready").status == 503)
        assert translations(client) == last
        with writing(tiny, folder, port) as writer:
            writer.post("/suggest", {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"})
            wait_until(lambda: client.get("/ready").json == {"status": "ready"})
            wait_until(lambda: state(client) == state(writer))
            assert translations(client) == translations(writer) != last
        assert service.followers is not None


def test_an_unexpected_error_does_not_end_following(
    tiny: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(tiny, folder) as writer, following(tiny, tmp_path / "copy" / "mine", writer.url) as (_, service):
        update, broken = Replica.update, [True]

        def fail(replica: Replica) -> bool:
            if broken[0]:
                raise RecursionError("a bug")
            return update(replica)

        monkeypatch.setattr(Replica, "update", fail)
        assert service.followers is not None
        wait_until(lambda: service.followers.states()[0].error == "RecursionError: a bug")
        broken[0] = False
        wait_until(lambda: not service.followers.states()[0].error)


def test_changes_are_refused_with_the_address_of_the_writer(tiny: Any, folder: Path, tmp_path: Path) -> None:
    with writing(tiny, folder) as writer, following(tiny, tmp_path / "copy" / "mine", writer.url) as (client, _):
        pair = {"pairs": [{"source": "a", "target": "b"}], "origin": "test"}
        requests = [
            client.post("/suggest", {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"}),
            client.post("/memories/mine/pairs", pair),
            client.send("DELETE", "/memories/mine/pairs", b'{"ids": [1]}', Content_Type="application/json"),
            client.send("POST", "/memories/mine/import?file=a.tsv", b"a\tb\n"),
            client.post("/v2/glossaries", {"name": "n", "source_lang": "de", "target_lang": "en", "entries": "a\tb"}),
        ]
        for answer in requests[:4]:
            assert (answer.status, writer.url in answer.json["error"]) == (403, True), answer.body
        assert requests[4].status in (400, 403)
        assert client.post("/memories/other/pairs", pair).status == 404


def test_a_shared_folder_is_followed(tiny: Any, folder: Path) -> None:
    """A merged index of the writer is opened in the background."""
    settings = ServeSettings(LIMITS, read_only=True)
    service = make_service(make_translator(tiny, folder), settings)
    with writing(tiny, folder) as writer, running(service) as url:
        reader = Client(url)
        writer.post("/suggest", {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"})
        wait_until(lambda: state(reader) == state(writer))
        assert translations(reader) == translations(writer)
        loaded = service.engine.memories["mine"]
        reloaded = []
        loaded.reload = lambda: reloaded.append(True)  # type: ignore[method-assign]
        index_memory(Memory.open(folder), "IVF4,Flat")
        wait_until(lambda: bool(reloaded))
        assert translations(reader) == translations(writer)


def test_scopes_and_paths(tiny: Any, folder: Path, tmp_path: Path) -> None:
    with writing(tiny, folder) as writer:
        for scope, status in (("read", 403), ("write", 403), ("admin", 200), ("replicate", 200)):
            key = {"Authorization": f"Bearer {KEYS[scope]}"}
            assert Client(writer.url, key).get("/replication/mine/view").status == status
            assert Client(writer.url, key).get("/memories").status == (403 if scope == "replicate" else 200)
        assert Client(writer.url).get("/replication/mine/view").status == 403
        assert writer.get("/replication/other/view").status == 404
        view = writer.get("/replication/mine/view")
        tag = {name.lower(): value for name, value in view.headers.items()}["etag"]
        assert writer.get("/replication/mine/view", If_None_Match=tag).status == 304
        name = Memory.open(folder).manifest.segments[0].name
        whole = writer.get(f"/replication/mine/files/segments/{name}/values.bin")
        part = writer.get(f"/replication/mine/files/segments/{name}/values.bin", Range="bytes=3-9")
        assert whole.body == (folder / "segments" / name / "values.bin").read_bytes()
        assert (part.status, part.body) == (206, whole.body[3:10])
        for path in ("manifest.json", "lock", "../mine/manifest.json", "work/x", "segments/000001/../../manifest.json"):
            quoted = path.replace("/", "%2F").replace(".", "%2E")
            assert writer.get(f"/replication/mine/files/{quoted}").status in (404, 410)
        source = ServerSource(writer.url, "mine", "wrong")
        with Replica(tmp_path / "copy" / "mine", source) as replica, pytest.raises(RefusedError, match="API key"):
            replica.update()


def test_memories_that_clients_create_and_delete(tiny: Any, tmp_path: Path) -> None:
    service = make_service(make_translator(tiny, None), ServeSettings(LIMITS, memories=tmp_path / "store"))
    with running(service) as url:
        client = Client(url)
        assert client.get("/replication/terms/view").status == 404
        assert client.post("/memories", {"name": "terms"}).status == 201
        assert client.get("/replication/terms/view").status == 200
        assert client.send("DELETE", "/memories/terms").status == 200
        assert client.get("/replication/terms/view").status == 404
        assert client.get("/replication/terms/files/journals/000001.log").status == 404


def test_a_public_server_without_keys_sends_no_memory(tiny: Any, folder: Path) -> None:
    service = make_service(make_translator(tiny, folder), ServeSettings(LIMITS, replication=False))
    with running(service) as url:
        assert Client(url).get("/replication/mine/view").status == 403


def test_replicas_are_not_limited_in_rate(tiny: Any, folder: Path, tmp_path: Path) -> None:
    settings = ServeSettings(Limits(rate=0.01, burst=1), keys_required=True)
    service = make_service(make_translator(tiny, folder), settings, keys())
    with (
        running(service) as url,
        Replica(tmp_path / "copy" / "mine", ServerSource(url, "mine", KEYS["replicate"])) as replica,
    ):
        assert replica.update()
        assert Client(url).get("/replication/mine/view").status == 403
        assert Client(url).get("/replication/mine/view").status == 429


def test_a_broken_proxy(tiny: Any, folder: Path, tmp_path: Path) -> None:
    """Bytes that change or end on the way are refused, and the replica stays as it was."""
    with writing(tiny, folder) as writer:
        target = writer.url.removeprefix("http://").partition(":")
        mode = ["none"]
        with _proxy((target[0], int(target[2])), mode) as url:
            copy = tmp_path / "copy" / "mine"
            with Replica(copy, ServerSource(url, "mine", KEYS["replicate"], timeout=20)) as replica:
                for mode[0] in ("flip", "cut"):
                    with pytest.raises(MemoryFolderError):
                        replica.update()
                    assert not replica.exists
                mode[0] = "none"
                replica.update()
            assert verify_folder(copy)[1] == []


@contextmanager
def _proxy(target: tuple[str, int], mode: list[str]) -> Iterator[str]:
    """A proxy that changes or cuts the content of responses."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name: value for name, value in self.headers.items() if name != "Host"}
            request = urllib.request.Request(f"http://{target[0]}:{target[1]}{self.path}", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    status, found, body = answer.status, answer.headers, bytearray(answer.read())
            except urllib.error.HTTPError as error:
                status, found, body = error.code, error.headers, bytearray(error.read())
            length = len(body)
            if "/files/" in self.path and body:
                if mode[0] == "flip":
                    body[-1] ^= 1
                elif mode[0] == "cut":
                    del body[len(body) // 2 :]
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            if "ETag" in found:
                self.send_header("ETag", found["ETag"])
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_addresses() -> None:
    for url in ("writer:5000", "ftp://a", "http://", "http://a:b", "http://user:secret@a", "http://a/?key=b"):
        with pytest.raises(UsageError):
            ServerSource(url, "mine")


def test_loading_is_answered() -> None:
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    url = f"http://{address[0]}:{address[1]}"
    with listener:
        with answering(listener, lambda: {"bytes": 7}):
            client = Client(url)
            idle = socket.create_connection(address)
            assert (client.get("/health").status, client.get("/health").json) == (200, {"status": "loading"})
            assert (client.get("/ready").status, client.get("/ready").json["bytes"]) == (503, "7")
            assert client.post("/translate", TEXT).status == 503
            for content in (b"", b"\r\n\r\n", b"GET\r\n\r\n", b"x" * 20_000, b"GET / HTTP/1.1\r\n"):
                with socket.create_connection(address) as other:
                    other.sendall(content)
            assert client.get("/health").status == 200
            idle.close()
        with pytest.raises((TimeoutError, urllib.error.URLError)):
            urllib.request.urlopen(f"{url}/health", timeout=0.3)  # the server is gone
