"""The commands evaluate and bench: tables and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

SMALL = ("--batch", 2, "--beam", 2, "--sentences", 3, "--rounds", 1, "--device", "cpu")


def test_bench_times_all_systems(ibidem: Run, memory: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    answer = ibidem("bench", "-m", memory, *SMALL, "--size", 400, "--save", file, "--json")
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)
    assert report == json.loads(file.read_text(encoding="utf-8"))
    systems = report["benchmarks"][0]["systems"]
    assert set(systems) == {"base", "memory", "generate()", "paper's index and mixture"}
    assert systems["base"]["tokens"] == systems["generate()"]["tokens"]
    assert sum(report["shares_of_time"]["2 x 2"].values()) == pytest.approx(1)
    assert {"encoder", "decoder", "search", "combiner", "mixture"} < set(report["shares_of_time"]["2 x 2"])
    assert report["growth"][0]["keys"] == 400
    assert report["bytes_per_entry"] > 0


def test_bench_prints_a_table(ibidem: Run, memory: Path, tmp_path: Path) -> None:
    text = tmp_path / "lines.de"
    text.write_text("Datei öffnen\nFenster schließen\n", encoding="utf-8")
    answer = ibidem("bench", "-m", memory, *SMALL, "--text", text, "--against", "none")
    assert answer.code == 0, answer.err
    assert "over base" in answer.out
    assert "generate()" not in answer.out.replace("over generate()", "")
    assert "decoder" in answer.err


def test_bench_refuses_an_unknown_system(fails: Run, memory: Path) -> None:
    assert "generate, paper, ctranslate2" in fails(2, "bench", "-m", memory, "--against", "marian")
