"""The audit log has a line for each change, and no text of any pair or file."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.errors import UsageError
from ibidem.serve import Key, KeyStore, hash_key, make_service, running
from ibidem.serve.audit import AuditLog

from .conftest import OPEN, Client, make_translator, wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_every_change_has_a_line_without_text(tiny: Any, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit"
    settings = replace(OPEN, keys_required=True, audit=file)
    store = KeyStore([Key(hash_key("secret"))])
    with running(make_service(make_translator(tiny, folder), settings, store)) as url:
        client = Client(url, {"Authorization": "Bearer secret"})
        secret = "Geheimwort"
        pairs = [{"source": f"{secret} eins", "target": "word one"}]
        added = client.post("/memories/mine/pairs", {"pairs": pairs, "origin": f"{secret}.tsv"}).json["added"]
        client.post("/translate", {"q": secret, "source": "de", "target": "en"})
        client.post("/suggest", {"q": f"{secret} eins", "s": "another", "source": "de", "target": "en"})
        job = client.send("POST", f"/memories/mine/import?file={secret}.tsv", f"{secret}\tword\n".encode()).json
        wait_until(lambda: client.get(f"/jobs/{job['id']}").json["state"] == "done")
        client.send("DELETE", f"/jobs/{job['id']}")
        body = json.dumps({"source": secret, "target": "word"}).encode()
        assert client.send("DELETE", "/memories/mine/pairs", body, Content_Type="application/json").status == 200
        assert client.post("/memories/mine/pairs", {"pairs": []}).status == 400
    content = file.read_text("ascii")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in content
    assert "word" not in content
    rows = [json.loads(line) for line in content.splitlines()]
    assert [row["action"] for row in rows] == ["add", "replace", "import", "import_done", "cancel", "remove"]
    assert {row["memory"] for row in rows} == {"mine"}
    assert {row["key"] for row in rows if row["action"] != "import_done"} == {hash_key("secret")[:12]}
    assert rows[0]["added"] == added == rows[1]["removed"]
    assert rows[3] | {"time": ""} == {
        **{"time": "", "action": "import_done", "memory": "mine", "key": "", "address": ""},
        **{"job": job["id"], "state": "done", "added": 1, "read": 1},
    }


def test_errors_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="check"):
        AuditLog(tmp_path / "missing" / "audit")
    log = AuditLog(tmp_path / "audit")

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    log.write("add", "mine")
    assert "No space left" in caplog.text
    log.close()
    log.write("add", "mine")


def test_a_line_is_complete_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes may be short, or break off; the next line begins on its own, also after a restart."""
    file = tmp_path / "audit"
    real, synced, room = os.write, [], 1000

    def write(descriptor: int, content: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        written = real(descriptor, content[: min(7, room)])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(file.read_bytes()))
    log = AuditLog(file)
    log.write("add", "first")
    assert synced == [file.read_bytes()]
    assert json.loads(synced[0])["memory"] == "first"
    room = 20
    log.write("add", "torn")
    room = 1000
    log.write("add", "second")
    room = 20
    log.write("add", "torn")
    log.close()
    room = 1000
    log = AuditLog(file)
    log.write("add", "third")
    log.close()
    lines = file.read_text("ascii").splitlines()
    assert [json.loads(line)["memory"] for line in lines[::2]] == ["first", "second", "third"]
    assert [len(line) for line in lines[1::2]] == [20, 20]
    assert synced[-1] == file.read_bytes()
