"""A memory's pairs, written back and learnt again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ibidem import Memory
from ibidem.text import Corpus

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import Memory as Folder

    from .conftest import Run


@pytest.mark.parametrize("ending", ["tmx", "tsv", "jsonl"])
def test_all_pairs_come_back(ibidem: Run, tmp_path: Path, learnt: Folder, ending: str) -> None:
    path = tmp_path / f"pairs.{ending}"
    answer = ibidem("export", "-m", learnt.path, "-o", path)
    assert (answer.code, answer.out, answer.err) == (0, "", f"{path}: {learnt.pairs:,} pairs\n")
    stored = [(pair.source, pair.target) for pair in learnt.sentences()]
    assert [(pair.source, pair.target) for pair in Corpus([path])] == stored
    if ending != "tsv":
        origins = [(pair.origin, pair.location) for pair in learnt.sentences()]
        assert [(pair.origin, pair.location) for pair in Corpus([path])] == origins


def test_for_machines_and_from_python(ibidem: Run, fails: Run, tmp_path: Path, learnt: Folder) -> None:
    path = tmp_path / "pairs.tmx"
    answer = ibidem("export", "-m", learnt.path, "-o", path, "--json")
    assert json.loads(answer.out) == {"file": str(path), "pairs": learnt.pairs, "mended": 0}
    first = path.read_bytes()
    opened = Memory.open(learnt.path)
    assert isinstance(opened, Memory)
    assert opened.export(path).pairs == learnt.pairs
    assert path.read_bytes() == first
    assert "the ending names no format to write" in fails(2, "export", "-m", learnt.path, "-o", tmp_path / "x.po")
    assert "no memory" in fails(1, "export", "-m", tmp_path / "none", "-o", path)
    assert path.read_bytes() == first
