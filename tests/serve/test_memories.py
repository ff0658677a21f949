"""The API of the memories: suggestions, pairs and imports."""

from __future__ import annotations

import gzip
import http.client
import json
import select
import shutil
import threading
import time
import urllib.parse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.errors import UsageError
from ibidem.memory import Memory
from ibidem.serve import Service, make_service, running

from .conftest import GERMAN, OPEN, WANTED, Client, make_translator, served, wait_until

if TYPE_CHECKING:
    from pathlib import Path


def translate(client: Client, text: str = GERMAN, **more: Any) -> Any:
    return client.post("/translate", {"q": text, "source": "de", "target": "en", **more}).json["translatedText"]


def test_the_next_translation_uses_a_suggestion(writer: Client, folder: Path) -> None:
    """LibreTranslate's page sends a form, other clients send JSON."""
    before = translate(writer)
    assert before != WANTED
    pairs = Memory.open(folder).active_pairs
    answer = writer.form("/suggest", {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"})
    assert (answer.status, answer.json) == (200, {"success": True})
    assert translate(writer) == WANTED
    assert Memory.open(folder).active_pairs == pairs + 1, "it is on disk"
    assert writer.post("/suggest", {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"}).json["success"] is True
    assert writer.get("/memories").json["memories"][0]["pairs"] == pairs + 1, "a repeated suggestion adds nothing"
    assert writer.get("/frontend/settings").json["suggestions"] is True


def test_a_second_correction_replaces_the_first(writer: Client, folder: Path) -> None:
    """Two translations of one sentence would contradict each other."""
    pairs = Memory.open(folder).active_pairs
    for wanted in (WANTED, "Open", "Save", WANTED, WANTED):
        writer.form("/suggest", {"q": GERMAN, "s": wanted})
        assert translate(writer) == wanted
        assert Memory.open(folder).active_pairs == pairs + 1
    kept = writer.post("/memories/mine/pairs", {"pairs": [{"source": GERMAN, "target": "Open"}]}).json
    assert (len(kept["added"]), kept["replaced"]) == (1, [])
    stored = next(iter(Memory.open(folder).sentences()))
    request = {"pairs": [{"source": stored.source, "target": WANTED}], "replace": True, "origin": "desk"}
    answer = writer.post("/memories/mine/pairs", request).json
    assert {(pair["source"], pair["target"], pair["origin"]) for pair in answer["replaced"]} == {
        (stored.source, stored.target, "corpus.tsv")
    }
    assert translate(writer, stored.source) == WANTED
    refused = writer.post(
        "/memories/mine/pairs", {"pairs": [*request["pairs"], {"source": "a", "target": ""}], "replace": True}
    )
    assert refused.status == 400
    assert Memory.open(folder).verify() == []


def test_official_client_receives_the_suggestion(writer: Client) -> None:
    """LibreTranslate's page sends suggestions as multipart forms; its Python client has no call for them."""
    libretranslatepy = pytest.importorskip("libretranslatepy")
    api = libretranslatepy.LibreTranslateAPI(writer.url)
    assert api.translate(GERMAN, "de", "en") != WANTED
    fields = {"q": GERMAN, "s": WANTED, "source": "de", "target": "en"}
    parts = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    )
    sent = writer.send("POST", "/suggest", f"{parts}--b--\r\n".encode(), Content_Type="multipart/form-data; boundary=b")
    assert sent.json == {"success": True}
    assert api.translate(GERMAN, "de", "en") == WANTED


def test_concurrent_corrections_of_one_sentence(writer: Client, folder: Path) -> None:
    pairs = Memory.open(folder).active_pairs
    answers: list[int] = []
    suggestions = [WANTED, "Open", "Save", "Help"]

    def suggest(text: str) -> None:
        answers.extend(writer.post("/suggest", {"q": GERMAN, "s": text}).status for _ in range(4))

    threads = [threading.Thread(target=suggest, args=[text]) for text in suggestions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 16
    assert Memory.open(folder).active_pairs == pairs + 1, "the last correction replaces the others"
    assert translate(writer) in suggestions


def test_a_suggestion_of_several_lines(writer: Client) -> None:
    writer.post("/suggest", {"q": f"{GERMAN}\n\nAbbrechen!", "s": f"{WANTED}\n\nOpen"})
    assert translate(writer, f"Abbrechen!\n{GERMAN}") == f"Open\n{WANTED}"
    assert writer.post("/suggest", {"q": "Eins\nZwei", "s": "One, two"}).status == 200


def test_learn_cite_undo(writer: Client, folder: Path) -> None:
    before = translate(writer)
    added = writer.post(
        "/memories/mine/pairs", {"pairs": [{"source": GERMAN, "target": WANTED}], "origin": "desk"}
    ).json
    assert added == {"added": [added["added"][0]], "known": [], "left_out": 0, "replaced": []}
    explained = writer.post("/translate", {"q": GERMAN, "explain": True}).json
    assert explained["translatedText"] == WANTED
    cited = {pair["id"]: pair for pair in explained["explanation"]["pairs"]}[added["added"][0]]
    assert cited == {
        "memory": "mine",
        "id": added["added"][0],
        "source": GERMAN,
        "target": WANTED,
        "origin": "desk",
        "location": 0,
    }
    again = writer.post("/memories/mine/pairs", {"pairs": [{"source": GERMAN, "target": WANTED}]}).json
    assert again == {"added": [], "known": added["added"], "left_out": 0, "replaced": []}
    removed = writer.send(
        "DELETE", "/memories/mine/pairs", json.dumps({"ids": added["added"]}).encode(), Content_Type="application/json"
    )
    assert removed.json == {"removed": added["added"]}
    assert translate(writer) == before
    assert writer.send("DELETE", "/memories/mine/pairs", json.dumps({"ids": added["added"]}).encode()).status == 400
    assert Memory.open(folder).verify() == []


def test_remove_by_text_and_by_origin(writer: Client, folder: Path) -> None:
    def remove(**what: Any) -> Any:
        return writer.send("DELETE", "/memories/mine/pairs", json.dumps(what).encode())

    stored = next(iter(Memory.open(folder).sentences()))
    assert len(remove(source=stored.source, target=stored.target).json["removed"]) >= 1
    missing = remove(source=stored.source, target=stored.target)
    assert missing.status == 400
    assert str(folder) not in missing.body.decode()
    left = Memory.open(folder).active_pairs
    assert left > 100
    assert len(remove(origin="corpus.tsv").json["removed"]) == left
    assert writer.get("/memories").json["memories"][0] == {
        "name": "mine",
        "pairs": 0,
        "entries": 0,
        "weight": 1.0,
        "learns": True,
        "rights": "write",
        "source": "de",
        "target": "en",
    }
    assert translate(writer, memories=["mine"]) == translate(writer, memories=[])
    for wrong in ({"origin": "corpus.tsv"}, {"origin": "/etc"}, {}, {"source": "x"}, {"ids": []}, {"ids": [10**30]}):
        assert remove(**wrong).status == 400, wrong


def test_a_new_empty_memory(tiny: Any, tmp_path: Path) -> None:
    from ibidem.learn import create_memory

    create_memory(tmp_path / "new", tiny)
    with running(make_service(make_translator(tiny, tmp_path / "new"), OPEN)) as url:
        client = Client(url)
        before = translate(client)
        assert client.get("/memories").json["memories"][0]["pairs"] == 0
        client.post("/suggest", {"q": GERMAN, "s": WANTED})
        assert translate(client) == WANTED != before
        assert translate(client, memories="none") == before


def test_several_memories(tiny: Any, folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    settings = replace(OPEN, suggestion_memory="other")
    with running(make_service(make_translator(tiny, [(folder, 1.0), (other, 2.0)]), settings)) as url:
        client = Client(url)
        listed = client.get("/memories").json["memories"]
        assert [(info["name"], info["weight"]) for info in listed] == [("mine", 1.0), ("other", 2.0)]
        client.post("/suggest", {"q": GERMAN, "s": WANTED})
        assert translate(client, memories=["other"]) == WANTED
        assert translate(client, memories=["mine"]) != WANTED
        assert translate(client, memories=["mine", "other:50"]) == WANTED
        assert client.post("/translate", {"q": GERMAN, "explain": True}).status == 200
    with pytest.raises(UsageError, match="no memory third"):
        make_service(make_translator(tiny, folder), replace(OPEN, suggestion_memory="third"))
    shutil.copytree(folder, tmp_path / "deeper" / "mine")
    with pytest.raises(UsageError, match="same name"):
        make_service(make_translator(tiny, [folder, tmp_path / "deeper" / "mine"]), OPEN)


def test_read_only_server(tiny: Any, folder: Path) -> None:
    with running(make_service(make_translator(tiny, folder), replace(OPEN, read_only=True))) as url:
        client = Client(url)
        assert client.get("/memories").json["memories"][0]["learns"] is False
        assert client.get("/frontend/settings").json["suggestions"] is False
        assert client.post("/suggest", {"q": GERMAN, "s": WANTED}).status == 403
        assert client.post("/memories/mine/pairs", {"pairs": [{"source": "a", "target": "b"}]}).status == 403
        assert client.send("DELETE", "/memories/mine/pairs", b'{"ids": [0]}').status == 403
        assert client.send("POST", "/memories/mine/import?file=a.tsv", b"a\tb\n").status == 403


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/memories/other/pairs", {"pairs": [{"source": "a", "target": "b"}]}, 404),
        ("/memories/..%2Fmine/pairs", {"pairs": [{"source": "a", "target": "b"}]}, 404),
        ("/memories/mine/pairs", {"pairs": []}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "", "target": "b"}]}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "a", "target": " \n"}]}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "a"}]}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "a", "target": "b c " * 800}]}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "a", "target": "b"}] * 257}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "a" * 20_000, "target": "b"}]}, 400),
        ("/memories/mine/pairs", {"pairs": [{"source": "a", "target": "b"}], "origin": "o" * 201}, 400),
        ("/suggest", {"q": "a"}, 400),
        ("/suggest", {"q": "", "s": ""}, 400),
        ("/suggest", {"q": "a", "s": "b", "source": "fr"}, 400),
    ],
)
def test_invalid_pairs_are_refused(writer: Client, folder: Path, path: str, content: Any, status: int) -> None:
    before = Memory.open(folder).active_pairs
    refused = writer.post(path, content)
    assert refused.status == status
    assert str(folder) not in refused.body.decode()
    assert Memory.open(folder).active_pairs == before


def test_unusual_pairs_are_accepted(writer: Client, folder: Path) -> None:
    for source, target in (
        ("\x00", "\x00"),
        ("<script>", "<img src=x>"),
        ("😀", "😀"),
        ("a\nb", "c"),
    ):
        body = json.dumps({"pairs": [{"source": source, "target": target}]}).encode()
        assert writer.send("POST", "/memories/mine/pairs", body).status == 200
        assert writer.post("/translate", {"q": "a", "explain": True}).status == 200
    assert Memory.open(folder).verify() == []


def send_file(client: Client, name: str, content: bytes) -> Any:
    answer = client.send("POST", f"/memories/mine/import?file={urllib.parse.quote(name)}", content)
    assert answer.status == 202, answer
    return answer.json


def wait_for(client: Client, job: Any) -> Any:
    deadline = time.monotonic() + 60
    while job["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
        job = client.get(f"/jobs/{job['id']}").json
    return job


TMX = f"""<?xml version="1.0"?><tmx version="1.4"><header srclang="de"/><body>
<tu><tuv xml:lang="de"><seg>{GERMAN}</seg></tuv><tuv xml:lang="en"><seg>{WANTED}</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>Nur Deutsch</seg></tuv></tu>
</body></tmx>""".encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("firma.tmx", TMX),
        ("firma.tmx.gz", gzip.compress(TMX)),
        ("../../firma.tsv", f"{GERMAN}\t{WANTED}\n".encode()),
        ("de/LC_MESSAGES/x.jsonl", json.dumps({"de": GERMAN, "en": WANTED}).encode()),
    ],
)
def test_a_file_is_imported(writer: Client, folder: Path, name: str, content: bytes) -> None:
    before = Memory.open(folder).active_pairs
    job = wait_for(writer, send_file(writer, name, content))
    assert (job["state"], job["added"], job["memory"]) == ("done", 1, "mine"), job
    assert job["file"] == name.rpartition("/")[2]
    assert Memory.open(folder).active_pairs == before + 1
    explained = writer.post("/translate", {"q": GERMAN, "explain": True}).json
    assert explained["translatedText"] == WANTED
    assert job["file"] in {pair["origin"] for pair in explained["explanation"]["pairs"]}
    again = wait_for(writer, send_file(writer, name, content))
    assert (again["added"], "1 were known already" in again["message"]) == (0, True)
    gone = writer.send("DELETE", "/memories/mine/pairs", json.dumps({"origin": job["file"]}).encode())
    assert len(gone.json["removed"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tmx", b"<tmx", "a.tmx"),
        ("a.tmx", b'<!DOCTYPE t [<!ENTITY e SYSTEM "file:///etc/passwd">]><tmx>&e;</tmx>', "a.tmx"),
        ("a.gz", b"a\tb", "ending"),
        ("a.tsv.gz", b"no gzip", "a.tsv.gz"),
        ("passwd", b"root", "ending"),
        ("", b"x", "ending"),
    ],
)
def test_invalid_files_fail(writer: Client, name: str, content: bytes, message: str) -> None:
    job = wait_for(writer, send_file(writer, name, content))
    assert job["state"] == "failed"
    assert message in job["message"]
    assert "/tmp" not in job["message"]
    assert "root:" not in job["message"]


def test_a_memory_whose_folder_is_gone(writer: Client, folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    sent = writer.send("POST", "/memories/mine/import?file=a.tsv", b"Hilfe\tHelp\n")
    assert (sent.status, "is gone" in sent.json["error"]) == (404, True)
    assert not folder.exists()


def test_imports_are_checked(writer: Client, folder: Path, sentences: list[Any]) -> None:
    rows = [f"{one.english}\t{one.german}\n" for one in sentences[:40]]
    body = "".join(rows).encode()
    before = Memory.open(folder).active_pairs
    job = wait_for(writer, send_file(writer, "swapped.tsv", body))
    assert (job["state"], job["added"]) == ("failed", 0)
    assert "have the source in the target language" in job["message"]
    assert "/" not in job["message"].partition("swapped.tsv")[0]
    assert Memory.open(folder).active_pairs == before
    answer = writer.send("POST", "/memories/mine/import?file=swapped.tsv&bad_pairs=fix", body)
    assert wait_for(writer, answer.json)["state"] == "done"
    stored = {(pair.source, pair.target) for pair in Memory.open(folder).sentences()}
    assert (sentences[0].german, sentences[0].english) in stored
    assert (sentences[0].english, sentences[0].german) not in stored
    assert writer.send("POST", "/memories/mine/import?file=a.tsv&bad_pairs=burn", body).status == 400
    few = [f"{one.german}\t{one.english}\n" for one in sentences[40:60]]
    job = wait_for(writer, send_file(writer, "few.tsv", "".join([*few, "Die TÃ¼r ist zu.\tIt is shut.\n"]).encode()))
    assert job["state"] == "done"
    assert "warnings: 1 of" in job["message"]


def test_imports_have_limits(tiny: Any, folder: Path) -> None:
    limits = replace(OPEN.limits, import_bytes=5_000, import_pairs=5)
    with running(make_service(make_translator(tiny, folder), replace(OPEN, limits=limits))) as url:
        client = Client(url)
        assert client.send("POST", "/memories/mine/import?file=a.tsv", b"x" * 5_001).status == 413
        job = wait_for(client, send_file(client, "a.tsv", b"".join(b"a%d\tb\n" % i for i in range(9))))
        assert (job["state"], "more than 5 pairs" in job["message"]) == ("failed", True)
        assert client.get("/jobs/nothing").status == 404
        assert client.send("POST", "/memories/other/import?file=a.tsv", b"").status == 404
        assert client.send("POST", "/memories/mine/import", b"").status == 400


def test_a_cancelled_import_removes_its_file(
    writer: Client, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free = threading.Event(), threading.Event()
    real = service.writers.add

    def wait(*given: Any) -> Any:
        begun.set()
        free.wait(20)
        return real(*given)

    monkeypatch.setattr(service.writers, "add", wait)
    job = send_file(writer, "a.tsv", b"Neu\tNew\n")
    assert begun.wait(20)
    assert list(tmp_path.glob("mine/work/*/a.tsv"))
    assert writer.send("DELETE", f"/jobs/{job['id']}").json["state"] == "running"
    free.set()
    assert wait_for(writer, job)["state"] == "cancelled"
    assert not list(tmp_path.glob("mine/work/*/a.tsv"))


def begin_upload(client: Client, content: bytes, length: int) -> http.client.HTTPConnection:
    """Send the head of an import and the first bytes of its body."""
    connection = http.client.HTTPConnection(client.url.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", "/memories/mine/import?file=slow.tsv")
    connection.putheader("Content-Length", str(length))
    connection.endheaders()
    connection.send(content)
    return connection


def test_slow_uploads_do_not_block_others_and_time_out(tiny: Any, folder: Path) -> None:
    """Twelve clients send a byte now and then; at most eight imports may run."""
    limits = replace(OPEN.limits, body_seconds=1.0)
    service = make_service(make_translator(tiny, folder), replace(OPEN, limits=limits))
    with running(service) as url:
        slow = [begin_upload(Client(url), b"Neu", 10_000) for _ in range(12)]
        job = send_file(Client(url), "b.tsv", b"a\tb\n")
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            for connection in slow:
                if not select.select([connection.sock], [], [], 0)[0]:  # there is no response yet
                    connection.send(b"x")
            time.sleep(0.2)
        for connection in slow:
            assert connection.getresponse().status == 408
            connection.close()
        assert wait_for(Client(url), job)["state"] == "done"
        wait_until(lambda: service.jobs._stored_bytes == 0)


def test_disk_space_of_uploads_is_limited(
    writer: Client, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.jobs, "_max_stored_bytes", 1_000)
    slow = begin_upload(writer, b"x" * 900, 901)
    wait_until(lambda: service.jobs._stored_bytes == 900)
    refused = writer.send("POST", "/memories/mine/import?file=b.tsv", b"y" * 101)
    assert (refused.status, refused.headers["retry-after"]) == (503, "30")
    assert wait_for(writer, send_file(writer, "b.tsv", b"a\tb\n"))["state"] == "done"
    slow.close()
    wait_until(lambda: service.jobs._stored_bytes == 0 and not list(tmp_path.glob("mine/work/*/slow.tsv")))
    assert wait_for(writer, send_file(writer, "b.tsv", b"a\tb\n" * 30))["state"] == "done"
    wait_until(lambda: service.jobs._stored_bytes == 0)


def test_waiting_imports_are_limited(writer: Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.serve.jobs.MAX_RUNNING", 1)
    begun, free = threading.Event(), threading.Event()
    real = service.writers.add
    monkeypatch.setattr(service.writers, "add", lambda *given: begun.set() or (free.wait(20) and real(*given)))
    late = begin_upload(writer, b"a\tb", 4)
    wait_until(lambda: service.jobs._stored_bytes == 3)
    job = send_file(writer, "a.tsv", b"Neu\tNew\n")
    assert begun.wait(20)
    assert writer.send("POST", "/memories/mine/import?file=b.tsv", b"a\tb\n").status == 503
    late.send(b"\n")
    assert late.getresponse().status == 503, "another import started while the file was being sent"
    late.close()
    free.set()
    assert wait_for(writer, job)["state"] == "done"
    assert wait_for(writer, send_file(writer, "b.tsv", b"a\tb\n"))["state"] == "done"


def test_search_finds_pairs(writer: Client, folder: Path) -> None:
    pair = next(Memory.open(folder).sentences())
    query = urllib.parse.urlencode({"q": pair.source, "mode": "phrase", "side": "source", "limit": 1})
    found = writer.get(f"/memories/mine/search?{query}").json
    assert found["complete"] is True
    assert found["total"] >= 1
    assert found["pairs"][0] == {
        "id": pair.id,
        "source": pair.source,
        "target": pair.target,
        "origin": "corpus.tsv",
        "location": pair.location,
    }
    # A pair that was just added is found.
    writer.form("/suggest", {"q": "Der Quetzalcoatl fliegt.", "s": WANTED})
    assert writer.get("/memories/mine/search?q=quetzalcoatl").json["total"] == 1
    assert writer.get("/memories/mine/search?q=quetzalcoatl&offset=1").json["pairs"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/memories/mine/search", 400),
        ("/memories/mine/search?q=", 400),
        ("/memories/mine/search?q=%3F", 400),
        (f"/memories/mine/search?q={'a' * 501}", 400),
        ("/memories/mine/search?q=a&limit=101", 400),
        ("/memories/mine/search?q=a&limit=-1", 400),
        ("/memories/mine/search?q=a&offset=-1", 400),
        ("/memories/mine/search?q=a&mode=regex", 400),
        ("/memories/mine/search?q=a&side=up", 400),
        ("/memories/other/search?q=a", 404),
        ("/memories/..%2Fmine/search?q=a", 404),
        ("/memories/mine/search?q=(a%2B)%2B%24&mode=phrase", 200),
    ],
)
def test_searches_of_strangers(writer: Client, path: str, status: int) -> None:
    assert writer.get(path).status == status


def test_a_refused_parameter_is_named(writer: Client) -> None:
    answer = writer.get("/memories/mine/search?q=a&limit=101")
    assert answer.json["error"] == "Invalid request: limit: Input should be less than or equal to 100"


def test_a_search_needs_a_key(tiny: Any, folder: Path) -> None:
    with served(make_translator(tiny, folder), replace(OPEN, keys_required=True), "secret") as (client, _):
        assert client.get("/memories/mine/search?q=a").status in (401, 403)
        assert client.get("/memories/mine/search?q=a&api_key=secret").status == 200
