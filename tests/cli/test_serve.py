"""serve: a process that answers, keys, and what it refuses to begin with."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import ibidem as package

if TYPE_CHECKING:
    from .conftest import Run

GERMAN = "Der Mandant wurde gelöscht."


def ask(url: str, path: str, content: object, key: str) -> object:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + path, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_server_from_the_first_command_to_the_last(ibidem: Run, tiny_folder: Path, tmp_path: Path) -> None:
    """A new memory, a key, a suggestion, Ctrl+C; and what was learnt is there for other commands."""
    keys, memory = tmp_path / "keys", tmp_path / "new"
    made = ibidem("serve", "--new-key", "a test", "--keys", keys)
    key = made.lines[0]
    assert key not in keys.read_text()
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    arguments = ["serve", "-m", memory, "--model", tiny_folder, "--keys", keys, "--port", 0, "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ibidem", *map(str, arguments)],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == f"{memory} did not exist: an empty memory was created.\n"
        url = process.stderr.readline().split()[2]
        assert url.startswith("http://127.0.0.1:")
        assert ask(url, "/suggest", {"q": GERMAN, "s": "Stop"}, key) == {"success": True}
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(url, "/translate", {"q": GERMAN}, "another")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert json.loads(ibidem("inspect", "-m", memory, "--json").out)["pairs"] == 1


def test_other_addresses_require_keys(fails: Run, tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        assert "--new-key" in fails(2, "serve", "--host", host)
    assert "holds no key" in fails(2, "serve", "--keys", _empty(tmp_path))
    assert "give --keys FILE" in fails(2, "serve", "--new-key", "note")
    assert "cannot be read" in fails(2, "serve", "--keys", tmp_path / "missing")


def test_invalid_settings_are_refused(fails: Run) -> None:
    assert "characters" in fails(2, "serve", "--set", "characters=0")
    assert "charakters" in fails(2, "serve", "--set", "charakters=5")
    assert "--port" in fails(2, "serve", "--port", 70000)


@pytest.mark.parametrize("option", ["--memories", "--glossaries"])
def test_a_folder_that_is_a_file_is_refused(fails: Run, tmp_path: Path, option: str) -> None:
    file = tmp_path / "terms.csv"
    file.write_text("Mandant,tenant\n", encoding="utf-8")
    assert f"{file} is a file: {option} takes a folder" in fails(2, "serve", option, file, "--port", 0)


def test_what_to_install(fails: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "pip install 'ibidem[serve]'" in fails(2, "serve")


def _empty(folder: Path) -> Path:
    path = folder / "keys"
    path.write_text("# none yet\n")
    return path


def test_the_folder_of_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ibidem.cli.serve import data_folder

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_folder() == tmp_path / "ibidem"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".local" / "share" / "ibidem"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_folder() == tmp_path / "Library" / "Application Support" / "ibidem"
