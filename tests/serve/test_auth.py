"""API keys and rate limits."""

from __future__ import annotations

import base64
import json
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.errors import UsageError
from ibidem.serve import make_service, running
from ibidem.serve.auth import SCOPES, Key, KeyStore, RateLimiter, add_key, hash_key, read_keys

from .conftest import OPEN, TEXT, Client, connect, make_translator, served, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.decode import Translator
    from ibidem.memory import Memory


def test_only_the_hash_of_a_key_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first, second = add_key(file, "for Weblate\nand more"), add_key(file, "for me")
    assert first != second
    content = file.read_text()
    assert first not in content
    assert second not in content
    assert content.count("\n") == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    keys = KeyStore(read_keys(file))
    assert (keys.find(first), keys.find(second)) == (Key(hash_key(first), "write"), Key(hash_key(second), "write"))
    assert keys.find(first[:-1]) is keys.find("") is keys.find("\ud800") is None
    assert keys.find(hash_key(first)) is None, "a hash is not a key"


def test_a_key_has_256_bits(tmp_path: Path) -> None:
    keys = [add_key(tmp_path / "keys", "") for _ in range(20)]
    bits = [base64.urlsafe_b64decode(key[-43:] + "=") for key in keys]
    assert {len(each) for each in bits} == {32}
    assert len({each[place : place + 4] for each in bits for place in range(0, 32, 4)}) == 8 * len(keys)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("# comment\n\nsha256:" + "0" * 64 + " read\nmy secret\n")
    with pytest.raises(UsageError, match="line 4"):
        add_key(file, "")
    assert file.read_text().endswith("my secret\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "missing")


def test_a_key_is_added_to_a_file_without_a_last_line_break(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"sha256:{hash_key('given')} read by hand")
    made = add_key(file, "new", "admin")
    assert read_keys(file) == [Key(hash_key("given"), "read"), Key(hash_key(made), "admin")]
    file.write_text("# only a comment")
    made = add_key(file, "new")
    assert read_keys(file) == [Key(hash_key(made), "write")]


def test_rate_limiter_refills() -> None:
    now = 0.0
    rates = RateLimiter(rate=2.0, burst=3, clock=lambda: now)
    assert [rates.take("a") for _ in range(3)] == [0, 0, 0]
    assert rates.take("a") == pytest.approx(0.5)
    assert rates.take("b") == 0
    now = 0.25
    assert rates.take("a") == pytest.approx(0.25)
    now = 0.5
    assert rates.take("a") == 0
    now = 1000.0
    assert [rates.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_rate_limiter_drops_old_clients() -> None:
    rates = RateLimiter(rate=1e-9, burst=1, clock=lambda: 0.0)
    assert rates.take("first") == 0
    assert rates.take("first") > 0
    for number in range(20_000):
        rates.take(number)
    assert len(rates._buckets) == 10_000


KEY = "ibidem-a-key"
SENTENCE = "Die Datei wurde gespeichert."


def test_only_public_paths_work_without_a_key(translator: Translator) -> None:
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
        refused = client.get("/v1/models", Authorization="Bearer wrong")
        assert (refused.status, refused.json["error"]["code"]) == (401, "invalid_api_key"), "as OpenAI's clients expect"
    with pytest.raises(UsageError, match="no API key"):
        make_service(translator, replace(OPEN, keys_required=True))


def test_official_clients_with_keys(translator: Translator) -> None:
    libretranslatepy, deepl = pytest.importorskip("libretranslatepy"), pytest.importorskip("deepl")
    with served(translator, replace(OPEN, keys_required=True), KEY) as (client, _):
        assert libretranslatepy.LibreTranslateAPI(client.url, api_key=KEY).translate(SENTENCE, "de", "en")
        assert deepl.DeepLClient(KEY, server_url=client.url).translate_text(SENTENCE, target_lang="EN-US").text
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=client.url).translate_text("Datei", target_lang="EN-US")


def test_rate_limit_of_keys_and_addresses(translator: Translator) -> None:
    limits = replace(OPEN.limits, rate=0.5, burst=3)
    with served(translator, replace(OPEN, limits=limits, keys_required=True), KEY, "other") as (client, _):
        statuses = [client.get("/memories", Authorization=f"Bearer {KEY}").status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = client.get("/memories", Authorization=f"Bearer {KEY}")
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert client.get("/memories", Authorization="Bearer other").status == 200, "another key has its own rate"
        guesses = [client.get("/memories", Authorization=f"Bearer {number}").status for number in range(5)]
        assert guesses == [403, 403, 403, 429, 429], "invalid keys count against the address"
        assert client.get("/health").status == 200


def test_refused_requests_count_against_the_rate(translator: Translator) -> None:
    """Malformed JSON, missing fields and parameters, and unknown paths."""
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
            assert client.get("/").status == client.get("/health").status == 200, "the page is not limited"


def test_a_key_in_the_body_has_its_own_rate(translator: Translator) -> None:
    limits = replace(OPEN.limits, rate=0.001, burst=3)
    with served(translator, replace(OPEN, limits=limits, keys_required=True), KEY, "other") as (client, _):

        def send(key: str) -> int:
            return client.post("/detect", {"q": "a", "api_key": key}).status

        assert [send(KEY) for _ in range(4)] == [200, 200, 200, 429]
        assert [send("other") for _ in range(3)] == [200, 200, 200]
        assert [send("wrong") for _ in range(4)] == [403, 403, 403, 429], "invalid keys count against the address"


def test_key_and_rate_are_checked_before_the_body_is_read(translator: Translator) -> None:
    """A body that does not arrive would lead to status 408 after 30 seconds."""
    limits = replace(OPEN.limits, rate=0.001, burst=2)

    def send(path: str, authorization: str) -> bytes:
        with connect(client) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode())
            return connection.recv(4096).split(b" ", 2)[1]

    with served(translator, replace(OPEN, limits=limits, keys_required=True), KEY) as (client, _):
        assert send("/translate", "Bearer wrong") == b"403"
        assert send("/v2/translate?api_key=wrong", "none") == b"403"
        assert send("/translate", "none") == b"429"
        assert send("/translate?api_key=wrong", "none") == b"429"


def test_an_invalid_key_in_the_body_is_refused_before_other_fields(translator: Translator) -> None:
    with served(translator, replace(OPEN, keys_required=True), KEY) as (client, _):
        for path in ("/translate", "/suggest", "/detect", "/memories/none/pairs", "/v2/translate"):
            for key in ("wrong", 5, None, [KEY]):
                assert client.post(path, {"api_key": key, "auth_key": key, "q": 3}).status == 403
            assert client.post(path, {"api_key": KEY, "q": 3}).status == 400


def test_keys_are_added_and_revoked_while_the_store_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, now = tmp_path / "keys", 0.0
    first = add_key(file, "first", "read")
    keys = KeyStore([Key(hash_key("given"))], file, clock=lambda: now)
    assert (keys.find(first), keys.find("given")) == (Key(hash_key(first), "read"), Key(hash_key("given"), "admin"))
    second = add_key(file, "second", "admin")
    assert keys.find(second) is None  # the file is looked at once a second
    now = 1.5
    assert keys.find(second) == Key(hash_key(second), "admin")
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "second" in line))
    now = 3.0
    assert (keys.find(first), keys.find(second) is not None) == (None, True)
    file.write_text("nonsense")
    now = 4.5
    assert keys.find(second) is not None
    assert "The API keys stay as they were" in caplog.text
    file.write_text("")
    now = 6.0
    assert (keys.find(second), keys.find("given") is not None) == (None, True)


def test_unknown_scope_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="read, write, admin"):
        add_key(tmp_path / "keys", "", "all")
    assert not (tmp_path / "keys").exists()


TERMS = {"source_lang": "de", "target_lang": "en", "entries": ""}
SCOPED: list[tuple[str, str, str, object]] = [
    ("read", "POST", "/translate", TEXT),
    ("read", "POST", "/v2/translate", {"text": ["Datei"], "target_lang": "EN"}),
    ("read", "GET", "/memories", None),
    ("read", "GET", "/jobs/unknown", None),
    ("write", "POST", "/suggest", {"q": "Datei", "s": "File", "source": "de", "target": "en"}),
    ("write", "POST", "/memories/mine/pairs", {"pairs": [{"source": "Eins", "target": "One"}]}),
    ("write", "DELETE", "/memories/mine/pairs", {"ids": [0]}),
    ("write", "POST", "/memories/mine/import?file=a.tsv", None),
    ("write", "DELETE", "/jobs/unknown", None),
    ("read", "GET", "/v2/glossaries", None),
    ("write", "POST", "/v2/glossaries", {"name": "x", "entries": "a\tb", "source_lang": "de", "target_lang": "en"}),
    ("write", "DELETE", "/v2/glossaries/unknown", None),
    ("write", "DELETE", "/v3/glossaries/unknown", None),
    ("read", "POST", "/documents?file=a.unknown", None),
    ("read", "GET", "/documents/unknown", None),
    ("admin", "DELETE", "/memories/mine/pairs", {"origin": "unknown.tsv"}),
    ("admin", "GET", "/metrics", None),
    ("read", "POST", "/segments", {"q": "Datei"}),
    ("read", "GET", "/memories/mine/search?q=a", None),
    ("read", "GET", "/glossaries", None),
    ("read", "GET", "/glossaries/unknown/export", None),
    ("write", "GET", "/memories/mine/export", None),
    ("write", "POST", "/memories", {"name": "new"}),
    ("write", "PATCH", "/memories/unknown", {"name": "other"}),
    ("write", "DELETE", "/memories/unknown", None),
    ("write", "GET", "/trash", None),
    ("write", "POST", "/trash/memory/unknown/restore", {}),
    ("write", "DELETE", "/trash/memory/unknown", None),
    ("write", "POST", "/glossaries/import?file=a.csv", None),
    ("write", "PATCH", "/v3/glossaries/unknown", {"name": "x"}),
    ("write", "PUT", "/v3/glossaries/unknown/dictionaries", TERMS),
    ("write", "DELETE", "/v3/glossaries/unknown/dictionaries?source_lang=de&target_lang=en", None),
    ("replicate", "GET", "/replication/mine/view", None),
    ("replicate", "GET", "/replication/mine/files/manifest.json", None),
]


# A key of a server that follows may read nothing else.
_COVERED = {"replicate": 0, "read": 1, "write": 2, "admin": 3}


def test_every_scope_is_refused_what_it_does_not_cover(tiny: Any, folder: Path) -> None:
    """Also with the key in the body, which is read before it is known."""
    store = KeyStore([Key(hash_key(scope), scope) for scope in SCOPES])
    settings = replace(OPEN, keys_required=True, glossaries=folder.parent / "glossaries")
    settings = replace(settings, memories=folder.parent / "memories")
    service = make_service(make_translator(tiny, folder), settings, store)
    with running(service) as url:
        client = Client(url)
        for needed, method, path, body in SCOPED:
            for scope in SCOPES:
                content = None if body is None else json.dumps(body).encode()
                answer = client.send(
                    method, path, content, Content_Type="application/json", Authorization=f"Bearer {scope}"
                )
                covered = _COVERED[scope] >= _COVERED[needed] if needed != "replicate" else scope in (needed, "admin")
                assert (answer.status == 403) != covered, (scope, method, path, answer)
                if not covered:
                    assert f"This API key has the scope {scope}, and" in str(answer.json)
                if body is not None:
                    content = json.dumps({**body, "api_key": scope}).encode()  # type: ignore[dict-item]
                    answer = client.send(method, path, content, Content_Type="application/json")
                    assert (answer.status == 403) != covered, (scope, method, path, answer)


def test_revoked_key_is_refused_by_a_running_server(tiny: Any, memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    old = add_key(file, "old")
    service = make_service(make_translator(tiny, memory), replace(OPEN, keys_required=True), KeyStore((), file))
    with running(service) as url:
        client = Client(url)
        assert client.get("/memories", Authorization=f"Bearer {old}").status == 200
        new = add_key(file, "new")
        wait_until(lambda: client.get("/memories", Authorization=f"Bearer {new}").status == 200)
        assert client.get("/memories", Authorization=f"Bearer {old}").status == 200
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "new" in line))
        wait_until(lambda: client.get("/memories", Authorization=f"Bearer {old}").status == 403)
        assert client.get("/memories", Authorization=f"Bearer {new}").status == 200
