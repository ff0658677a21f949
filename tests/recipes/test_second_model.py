"""The script of the second model: what another run published is taken over once, and only if it is whole."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "second_model.sh"


def run(folder: Path, *stages: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), str(folder), str(folder / "work"), *stages],
        env={"PATH": "/usr/bin:/bin", "FROM": str(folder / "from"), "PUBLISH": str(folder / "to"), "DEVICE": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A model as the script publishes it: a compressed archive in pieces, with their sums."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        entry = tarfile.TarInfo("ibidem-base-en-de/config.json")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    folder = tmp_path / "from"
    folder.mkdir()
    half = len(content.getvalue()) // 2
    sums = []
    for number, piece in enumerate((content.getvalue()[:half], content.getvalue()[half:])):
        name = f"model.tar.gz.0{number}"
        (folder / name).write_bytes(piece)
        sums.append(f"{hashlib.sha256(piece).hexdigest()}  {name}\n")
    (folder / "model.sha256").write_text("".join(sums), encoding="utf-8")
    return folder


def test_a_model_is_taken_over_once(published: Path, tmp_path: Path) -> None:
    model = tmp_path / "work" / "ibidem-base-en-de"
    done = run(tmp_path, "train")  # nothing is trained, since there is a model
    assert (done.returncode, done.stdout) == (0, f"took over model of {published}\n"), done.stderr
    assert (model / "config.json").read_text(encoding="utf-8") == "{}"
    (model / "general").mkdir()
    (model / "general" / "compactor.safetensors").write_bytes(b"part")
    (tmp_path / "work" / "compactor.done").touch()
    assert run(tmp_path, "train").stdout == ""
    with tarfile.open(tmp_path / "to" / "parts.tar.gz") as archive:
        assert set(archive.getnames()) == {
            "./compactor.done",
            "./ibidem-base-en-de/general/compactor.safetensors",
        }


def test_a_damaged_piece_is_refused(published: Path, tmp_path: Path) -> None:
    (published / "model.tar.gz.01").write_bytes(b"damage")
    assert run(tmp_path, "train").returncode != 0
    assert not (tmp_path / "work" / "ibidem-base-en-de").exists()


def test_unknown_stages_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "trian")
    assert done.returncode == 2
    assert "unknown stage trian" in done.stderr


def test_only_missing_modules_are_unpacked(tmp_path: Path) -> None:
    for module in ("json", "no_such_module_here"):
        with zipfile.ZipFile(tmp_path / f"{module}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{module}/__init__.py", "")
            wheel.writestr(f"{module}-1.dist-info/METADATA", "")
    command = [sys.executable, str(SCRIPT.with_name("missing_wheels.py")), str(tmp_path), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "unpacked: no_such_module_here\n"
    assert (tmp_path / "site" / "no_such_module_here" / "__init__.py").is_file()
    assert not (tmp_path / "site" / "json").exists()
