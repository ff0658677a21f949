"""The command adapt, and the chain adapt, learn, translate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ibidem.cli.adapt import describe_measurement
from ibidem.learn import Measurement

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

QUICK = ("--device", "cpu", "--set", "updates=4", "--set", "batch_tokens=512", "--set", "measurements=2")
QUICK_LEARN = ("--device", "cpu", "--set", "tune.metak.updates=20", "--set", "tune.contextual.updates=20")


def test_adapt_then_learn_then_translate(ibidem: Run, tmp_path: Path, tiny_folder: Path, corpus_file: Path) -> None:
    model, memory = tmp_path / "model", tmp_path / "memory"
    given = ("adapt", "--model", tiny_folder, "--train", corpus_file, "-o", model, *QUICK, "--seed", 3)
    first = ibidem(*given)
    assert first.code == 0, first
    lines = first.err.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["update 0 of 4", "update 2 of 4", "update 4 of 4"]
    assert all(part in lines[2] for part in ("loss ", "dev loss ", "of the average ", " tokens/s, 0:00 left"))
    assert f"Next: ibidem learn --model {model} --train {corpus_file}" in first.err
    assert "dev pairs" in first.out
    again = ibidem(*given, "--json")
    assert "update" not in again.err  # nothing is trained again
    report = json.loads(again.out)
    assert (report["path"], report["settings"]["seed"], report["updates"]) == (str(model), 3, 4)
    assert ibidem("learn", "--model", model, "--train", corpus_file, "-o", memory, *QUICK_LEARN).code == 0
    translated = ibidem("translate", "-m", memory, "--device", "cpu", stdin="Guten Morgen!\n")
    assert (translated.code, len(translated.lines)) == (0, 1)
    explained = ibidem("explain", "-m", memory, "--device", "cpu", "--json", "Guten Morgen!")
    assert explained.code == 0, explained


def test_two_files_for_each_text(ibidem: Run, tmp_path: Path, tiny_folder: Path, few_file: Path) -> None:
    sides = [line.split("\t") for line in few_file.read_text("utf-8").splitlines()]
    for number, name in enumerate(("a.de", "a.en")):
        (tmp_path / name).write_text("".join(f"{pair[number]}\n" for pair in sides), "utf-8")
    files = (tmp_path / "a.de", tmp_path / "a.en")
    done = ibidem(
        *("adapt", "--model", tiny_folder, "--train", *files, "--dev", *files, "--general", *files),
        *("-o", tmp_path / "model", *QUICK, "--json"),
    )
    assert done.code == 0, done
    report = json.loads(done.out)
    assert (report["pairs"], report["dev_pairs"]) == (20, 20)
    assert report["general_text"] == report["text"]


def test_what_is_refused(fails: Run, tmp_path: Path, tiny_folder: Path, few_file: Path, corpus_file: Path) -> None:
    start = ("adapt", "--model", tiny_folder, "--train", corpus_file)
    assert "not a model of `ibidem adapt`" in fails(2, *start, "-o", tiny_folder)
    assert "too few different pairs" not in fails(2, *start, "-o", tmp_path / "m", "--set", "learning_rate=0")
    assert "learning_rate" in fails(2, *start, "-o", tmp_path / "m", "--set", "learning_rate=0")
    assert "there is no setting 'dtype'" in fails(2, *start, "-o", tmp_path / "m", "--set", "model.dtype=int8")
    assert "'--output'" in fails(2, *start)
    missing = tmp_path / "missing.tsv"
    assert str(missing) in fails(1, *start, "-o", tmp_path / "m", "--dev", missing)
    assert str(missing) in fails(1, *start, "-o", tmp_path / "m", "--general", missing)
    assert "'no/such-model'" in fails(1, "adapt", "--model", "no/such-model", "--train", few_file, "-o", tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_base_model_that_stays_the_best_is_noted(
    ibidem: Run, tmp_path: Path, tiny_folder: Path, corpus_file: Path
) -> None:
    done = ibidem("adapt", "--model", tiny_folder, "--train", corpus_file, "-o", tmp_path / "m", "--set", "updates=0")
    assert done.code == 0
    assert "The dev loss never fell below that of the base model" in done.err


def test_the_settings_are_listed(ibidem: Run) -> None:
    listed = ibidem("settings", "adapt")
    assert listed.code == 0
    for name in ("learning_rate", "general_ratio", "model.source_prefix", "text.dev_format"):
        assert name in listed.out


@pytest.mark.parametrize(
    ("measured", "line"),
    [
        (Measurement(0, 900, None, 3.5, None, None, None), "update 0 of 900: dev loss 3.500"),
        (
            Measurement(600, 9000, 2.25, 3.5, 3.125, 12345.6, 3725.4),
            "update 600 of 9,000: loss 2.250, dev loss 3.500, of the average 3.125, 12,346 tokens/s, 1:02:05 left",
        ),
    ],
)
def test_the_line_of_a_measurement(measured: Measurement, line: str) -> None:
    assert describe_measurement(measured) == line
