"""The built packages: complete, small, reproducible, and usable where there is no native library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[1]
EPOCH = "1700000000"
MAX_WHEEL_BYTES = 80_000_000
_BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(tree: Path, kind: str, target: Path, native: str = "0") -> Path:
    target.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, kind, str(target)],
        cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "IBIDEM_NATIVE": native},
        capture_output=True,
        text=True,
        timeout=1500,
        check=True,
    )
    return target / done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two copies of what git tracks, in folders of different names and times."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    copies = []
    for name in ("one", "another-name"):
        folder = tmp_path_factory.mktemp(name) / name
        for file in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / file).is_file():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / file, folder / file)
        copies.append(folder)
    return copies


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "native"), [("sdist", "0"), ("wheel", "0"), ("wheel", "")])
def test_two_builds_are_byte_identical(trees: list[Path], tmp_path: Path, kind: str, native: str) -> None:
    first, second = (build(tree, kind, tmp_path / tree.name, native) for tree in trees)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < MAX_WHEEL_BYTES


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_source_distribution_is_complete(trees: list[Path], tmp_path: Path) -> None:
    with tarfile.open(build(trees[0], "sdist", tmp_path / "made")) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("ibidem-*")
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout[-2000:]
    wheel = build(folder, "wheel", tmp_path / "wheel")
    assert wheel.name.endswith("-py3-none-any.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("ibidem/")}
    assert packed == {
        file.relative_to(trees[0] / "src").as_posix()
        for file in (trees[0] / "src").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert {"name", "description", "readme", "license", "requires-python", "authors", "keywords"} <= project.keys()
    assert "license-files" in project
    assert not any(text.startswith("License ::") for text in project["classifiers"])  # replaced by `license`
