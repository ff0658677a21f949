"""Documents: the server's own API, LibreTranslate's and DeepL's, ownership, limits and removal."""

from __future__ import annotations

import io
import re
import tempfile
import threading
import time
import urllib.request
import zipfile
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.serve import Limits, ServeSettings, Service
from ibidem.serve import documents as documents_module
from ibidem.serve.request import RequestOptions
from ibidem.serve.text_translation import TextTranslation

from .conftest import OPEN, Client, served

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.decode import Translator

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def docx(*texts: str) -> bytes:
    """A DOCX file of paragraphs."""
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("[Content_Types].xml", f'<Types><Override PartName="/word/d.xml" ContentType="{MAIN}"/></Types>')
        file.writestr("word/d.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    return buffer.getvalue()


def texts_of(data: bytes) -> list[str]:
    """The texts of the runs of a DOCX file."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return re.findall("<w:t[^>]*>([^<]*)<", file.read("word/d.xml").decode())


TEXT = "Datei öffnen\n\nDie Datei wurde gespeichert.\n"
SOURCES = ["Datei öffnen", "Die Datei wurde gespeichert."]
DOCX = docx(*SOURCES)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of uploaded files."""
    path = tmp_path / "uploads"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def form(fields: dict[str, str], name: str, content: bytes) -> tuple[bytes, str]:
    """A multipart form with a file, and its content type."""
    parts = [
        f'--XX\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = (
        f'--XX\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: x/y\r\n\r\n'.encode()
    )
    return b"".join([*parts, head, content, b"\r\n--XX--\r\n"]), "multipart/form-data; boundary=XX"


def send_file(client: Client, path: str, fields: dict[str, str], name: str, content: bytes, **headers: str) -> Any:
    body, kind = form(fields, name, content)
    return client.send("POST", path, body, Content_Type=kind, **headers)


def wait_for(client: Client, id: str, **headers: str) -> dict[str, Any]:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = client.get(f"/documents/{id}", **headers).json
        if found["state"] not in ("queued", "running"):
            return dict(found)
        time.sleep(0.02)
    raise AssertionError("the document was not translated in time")


def test_own_api(translator: Translator, folder: Path) -> None:
    expected = translator.translate(SOURCES)
    with served(translator) as (client, _):
        sent = client.send("POST", "/documents?file=%C3%A4%20b.txt", TEXT.encode())
        assert (sent.status, sent.json["file"]) == (202, "ä_b.txt")
        done = wait_for(client, sent.json["id"])
        assert (done["state"], done["share"], done["failures"]) == ("done", 1.0, [])
        assert done["characters"] == sum(map(len, SOURCES))
        assert done["message"].startswith("ä_b.txt (text): 2 segments, translated 2, kept 0, failed 0")
        file = client.get(f"/documents/{sent.json['id']}/file")
        assert file.body.decode() == "\n\n".join(expected) + "\n"
        assert file.headers["content-disposition"] == "attachment; filename*=utf-8''%C3%A4_b.txt"
        assert file.headers["content-type"] == "application/octet-stream"
        assert client.send("DELETE", f"/documents/{sent.json['id']}").status == 200
        assert client.get(f"/documents/{sent.json['id']}/file").status == 404
        assert list(folder.iterdir()) == []


def test_texts_of_low_confidence_are_left_out(translator: Translator) -> None:
    with served(translator) as (client, _):
        sent = client.send("POST", "/documents?file=a.docx&min_confidence=1", DOCX)
        done = wait_for(client, sent.json["id"])
        assert [failure["source"] for failure in done["failures"]] == SOURCES
        assert all(failure["reason"].startswith("confidence 0.") for failure in done["failures"])
        assert texts_of(client.get(f"/documents/{sent.json['id']}/file").body) == SOURCES
        assert "confidence" not in done
        sent = client.send("POST", "/documents?file=a.docx", DOCX)
        assert 0 <= wait_for(client, sent.json["id"])["confidence"] < 1
        assert client.send("POST", "/documents?file=a.docx&min_confidence=2", DOCX).status == 400


def test_failures_are_listed(translator: Translator) -> None:
    with served(translator) as (client, _):
        icu = b'{"a": "{n, plural, one {x} other {y}}", "b": "Datei"}'
        done = wait_for(client, client.send("POST", "/documents?file=a.json&memories=", icu).json["id"])
        assert done["failures"][0]["line"] == 1
        assert "ICU message" in done["failures"][0]["reason"]
        broken = wait_for(client, client.send("POST", "/documents?file=a.docx", b"PK broken").json["id"])
        assert broken["state"] == "failed"
        assert broken["message"].startswith("a.docx: not a complete DOCX file")
        wrong = wait_for(
            client, client.send("POST", "/documents?file=a.po", b'msgid ""\nmsgstr "Language: fr\\n"\n').json["id"]
        )
        assert (wrong["state"], "'fr'" in wrong["message"]) == ("failed", True)


def test_libretranslate(translator: Translator) -> None:
    expected = translator.translate(SOURCES)
    with served(translator) as (client, _):
        settings = client.get("/frontend/settings").json
        assert settings["filesTranslation"]
        assert {".docx", ".txt", ".html"} <= set(settings["supportedFilesFormat"])
        found = send_file(client, "/translate_file", {"source": "de", "target": "en"}, "a.docx", DOCX)
        assert found.status == 200
        url = found.json["translatedFileUrl"]
        assert re.fullmatch(rf"{client.url}/download_file/[\w-]{{32}}\.docx", url)
        with urllib.request.urlopen(url) as answer:
            assert texts_of(answer.read()) == expected
        body, kind = form({}, "a.txt", b"Datei")
        behind = client.send("POST", "/translate_file", body, Content_Type=kind, X_Forwarded_Proto="https").json
        assert behind["translatedFileUrl"].startswith(client.url.replace("http:", "https:"))
        for fields, name, message in (
            ({"target": "fr"}, "a.txt", "fr is not supported"),
            ({"target": "en", "memories": "other"}, "a.txt", "There is no memory other"),
            ({}, "a.pdf", "file format not supported"),
            ({}, "a.docx", "not a complete DOCX file"),
        ):
            refused = send_file(client, "/translate_file", fields, name, b"text")
            assert (refused.status, message in refused.json["error"]) == (400, True), refused.json
        assert client.form("/translate_file", {"source": "de"}).status == 400
        body, kind = form({"target": "en"}, "a.txt", b"text")
        for wrong in (body[:-20], b"--XX--\r\n", body.replace(b"XX", b"YY"), body[:-10] + body):
            assert client.send("POST", "/translate_file", wrong, Content_Type=kind).status == 400
        assert client.get("/download_file/nothing.txt").status == 404
        assert client.get("/download_file/..%2F..%2Fetc%2Fpasswd").status == 404


def test_deepl_client(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deepl = pytest.importorskip("deepl")
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)
    # The client asks for the state every 5 seconds.
    monkeypatch.setattr(deepl.translator, "time", SimpleNamespace(time=time.time, sleep=lambda _: time.sleep(0.05)))
    expected = translator.translate(SOURCES)
    with served(translator, replace(OPEN, keys_required=True), "one key", "another") as (client, _):
        (tmp_path / "in.docx").write_bytes(DOCX)
        official = deepl.DeepLClient("one key", server_url=client.url)
        status = official.translate_document_from_filepath(
            tmp_path / "in.docx", tmp_path / "out.docx", target_lang="EN-US"
        )
        assert (status.done, status.billed_characters) == (True, sum(map(len, SOURCES)))
        assert texts_of((tmp_path / "out.docx").read_bytes()) == expected
        output = io.BytesIO()
        extra = {"filename": "a.txt"}
        official.translate_document(io.BytesIO(TEXT.encode()), output, target_lang="EN-US", extra_body_parameters=extra)
        assert output.getvalue().decode() == "\n\n".join(expected) + "\n"
        for options, message in (
            ({"target_lang": "FR"}, "FR is not supported"),
            ({"target_lang": "EN-US", "formality": "more"}, "formality"),
            ({"target_lang": "EN-US", "output_format": "pdf"}, "output_format pdf is not supported"),
        ):
            with pytest.raises(deepl.DeepLException, match=message):
                official.translate_document_upload(TEXT, filename="a.txt", **options)
        with pytest.raises(deepl.DocumentTranslationException, match="not a complete DOCX file"):
            official.translate_document(
                io.BytesIO(b"x"), output, target_lang="EN-US", extra_body_parameters={"filename": "a.docx"}
            )
        # Another key, and a wrong document key, do not see the document.
        handle = official.translate_document_upload(TEXT, filename="a.txt", target_lang="EN-US")
        for client_of, key in (("another", handle.document_key), ("one key", "wrong")):
            other = deepl.DeepLClient(client_of, server_url=client.url)
            with pytest.raises(deepl.DeepLException, match="no such document"):
                other.translate_document_get_status(deepl.DocumentHandle(handle.document_id, key))
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("no key", server_url=client.url).translate_document_upload(
                TEXT, filename="a.txt", target_lang="EN-US"
            )


def test_ownership_and_keys_in_the_form(translator: Translator) -> None:
    with served(translator, replace(OPEN, keys_required=True), "one", "two") as (client, _):
        assert client.send("POST", "/documents?file=a.txt", b"x").status == 403
        sent = client.send("POST", "/documents?file=a.txt", b"Datei", Authorization="Bearer one").json
        assert wait_for(client, sent["id"], Authorization="Bearer one")["state"] == "done"
        for path in (f"/documents/{sent['id']}", f"/documents/{sent['id']}/file"):
            assert client.get(path, Authorization="Bearer two").status == 404
            assert client.get(path).status == 403
        assert client.send("DELETE", f"/documents/{sent['id']}", Authorization="Bearer two").status == 404
        assert send_file(client, "/translate_file", {"api_key": "one"}, "a.txt", b"Datei").status == 200
        assert send_file(client, "/translate_file", {"api_key": "none"}, "a.txt", b"Datei").status == 403
        assert send_file(client, "/translate_file", {}, "a.txt", b"Datei").status == 403


def test_limits(translator: Translator, folder: Path) -> None:
    limits = Limits(rate=1e6, burst=10**6, document_bytes=2_000, document_characters=50, documents=4)
    with served(translator, ServeSettings(limits)) as (client, service):
        assert client.send("POST", "/documents?file=a.txt", b"x" * 2_001).status == 413
        assert send_file(client, "/translate_file", {}, "a.txt", b"x" * 2_001).status == 413
        assert send_file(client, "/translate_file", {}, "a.txt", b"x" * 200_000).status == 413
        long = wait_for(client, client.send("POST", "/documents?file=a.txt", b"wort " * 20).json["id"])
        assert long["message"] == "The document has 100 characters, more than 50: divide it."
        for _ in range(3):
            wait_for(client, client.send("POST", "/documents?file=a.txt", b"Datei").json["id"])
        full = client.send("POST", "/documents?file=a.txt", b"Datei")
        assert (full.status, full.headers["retry-after"]) == (503, "60")
        assert len(list(folder.iterdir())) == 4
        service.documents._limits = replace(limits, document_keep_seconds=1e-6)
        assert client.send("POST", "/documents?file=a.txt", b"Datei").status == 202
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []


def test_documents_of_one_key_leave_room_for_others(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both for the translation, of which a key has two at a time, and for the storage, of which it has half."""
    free = threading.Event()

    def translate(_: object, lines: list[str], __: object) -> list[TextTranslation]:
        free.wait(20)
        return [TextTranslation(line, []) for line in lines]

    monkeypatch.setattr(Service, "translate_lines", lambda _, *given: translate(*given))
    settings = replace(OPEN, keys_required=True, limits=replace(OPEN.limits, documents=8))
    with served(translator, settings, "one", "two") as (client, _):
        first, second = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        many = [client.send("POST", "/documents?file=a.txt", b"Datei", **first).json["id"] for _ in range(4)]
        assert client.send("POST", "/documents?file=a.txt", b"Datei", **first).status == 503
        other = client.send("POST", "/documents?file=a.txt", b"Datei", **second).json["id"]
        states = [client.get(f"/documents/{id}", **first).json["state"] for id in many]
        assert states == ["running", "running", "queued", "queued"]
        assert client.get(f"/documents/{other}", **second).json["state"] == "running"
        assert client.send("DELETE", f"/documents/{many.pop()}", **first).json["state"] == "cancelled"
        free.set()
        for id in many:
            assert wait_for(client, id, **first)["state"] == "done"
        many.append(client.send("POST", "/documents?file=a.txt", b"Datei", **first).json["id"])
        assert client.get(f"/documents/{many[0]}/file", **first).status == 200
        assert client.send("POST", "/documents?file=a.txt", b"Datei", **first).status == 202
        assert client.get(f"/documents/{many[0]}/file", **first).status == 404, "what was downloaded makes room"


def test_old_documents_are_removed_without_a_request(translator: Translator, folder: Path) -> None:
    limits = Limits(rate=1e6, burst=10**6, document_keep_seconds=0.3)
    with served(translator, ServeSettings(limits)) as (client, _):
        sent = client.send("POST", "/documents?file=a.txt", b"Datei").json
        end = time.monotonic() + 20
        while list(folder.iterdir()) and time.monotonic() < end:
            time.sleep(0.05)
        assert list(folder.iterdir()) == []
        assert client.get(f"/documents/{sent['id']}").status == 404


def test_a_job_ends_if_its_file_cannot_be_removed() -> None:
    def translate(_: object, lines: list[str], __: object) -> list[TextTranslation]:
        upload.path.unlink()
        upload.path.mkdir()
        return [TextTranslation(line, []) for line in lines]

    documents = documents_module.Documents(translate, ("de", "en"), Limits())
    with documents.receive("a.txt") as upload:
        upload.path.write_text("Datei")
        job = documents.start(upload, "", RequestOptions())
    job.ended.result(20)
    assert job.state == "done"
    documents.close()


def test_a_large_document_can_be_cancelled_and_delays_nobody(
    translator: Translator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "_PART_LINES", 2)
    lines = "\n\n".join(f"Die Datei {number} wurde gespeichert." for number in range(3_000)).encode()
    with served(translator) as (client, _):
        sent = client.send("POST", "/documents?file=a.txt", lines).json
        while client.get(f"/documents/{sent['id']}").json["state"] == "queued":
            time.sleep(0.01)
        assert client.post("/translate", {"q": "Datei", "source": "de", "target": "en"}).status == 200
        other = wait_for(client, client.send("POST", "/documents?file=b.txt", b"Datei").json["id"])
        assert other["state"] == "done"
        running = client.get(f"/documents/{sent['id']}").json
        assert (running["state"], 0 <= running["share"] < 1) == ("running", True)
        assert client.get(f"/documents/{sent['id']}/file").status == 503
        client.send("DELETE", f"/documents/{sent['id']}")
        end = time.monotonic() + 20
        while len(list(folder.iterdir())) > 1 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(list(folder.iterdir())) == 1
        client.send("POST", "/documents?file=a.txt", lines)
    # Closing the server stops the second one.
    assert list(folder.iterdir()) == []
