"""Glossaries over HTTP, with DeepL's own client and with plain requests."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import SearchSettings, Translator
from ibidem.glossary import Entry, Glossary
from ibidem.model import load_model
from ibidem.serve import Key, KeyStore, Limits, ServeSettings, hash_key, make_service, running

from .conftest import OPEN, Client, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SENTENCE, PLAIN = "Der Mandant wurde gelöscht.", "Guten Morgen."
ENTRIES = {"Mandant": "tenant", "Schaltfläche": "push button"}


@pytest.fixture(scope="module")
def shipped() -> Translator:
    """The shipped model: the tiny one cannot spell the terms."""
    return Translator(load_model(device="cpu"), settings=SearchSettings(beam=2))


@pytest.fixture
def client(shipped: Translator, tmp_path: Path) -> Iterator[Client]:
    """A server that stores glossaries."""
    with running(make_service(shipped, replace(OPEN, glossaries=tmp_path / "glossaries"))) as url:
        yield Client(url)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client, str], Any]:
    """Return a function that makes DeepL's client of a server, with a key."""
    module = pytest.importorskip("deepl")
    monkeypatch.setattr(module.http_client, "max_network_retries", 0)
    return lambda client, key: module.DeepLClient(key, server_url=client.url)


def test_official_client_uses_glossaries(
    client: Client, connect: Callable[..., Any], shipped: Translator, tmp_path: Path
) -> None:
    deepl = connect(client, "any key")
    assert [(one.source_lang, one.target_lang) for one in deepl.get_glossary_languages()] == [("de", "en")]
    made = deepl.create_glossary("app", source_lang="DE", target_lang="EN", entries=ENTRIES)
    assert (made.name, made.entry_count, made.ready) == ("app", 2, True)
    assert deepl.get_glossary_entries(made) == ENTRIES
    assert [one.glossary_id for one in deepl.list_glossaries()] == [made.glossary_id]
    assert deepl.get_glossary(made.glossary_id).creation_time == made.creation_time
    found = deepl.translate_text([SENTENCE, PLAIN], source_lang="DE", target_lang="EN-US", glossary=made)
    plain = shipped.translate([SENTENCE, PLAIN])
    assert [one.text for one in found] == ["The tenant was deleted.", plain[1]]
    without = deepl.translate_text(SENTENCE, source_lang="DE", target_lang="EN-US")
    assert without.text == plain[0] != "The tenant was deleted."
    # A second server on the same folder has the glossary.
    with served(shipped, replace(OPEN, glossaries=tmp_path / "glossaries")) as (again, _):
        assert connect(again, "key").get_glossary_entries(made.glossary_id) == ENTRIES
    deepl.delete_glossary(made)
    assert deepl.list_glossaries() == []
    assert list((tmp_path / "glossaries").glob("*.glossary")) == []
    module = pytest.importorskip("deepl")
    with pytest.raises(module.exceptions.GlossaryNotFoundException):
        deepl.get_glossary(made.glossary_id)
    with pytest.raises(module.DeepLException, match="no glossary of this id"):
        deepl.translate_text(SENTENCE, source_lang="DE", target_lang="EN-US", glossary=made.glossary_id)


def test_official_client_uses_multilingual_glossaries(client: Client, connect: Callable[..., Any]) -> None:
    module = pytest.importorskip("deepl")
    deepl = connect(client, "any key")
    both = [
        module.api_data.MultilingualGlossaryDictionaryEntries("DE", "EN", {"Mandant": "client"}),
        module.api_data.MultilingualGlossaryDictionaryEntries("EN", "DE", {"tenant": "Mandant"}),
    ]
    made = deepl.create_multilingual_glossary("both", both)
    assert [(one.source_lang, one.target_lang, one.entry_count) for one in made.dictionaries] == [
        ("DE", "EN", 1),
        ("EN", "DE", 1),
    ]
    more = module.api_data.MultilingualGlossaryDictionaryEntries("DE", "EN", ENTRIES)
    changed = deepl.update_multilingual_glossary_dictionary(made, more)
    assert changed.dictionaries[0].entry_count == 2
    assert deepl.update_multilingual_glossary_name(made, "renamed").name == "renamed"
    assert deepl.get_multilingual_glossary_entries(made, "DE", "EN").dictionaries[0].entries == (
        "Mandant\ttenant\nSchaltfläche\tpush button"
    )
    found = deepl.translate_text(SENTENCE, source_lang="DE", target_lang="EN-US", glossary=made.glossary_id)
    assert found.text == "The tenant was deleted."
    only = module.api_data.MultilingualGlossaryDictionaryEntries("EN", "DE", {"account": "Konto", "user": "Benutzer"})
    assert deepl.replace_multilingual_glossary_dictionary(made, only).entry_count == 2
    deepl.delete_multilingual_glossary_dictionary(made, source_lang="DE", target_lang="EN")
    assert [one.source_lang for one in deepl.get_multilingual_glossary(made.glossary_id).dictionaries] == ["EN"]
    answer = client.post("/v2/translate", {"text": [SENTENCE], "target_lang": "EN", "glossary_id": made.glossary_id})
    assert (answer.status, answer.json["message"]) == (400, "The glossary is not for de to en.")
    deepl.delete_multilingual_glossary(made)
    assert deepl.list_multilingual_glossaries() == []


@contextmanager
def with_keys(translator: Translator, settings: ServeSettings) -> Iterator[Client]:
    """A server with two keys that may write and one that may do all."""
    scopes = {"anna": "write", "bob": "write", "root": "admin"}
    keys = KeyStore([Key(hash_key(key), scope) for key, scope in scopes.items()])
    with running(make_service(translator, settings, keys)) as url:
        yield Client(url)


def test_only_the_key_that_created_a_glossary_changes_it(
    shipped: Translator, connect: Callable[..., Any], tmp_path: Path
) -> None:
    settings = replace(OPEN, glossaries=tmp_path, keys_required=True)
    with with_keys(shipped, settings) as client:
        made = connect(client, "anna").create_glossary("app", "DE", "EN", ENTRIES)
        other = connect(client, "bob")
        assert other.get_glossary_entries(made) == ENTRIES
        path = f"/v2/glossaries/{made.glossary_id}"
        assert client.send("DELETE", path).status == 403
        refused = client.send("DELETE", path, Authorization="DeepL-Auth-Key bob")
        assert (refused.status, refused.json["message"]) == (403, "The glossary belongs to another key.")
        module = pytest.importorskip("deepl")
        with pytest.raises(module.DeepLException, match="Authorization"):
            other.update_multilingual_glossary_name(made.glossary_id, "mine")
        assert len(other.list_glossaries()) == 1
        connect(client, "anna").delete_glossary(made)
        assert other.list_glossaries() == []


def test_invalid_glossaries_are_refused(client: Client, shipped: Translator, tmp_path: Path) -> None:
    valid = {"name": "app", "source_lang": "de", "target_lang": "en", "entries": "Mandant\ttenant"}
    for change, status, message in (
        ({"name": ""}, 400, "name of a glossary"),
        ({"entries": ""}, 400, "no term"),
        ({"entries": "Mandant"}, 400, "line 1: one column"),
        ({"entries": "Mandant\ttenant\nMandant\tclient"}, 400, "line 2: 'Mandant' is 'client' here"),
        ({"entries": "Mandant\t"}, 400, "no translation"),
        ({"entries": "a\x00\tb"}, 400, "not text"),
        ({"target_lang": "de"}, 400, "languages"),
        ({"source_lang": "../../x"}, 400, "languages"),
        ({"entries_format": "xml"}, 400, "entries_format"),
    ):
        answer = client.post("/v2/glossaries", {**valid, **change})
        assert (answer.status, message in answer.json["message"]) == (status, True), (change, answer)
    assert list((tmp_path / "glossaries").iterdir()) == []
    for path in ("/v2/glossaries/..%2F..%2Fetc", "/v2/glossaries/none", "/v3/glossaries/x"):
        assert client.get(path).status == 404
    limits = Limits(rate=1e6, burst=100_000, glossaries=1, glossary_terms=2)
    with served(shipped, replace(OPEN, limits=limits, glossaries=tmp_path / "few")) as (few, _):
        large = few.post("/v2/glossaries", {**valid, "entries": "a\tb\nc\td\ne\tf"})
        assert (large.status, "more than 2 terms" in large.json["message"]) == (413, True)
        assert few.post("/v2/glossaries", valid).status == 201
        assert few.post("/v2/glossaries", valid).status == 413
    for settings in (replace(OPEN, glossaries=None), replace(OPEN, glossaries=tmp_path / "few", read_only=True)):
        with served(shipped, settings) as (closed, _):
            assert closed.post("/v2/glossaries", valid).status == 403


def test_the_glossary_of_the_operator_is_the_default(shipped: Translator, tmp_path: Path) -> None:
    glossary = Glossary("house terms", "de", "en", [Entry("Mandant", ("tenant",))])
    translator = Translator(shipped.model, settings=shipped.settings, glossary=glossary)
    with served(translator, replace(OPEN, glossaries=tmp_path)) as (client, _):
        body = {"q": SENTENCE, "source": "de", "target": "en", "explain": True}
        answer = client.post("/translate", body).json
        assert answer["translatedText"] == "The tenant was deleted."
        term = answer["explanation"]["terms"][0]
        assert (term["glossary"], term["source"], term["forced"], term["met"]) == ("house terms", "Mandant", True, True)
        assert answer["translatedText"][term["start"] : term["end"]] == "tenant"
        assert "from the glossary house terms" in [word["summary"] for word in answer["explanation"]["words"]]
        for name in ("house-terms", "house terms"):
            assert (
                client.post("/translate", {**body, "glossary": name}).json["translatedText"] == answer["translatedText"]
            )
        plain = client.post("/translate", {**body, "glossary": "none"}).json
        assert plain["translatedText"] == shipped.translate([SENTENCE])[0]
        assert plain["explanation"]["terms"] == []
        assert client.send("DELETE", "/v2/glossaries/house-terms").status == 403
        assert client.post("/translate", {**body, "glossary": "other"}).status == 404


def test_a_damaged_file_does_not_stop_the_server(shipped: Translator, tmp_path: Path) -> None:
    Glossary("app", "de", "en", [Entry("Mandant", ("tenant",))]).save(tmp_path / "a1.de-en.glossary")
    (tmp_path / "a2.de-en.glossary").write_bytes(b"{")
    (tmp_path / "notes.txt").write_text("other files are ignored")
    with served(shipped, replace(OPEN, glossaries=tmp_path)) as (client, _):
        assert [one["glossary_id"] for one in client.get("/v2/glossaries").json["glossaries"]] == ["a1"]


def test_a_deleted_glossary_is_restored(shipped: Translator, tmp_path: Path) -> None:
    folder = tmp_path / "glossaries"
    body = {"name": "app", "source_lang": "de", "target_lang": "en", "entries": "Mandant\ttenant"}
    settings = replace(OPEN, glossaries=folder, audit=tmp_path / "audit")
    with served(shipped, settings) as (client, _):
        id = client.post("/v2/glossaries", body).json["glossary_id"]
        assert client.send("DELETE", f"/v2/glossaries/{id}").status == 204
        assert client.get("/glossaries").json == {"glossaries": [], "creates": True}
        (item,) = client.get("/trash").json["items"]
        assert (item["kind"], item["id"], item["name"]) == ("glossary", id, "app")
    # It is on disk: another server restores it.
    with served(shipped, settings) as (client, _):
        assert client.post(f"/trash/glossary/{id}/restore", {}).json == {"name": "app"}
        assert client.get("/trash").json["items"] == []
        (found,) = client.get("/glossaries").json["glossaries"]
        assert found == {"id": id, "name": "app", "source": "de", "target": "en", "terms": 1, "rights": "manage"}
        assert client.post("/translate", {"q": SENTENCE, "glossary": id}).json["translatedText"] == (
            "The tenant was deleted."
        )
        client.send("DELETE", f"/v3/glossaries/{id}")
        assert client.send("DELETE", f"/trash/glossary/{id}").status == 204
        assert client.post(f"/trash/glossary/{id}/restore", {}).status == 404
        assert list((folder / ".trash").iterdir()) == []
    actions = [line.split('"action": "')[1].partition('"')[0] for line in (tmp_path / "audit").read_text().splitlines()]
    assert actions == ["create", "delete", "restore", "delete", "purge"]
    short = replace(settings, limits=replace(OPEN.limits, trash_seconds=1e-6))
    with served(shipped, short) as (client, _):
        id = client.post("/v2/glossaries", body).json["glossary_id"]
        client.send("DELETE", f"/v2/glossaries/{id}")
        assert client.get("/trash").json["items"] == [], "it has expired"


def test_files_of_terms(client: Client) -> None:
    made = client.send("POST", "/glossaries/import?file=Haus.csv", "en;de\ntenant;Mandant\n".encode("utf-16"))
    assert (made.status, made.json["name"], made.json["terms"]) == (201, "Haus", 1)
    path = f"/glossaries/{made.json['id']}/export"
    assert client.get(path).body.decode() == "de,en\nMandant,tenant\n"
    tbx = client.get(f"{path}?format=tbx").body
    again = client.send("POST", "/glossaries/import?file=again.tbx&name=Kopie", tbx)
    assert (again.json["name"], again.json["terms"]) == ("Kopie", 1)
    for file, content in (("a.exe", b"x"), ("a.csv", b"\xff\xff"), ("a.csv", b""), ("..%2F.csv", b"a")):
        answer = client.send("POST", f"/glossaries/import?file={file}", content)
        assert (answer.status, "error" in answer.json) == (400, True), file
    assert client.get("/glossaries/none/export").status == 404


def test_rights_on_glossaries(shipped: Translator, tmp_path: Path) -> None:
    settings = replace(OPEN, glossaries=tmp_path / "glossaries", keys_required=True, audit=tmp_path / "audit")
    body = {"name": "app", "source_lang": "de", "target_lang": "en", "entries": "Mandant\ttenant"}
    with with_keys(shipped, settings) as client:
        anna, bob = (Client(client.url, {"Authorization": f"Bearer {key}"}) for key in ("anna", "bob"))
        id = anna.post("/v2/glossaries", body).json["glossary_id"]
        assert [one["rights"] for one in bob.get("/glossaries").json["glossaries"]] == ["read"]
        anna.send("DELETE", f"/v2/glossaries/{id}")
        assert bob.get("/trash").json["items"] == []
        assert bob.post(f"/trash/glossary/{id}/restore", {}).status == 403
        assert bob.send("DELETE", f"/trash/glossary/{id}").status == 403
        assert anna.post(f"/trash/glossary/{id}/restore", {}).status == 200
        # The key of the owner may be lost.
        root = Client(client.url, {"Authorization": "Bearer root"})
        assert [one["rights"] for one in root.get("/glossaries").json["glossaries"]] == ["manage"]
        new = json.dumps({"name": "new"}).encode()
        assert root.send("PATCH", f"/v3/glossaries/{id}", new, Content_Type="application/json").status == 200
        assert root.send("DELETE", f"/v2/glossaries/{id}").status == 204
        assert root.post(f"/trash/glossary/{id}/restore", {}).status == 200
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["create", "delete", "restore", "change", "delete", "restore"]
