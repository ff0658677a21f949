"""The command check, and the check before learn and add."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run


@pytest.fixture
def good(corpus_file: Path) -> Path:
    return corpus_file


@pytest.fixture
def swapped(tmp_path: Path, corpus_file: Path) -> Path:
    path = tmp_path / "swapped.tsv"
    rows = [line.split("\t") for line in corpus_file.read_text("utf-8").splitlines()[:60]]
    path.write_text("".join(f"{target}\t{source}\n" for source, target in rows), "utf-8")
    return path


def test_the_report(ibidem: Run, good: Path, swapped: Path) -> None:
    answer = ibidem("check", good, "--sample", 0)
    assert (answer.code, answer.lines[-1]) == (0, "verdict: good: learn and add use it")
    answer = ibidem("check", good, swapped, "--sample", 0, "--examples", 1)
    assert answer.code == 1
    assert "  refuse  swapped: " in answer.out
    assert f"            {swapped}:" in answer.out
    assert answer.lines[-1].startswith("verdict: refused: ")
    answer = ibidem("check", swapped, "--sample", 0, "--json")
    found = json.loads(answer.out)
    assert (answer.code, found["verdict"], found["corpora"][0]["findings"][0]["name"]) == (1, "refused", "swapped")
    assert len(found["corpora"][0]["findings"][0]["examples"]) == 3


def test_a_file_without_pairs_is_refused(ibidem: Run, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("", "utf-8")
    answer = ibidem("check", tmp_path / "a.tsv", "--sample", 0)
    assert (answer.code, answer.lines[-1]) == (1, "verdict: refused: there is nothing to learn")
    assert "  refuse  no pairs: no usable pair was found" in answer.out


def test_two_files_a_dev_set_and_the_model(ibidem: Run, good: Path, tmp_path: Path, tiny_folder: Path) -> None:
    rows = [line.split("\t") for line in good.read_text("utf-8").splitlines()[:40]]
    files = [tmp_path / "a.de", tmp_path / "a.en"]
    for side, file in enumerate(files):
        file.write_text("".join(row[side] + "\n" for row in rows), "utf-8")
    by_name = ibidem("check", *files, "--sample", 0, "--json")
    by_option = ibidem("check", "--train", *files, "--sample", 0, "--json")
    assert by_name.out == by_option.out
    assert json.loads(by_name.out)["corpora"][0]["read"] == 40
    answer = ibidem(
        "check", *files, "--sample", 8, "--model", tiny_folder, "--dtype", "float32", "--dev", good, "--json"
    )
    report = json.loads(answer.out)["corpora"][0]
    assert report["sample"]["pairs"] == 8
    assert next(one for one in report["findings"] if one["name"] == "in the dev set")["count"] == 40


def test_text_of_windows(ibidem: Run, fails: Run, tmp_path: Path, memory: Path) -> None:
    path = tmp_path / "terms.csv"
    path.write_bytes("Deutsch;Englisch\r\ndie Tür;the door\r\ndas große Haus;the big house\r\n".encode("cp1252"))
    answer = ibidem("check", path, "--sample", 0)
    assert answer.code == 1
    assert "line 2: byte 0xFC is not UTF-8" in answer.out
    assert "--encoding cp1252" in answer.out
    assert answer.out.endswith("verdict: refused: learn and add refuse it until its encoding is stated\n")
    assert ibidem("check", path, "--sample", 0, "--encoding", "cp1252").code == 0
    assert "--encoding cp1252" in fails(1, "add", "-m", memory, "--file", path)
    added = ibidem("add", "-m", memory, "--file", path, "--encoding", "cp1252")
    assert (added.code, "1 header row" in added.err) == (0, True)
    assert "die Tür" in [pair.source for pair in Memory.open(memory).sentences()]


def test_add_refuses_keeps_or_fixes(ibidem: Run, fails: Run, memory: Path, swapped: Path, good: Path) -> None:
    before = Memory.open(memory).pairs
    for given in (("--file", swapped), ()):
        stdin = swapped.read_bytes() if not given else b""
        message = fails(1, "add", "-m", memory, *given, stdin=stdin)
        assert "have the source in the target language" in message
        assert "--bad-pairs" in message
        assert Memory.open(memory).pairs == before
        fixed = ibidem("add", "-m", memory, *given, "--bad-pairs", "fix", "--json", stdin=stdin)
        found = json.loads(fixed.out)
        # With the sides exchanged, they are the pairs that the memory has.
        assert (len(found["already_there"]), found["added"]) == (60 - sum(found["dropped"].values()), [])
        assert sum(found["dropped"].values()) < 3
    assert fails(2, "add", "-m", memory, "--file", good, "--bad-pairs", "burn").startswith(
        "error: Unknown value 'burn'"
    )
    kept = ibidem("add", "-m", memory, "--file", swapped, "--bad-pairs", "keep", "--json")
    assert len(json.loads(kept.out)["added"]) == 60


def test_learn_refuses_and_warns(
    ibidem: Run, fails: Run, swapped: Path, good: Path, tmp_path: Path, tiny_folder: Path
) -> None:
    folder = tmp_path / "memory"
    quick = (
        "--set",
        "tune.metak.updates=1",
        "--set",
        "tune.contextual.updates=1",
        "--set",
        "tune.confidence_sentences=0",
    )
    learn = ("learn", "-o", folder, "--model", tiny_folder, *quick)
    assert "Nothing was learnt" in fails(1, *learn, "--train", swapped)
    assert not folder.exists()
    lines = good.read_text("utf-8").splitlines()[:30]
    (tmp_path / "few.tsv").write_text("\n".join([*lines, "Die TÃ¼r ist zu.\tThe door is shut."]) + "\n", "utf-8")
    answer = ibidem(*learn, "--train", tmp_path / "few.tsv")
    assert answer.code == 0, answer.err
    assert "warning: mojibake: 1 of 22 that can be judged" in answer.err
    assert "few.tsv:31" in answer.err


def test_mistakes(fails: Run, good: Path) -> None:
    assert "Nothing to check" in fails(2, "check")
    assert "not both" in fails(2, "check", good, "--train", good)
    assert "cannot be opened" in fails(1, "check", "missing.tsv", "--sample", 0)
