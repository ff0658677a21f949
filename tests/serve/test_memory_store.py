"""The memories that clients create: names, rights, renaming, the trash, and what survives a kill."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.memory import Memory
from ibidem.serve import Key, KeyStore, hash_key, make_service, running
from ibidem.serve.http_error import HttpError
from ibidem.serve.jobs import Job
from ibidem.serve.memory_store import check_name
from ibidem.serve.request import RequestOptions
from ibidem.serve.search import SearchQuery, find_all_matches, search_memory

from .conftest import GERMAN, OPEN, WANTED, Client, make_translator, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


HEADER = {"Content_Type": "application/json"}


def change(client: Client, memory: str, **what: Any) -> Any:
    return client.send("PATCH", f"/memories/{memory}", json.dumps(what).encode(), **HEADER)


def names(client: Client) -> list[str]:
    return sorted(one["name"] for one in client.get("/memories").json["memories"])


def translate(client: Client, *memories: str) -> str:
    found = client.post("/translate", {"q": GERMAN, "memories": list(memories)})
    assert found.status == 200, found.body
    return str(found.json["translatedText"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def managed(tiny: Any, store: Path) -> Iterator[Client]:
    """A server without memories at first."""
    with running(make_service(make_translator(tiny, None), replace(OPEN, memories=store))) as url:
        yield Client(url)


@given(st.text(max_size=80))
def test_names_are_folders_and_parts_of_requests(text: str) -> None:
    try:
        name = check_name(text)
    except HttpError:
        return
    assert check_name(name) == name
    assert not set(name) & set('/\\:*?"<>|,\0\n')
    assert not {name[0], name[-1]} & {".", " "}
    assert len(name.encode()) <= 200


@pytest.mark.parametrize("name", ["..", "a/b", ".trash", "none", "Trash", "a:2", "a,b", "*", "", " ", "x" * 65, "a."])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(HttpError):
        check_name(name)


def test_create_learn_rename_delete_restore(managed: Client, tiny: Any, store: Path) -> None:
    before = translate(managed)
    assert managed.get("/memories").json == {"memories": [], "creates": True}
    made = managed.post("/memories", {"name": " Firma  Ä "})
    assert (made.status, made.json) == (201, {"name": "Firma Ä"})
    assert managed.post("/memories", {"name": "firma ä"}).status == 409, "file systems may ignore the case"
    pairs = {"pairs": [{"source": GERMAN, "target": WANTED}]}
    assert managed.post("/memories/Firma%20%C3%84/pairs", pairs).status == 200
    assert translate(managed, "Firma Ä") == WANTED
    assert change(managed, "Firma%20%C3%84", name="team").json == {"name": "team"}
    assert names(managed) == ["team"]
    assert translate(managed, "team") == WANTED
    assert translate(managed) == before, "no memory was chosen"
    gone = managed.post("/translate", {"q": GERMAN, "memories": ["Firma Ä"]})
    assert (gone.status, "no memory" in gone.json["error"]) == (400, True)
    assert managed.post("/memories/team/pairs", {"pairs": [{"source": "Datei", "target": "Open"}]}).status == 200
    both = translate(managed, "team")
    assert Memory.open(store / "team").verify() == []

    deleted = managed.send("DELETE", "/memories/team").json
    assert (deleted["kind"], deleted["name"]) == ("memory", "team")
    assert names(managed) == []
    assert managed.get("/trash").json["items"] == [deleted]
    assert managed.post("/memories/team/pairs", pairs).status == 404
    assert managed.post("/memories", {"name": "team"}).status == 201
    taken = managed.post(f"/trash/memory/{deleted['id']}/restore", {})
    assert taken.status == 409
    again = managed.post(f"/trash/memory/{deleted['id']}/restore", {"name": "team 2"})
    assert again.json == {"name": "team 2"}
    assert names(managed) == ["team", "team 2"]
    assert translate(managed, "team 2") == both
    assert Memory.open(store / "team 2").find(GERMAN, WANTED)
    assert managed.get("/trash").json["items"] == []
    # A second server on the same folder has both.
    with running(make_service(make_translator(tiny, None), replace(OPEN, memories=store))) as url:
        assert names(Client(url)) == ["team", "team 2"]
        assert translate(Client(url), "team 2") == both


def test_purging_is_final(managed: Client, store: Path) -> None:
    managed.post("/memories", {"name": "team"})
    deleted = managed.send("DELETE", "/memories/team").json
    assert managed.send("DELETE", f"/trash/memory/{deleted['id']}").status == 204
    assert managed.get("/trash").json["items"] == []
    assert managed.post(f"/trash/memory/{deleted['id']}/restore", {}).status == 404
    assert [path.name for path in (store / ".trash").iterdir()] == []
    assert managed.post("/trash/memory/..%2F..%2Fx/restore", {}).status == 404
    assert managed.post("/trash/other/x/restore", {}).status == 400


def test_the_trash_expires(tiny: Any, store: Path) -> None:
    limits = replace(OPEN.limits, trash_seconds=0.001, stored_memories=1)
    with running(make_service(make_translator(tiny, None), replace(OPEN, limits=limits, memories=store))) as url:
        client = Client(url)
        assert client.post("/memories", {"name": "a"}).status == 201
        assert client.post("/memories", {"name": "b"}).status == 413
        assert client.send("DELETE", "/memories/a").status == 200
        wait_until(lambda: client.get("/trash").json["items"] == [])
        assert client.post("/memories", {"name": "b"}).status == 201


def test_memories_of_the_operator_stay(writer: Client, folder: Path) -> None:
    shown = writer.get("/memories").json
    assert (shown["creates"], shown["memories"][0]["rights"]) == (False, "write")
    assert writer.send("DELETE", "/memories/mine").status == 403
    assert change(writer, "mine", name="x").status == 403
    assert change(writer, "mine", others="none").status == 403
    refused = writer.post("/memories", {"name": "x"})
    assert (refused.status, "--memories" in refused.json["error"]) == (403, True)
    assert writer.send("DELETE", "/memories/none-such").status == 404
    assert folder.is_dir()


def test_a_read_only_server_changes_nothing(tiny: Any, managed: Client, store: Path) -> None:
    managed.post("/memories", {"name": "team"})
    managed.post("/memories/team/pairs", {"pairs": [{"source": GERMAN, "target": WANTED}]})
    settings = replace(OPEN, memories=store, read_only=True)
    with running(make_service(make_translator(tiny, None), settings)) as url:
        replica = Client(url)
        assert replica.get("/memories").json["creates"] is False
        assert replica.get("/memories").json["memories"][0]["rights"] == "read"
        assert "memories" not in replica.get("/frontend/settings").json["features"]
        assert translate(replica, "team") == WANTED
        for answer in (
            replica.post("/memories", {"name": "x"}),
            replica.send("DELETE", "/memories/team"),
            change(replica, "team", name="x"),
        ):
            assert (answer.status, "read-only" in answer.json["error"]) == (403, True)
        # It follows what the other server does.
        managed.post("/memories", {"name": "another"})
        assert names(replica) == ["another", "team"]
        managed.send("DELETE", "/memories/another")
        assert names(replica) == ["team"]
        assert replica.get("/trash").json["items"][0]["name"] == "another"


def test_rights_of_keys(tiny: Any, store: Path, tmp_path: Path) -> None:
    keys = {"anna": "write", "bob": "write", "carl": "read", "root": "admin"}
    known = KeyStore([Key(hash_key(key), scope) for key, scope in keys.items()])
    settings = replace(OPEN, memories=store, keys_required=True, audit=tmp_path / "audit")
    service = make_service(make_translator(tiny, None), settings, known)
    with running(service) as url:
        anna, bob, carl, root = (Client(url, {"Authorization": f"Bearer {key}"}) for key in keys)
        assert carl.post("/memories", {"name": "x"}).status == 403
        assert carl.get("/memories").json["creates"] is False
        assert anna.post("/memories", {"name": "own", "others": "none"}).status == 201
        service.jobs._jobs["import"] = job = Job("import", "own", "a.tsv")
        pairs = {"pairs": [{"source": GERMAN, "target": WANTED}]}
        assert anna.post("/memories/own/pairs", pairs).status == 200
        assert names(bob) == names(carl) == []
        assert names(root) == ["own"]
        plain = translate(bob)
        hidden = bob.post("/translate", {"q": GERMAN}).json["translatedText"]
        assert hidden == plain, "a memory that a key may not use has no influence"
        assert anna.post("/translate", {"q": GERMAN}).json["translatedText"] == WANTED
        assert bob.post("/translate", {"q": GERMAN, "memories": ["own"]}).status == 400
        assert bob.get("/v3/translation_memories").json["translation_memories"] == []
        for answer in (
            bob.post("/memories/own/pairs", pairs),
            bob.send("DELETE", "/memories/own"),
            bob.get("/memories/own/export"),
            bob.send("POST", "/memories/own/import?file=a.tsv", b"a\tb\n"),
            bob.send("DELETE", "/memories/own/pairs", json.dumps({"ids": [0]}).encode()),
            bob.get("/jobs/import"),
            bob.send("DELETE", "/jobs/import"),
        ):
            assert answer.status == 404, "not even the name is told"
        assert anna.get("/jobs/import").status == 200
        job.state = "done"

        assert change(anna, "own", others="read").status == 200
        assert translate(bob, "own") == WANTED
        assert bob.get("/memories").json["memories"][0]["rights"] == "read"
        assert bob.get("/memories/own/export").status == 200
        job.state = "running"
        assert bob.send("DELETE", "/jobs/import").status == 403, "it may read the memory only"
        job.state = "done"
        assert carl.get("/memories/own/export").status == 403
        assert bob.post("/memories/own/pairs", pairs).status == 403
        assert change(bob, "own", others="write").status == 403

        assert change(anna, "own", others="write").status == 200
        assert bob.post("/memories/own/pairs", pairs).status == 200
        assert carl.post("/memories/own/pairs", pairs).status == 403
        assert bob.send("DELETE", "/memories/own").status == 403
        deleted = anna.send("DELETE", "/memories/own").json
        assert bob.get("/trash").json["items"] == []
        assert bob.post(f"/trash/memory/{deleted['id']}/restore", {}).status == 403
        assert bob.send("DELETE", f"/trash/memory/{deleted['id']}").status == 403
        assert carl.get("/trash").status == 403
        assert root.post(f"/trash/memory/{deleted['id']}/restore", {}).status == 200
        assert anna.get("/memories").json["memories"][0]["rights"] == "manage"
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [line["action"] for line in lines] == [
        *("create", "add", "access", "access", "add", "delete", "restore"),
    ]
    assert {line["memory"] for line in lines} == {"own"}
    assert GERMAN not in (tmp_path / "audit").read_text()


def test_a_memory_that_is_imported_into_stays(tiny: Any, store: Path) -> None:
    service = make_service(make_translator(tiny, None), replace(OPEN, memories=store))
    with running(service) as url:
        client = Client(url)
        client.post("/memories", {"name": "team"})
        with service.jobs.receive("team", "a.tsv"):
            assert client.send("DELETE", "/memories/team").status == 409
            assert change(client, "team", name="x").status == 409
        assert client.send("DELETE", "/memories/team").status == 200
        with pytest.raises(HttpError), service.jobs.receive("team", "a.tsv"):
            pass


def test_renaming_while_others_translate_and_learn(tiny: Any, store: Path) -> None:
    """Every request has its result or a clear error, and nothing that was acknowledged is lost."""
    service = make_service(make_translator(tiny, None), replace(OPEN, memories=store))
    with running(service) as url:
        client = Client(url)
        client.post("/memories", {"name": "a"})
        stop, statuses, learnt = threading.Event(), set(), []

        def work(number: int) -> None:
            for round in range(200):
                if stop.is_set():
                    return
                name = "ab"[round % 2]
                statuses.add(client.post("/translate", {"q": f"Datei {round}", "memories": [name]}).status)
                text = f"Satz {number} {round}"
                pairs = {"pairs": [{"source": text, "target": "Open"}]}
                found = client.post(f"/memories/{name}/pairs", pairs)
                statuses.add(found.status)
                if found.status == 200:
                    learnt.append(text)

        threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()
        for round in range(6):
            assert change(client, "ab"[round % 2], name="ba"[round % 2]).status == 200
            deleted = client.send("DELETE", f"/memories/{'ba'[round % 2]}").json
            assert client.post(f"/trash/memory/{deleted['id']}/restore", {}).status == 200
        stop.set()
        for thread in threads:
            thread.join()
        assert statuses <= {200, 400, 404}, statuses
        service.writers.close()
    memory = Memory.open(store / "a")
    assert memory.verify() == []
    assert all(memory.find(text) for text in learnt)


def test_a_memory_that_another_server_moves_away(managed: Client, tiny: Any, store: Path) -> None:
    """The other server does not have it any more, also before it lists its memories."""
    managed.post("/memories", {"name": "team"})
    with running(make_service(make_translator(tiny, None), replace(OPEN, memories=store))) as url:
        other = Client(url)
        assert other.post("/translate", {"q": GERMAN}).status == 200
        managed.send("DELETE", "/memories/team")
        changed = other.post("/translate", {"q": GERMAN})
        assert (changed.status, changed.headers["retry-after"]) == (503, "1")
        assert other.post("/translate", {"q": GERMAN}).status == 200


def test_what_a_killed_server_leaves(tiny: Any, managed: Client, store: Path) -> None:
    managed.post("/memories", {"name": "whole"})
    shutil.copytree(store / "whole", store / ".new-0123")
    gone = store / ".trash" / ".gone-0123"
    shutil.copytree(store / "whole", gone)
    (store / "empty").mkdir()
    shutil.copytree(store / "whole", store / "damaged")
    (store / "damaged" / "server.json").write_text("{")
    shutil.copytree(store / "whole", store / "broken")
    (store / "broken" / "manifest.json").write_text("{")
    (store / "broken" / "manifest.previous.json").unlink(missing_ok=True)
    with running(make_service(make_translator(tiny, None), replace(OPEN, memories=store))) as url:
        assert names(Client(url)) == ["damaged", "whole"]
    assert not gone.exists()
    assert (store / ".new-0123").exists(), "another server may be making it"
    known = KeyStore([Key(hash_key("anna"), "write"), Key(hash_key("root"), "admin")])
    settings = replace(OPEN, memories=store, keys_required=True)
    with running(make_service(make_translator(tiny, None), settings, known)) as url:
        assert names(Client(url, {"Authorization": "Bearer anna"})) == ["whole"], "whose rights are unknown is hidden"
        assert names(Client(url, {"Authorization": "Bearer root"})) == ["damaged", "whole"]


def test_a_memory_in_the_place_of_one_that_could_not_be_used(managed: Client, store: Path) -> None:
    damaged = store / "terms"
    damaged.mkdir(parents=True)
    (damaged / "manifest.json").write_text("{}")
    assert names(managed) == []
    shutil.rmtree(damaged)
    assert names(managed) == []
    assert managed.post("/memories", {"name": "source"}).status == 201
    shutil.copytree(store / "source", damaged)
    assert names(managed) == ["source", "terms"]


def test_a_memory_is_deleted_while_its_matches_are_found(tiny: Any, store: Path) -> None:
    """A batch that has begun is finished with the memory; later lookups report that it is gone."""
    service = make_service(make_translator(tiny, None), replace(OPEN, memories=store))
    try:
        service.memories.create("terms", "")
        service.writers.add_texts("terms", [("Datei öffnen", "Open file")], "test")
        options = RequestOptions((("terms", 1.0),), with_vectors=True)
        deleting = threading.Thread(target=service.memories.delete, args=("terms",))

        def check() -> None:
            if not deleting.is_alive():
                deleting.start()
                wait_until(lambda: "terms" not in service.engine.memories)

        (found,) = service.engine.translate(options, ["Datei öffnen"], check=check)
        assert list(found.vectors) == ["terms"]
        deleting.join()
        layouts = service.engine.split(["Datei öffnen"], RequestOptions(), None)
        with pytest.raises(HttpError, match="no memory terms"):
            find_all_matches(service.engine, options, layouts, [found], 3)
        with pytest.raises(HttpError, match="no memory"):
            search_memory(service.engine, "terms", SearchQuery("Datei", "both", "words", 1, 0))
    finally:
        service.close()


def test_export(managed: Client) -> None:
    managed.post("/memories", {"name": "Ä"})
    managed.post("/memories/%C3%84/pairs", {"pairs": [{"source": GERMAN, "target": WANTED}]})
    found = managed.get("/memories/%C3%84/export?format=tsv")
    assert found.body.decode() == f"{GERMAN}\t{WANTED}\n"
    assert found.headers["content-disposition"] == "attachment; filename*=utf-8''%C3%84.tsv"
    assert WANTED in managed.get("/memories/%C3%84/export").body.decode()
    assert managed.get("/memories/%C3%84/export?format=exe").status == 400


def test_segments_are_the_sentences_of_a_translation(managed: Client) -> None:
    text = "  😀 Eins ist da. Zwei auch!\n\n\tDrei"
    found = managed.post("/segments", {"q": text}).json["segments"]
    assert [text[one["start"] : one["end"]] for one in found] == ["😀 Eins ist da.", "Zwei auch!", "Drei"]
    assert managed.post("/segments", {"q": " \n"}).json == {"segments": []}
    assert managed.post("/segments", {"q": text, "target": "fr"}).status == 400
    parts = managed.post("/translate", {"q": [text[one["start"] : one["end"]] for one in found]}).json
    whole = managed.post("/translate", {"q": text}).json["translatedText"]
    for part in parts["translatedText"]:
        assert part in whole
