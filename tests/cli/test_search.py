"""The command search, and confidence and matches in translate and explain."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import Memory

    from .conftest import Run

QUICK = ("--beam", 1)
LINES = "Die Datei fehlt.\n\nBitte warten. Hallo.\n"


def test_search_prints_pairs_and_counts(ibidem: Run, learnt: Memory) -> None:
    pair = next(learnt.sentences())
    word = max(re.findall(r"\w+", pair.source), key=len)
    expected = [one for one in learnt.sentences() if re.search(rf"(?<!\w){word}", one.source, re.IGNORECASE)]
    answer = ibidem("search", "-m", learnt.path, word.upper(), "--side", "source", "--limit", 1000)
    assert answer.code == 0
    rows = [line.split("\t") for line in answer.lines]
    assert [int(row[0]) for row in rows] == [one.id for one in expected][::-1]
    assert {tuple(row[1:3]) for row in rows} == {(one.source, one.target) for one in expected}
    shown = json.loads(ibidem("search", "-m", learnt.path, word, "--limit", 1, "--side", "source", "--json").out)
    assert (len(shown["pairs"]), shown["total"], shown["complete"]) == (1, len(expected), True)
    assert set(shown["pairs"][0]) == {"id", "source", "target", "origin", "location"}
    phrase = ibidem("search", "-m", learnt.path, pair.target, "--phrase", "--json")
    assert pair.id in [row["id"] for row in json.loads(phrase.out)["pairs"]]


@pytest.mark.parametrize("arguments", [[""], ["??"], ["a" * 600], ["a", "--side", "up"]])
def test_invalid_searches_have_exit_code_2(ibidem: Run, learnt: Memory, arguments: list[str]) -> None:
    answer = ibidem("search", "-m", learnt.path, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "Traceback" not in answer.err


def test_confidence_of_lines(ibidem: Run, learnt: Memory) -> None:
    plain = ibidem("translate", "-m", learnt.path, *QUICK, "--quiet", stdin=LINES).lines
    rows = [
        line.split("\t", 1)
        for line in ibidem("translate", "-m", learnt.path, *QUICK, "--confidence", "--quiet", stdin=LINES).lines
    ]
    assert [text for _, text in rows] == plain
    assert rows[1] == ["", ""]
    results = [
        json.loads(line)
        for line in ibidem("translate", "-m", learnt.path, *QUICK, "--json", "--matches", 2, stdin=LINES).lines
    ]
    for result, (shown, text) in zip(results, rows, strict=True):
        assert result["translation"] == text
        assert shown == ("" if result["confidence"] is None else f"{result['confidence']:.4f}")
        for segment in result["segments"]:
            assert 0 <= segment["confidence"] < 1
            assert len(segment["matches"]) <= 2
    assert len(results[2]["segments"]) == 2


def test_lines_of_low_confidence_are_empty(ibidem: Run, learnt: Memory) -> None:
    answer = ibidem("translate", "-m", learnt.path, *QUICK, "--min-confidence", 1, "--quiet", stdin=LINES)
    assert [line.strip() for line in answer.lines] == ["", "", ""]
    (first, *_) = ibidem(
        "translate", "-m", learnt.path, *QUICK, "--min-confidence", 1, "--json", "--quiet", stdin=LINES
    ).lines
    result = json.loads(first)
    assert (result["translation"], result["segments"][0]["left_empty"]) == ("", True)
    assert result["translations"][0]["text"] != ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--min-confidence", "2"],
        ["--min-confidence", "-1"],
        ["--confidence", "--json"],
        ["--matches", "1"],
        ["--no-mark-confidence"],
        ["--format", "html", "--matches", "1"],
        ["--format", "html", "--confidence"],
    ],
)
def test_invalid_options_are_refused(ibidem: Run, learnt: Memory, arguments: list[str]) -> None:
    answer = ibidem("translate", "-m", learnt.path, *QUICK, *arguments, stdin="Hallo\n")
    assert (answer.code, answer.out) == (2, "")


def test_documents_with_a_least_confidence(ibidem: Run, learnt: Memory, tmp_path: Path) -> None:
    source, target = tmp_path / "a.po", tmp_path / "b.po"
    source.write_text('msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "Die Datei fehlt."\nmsgstr ""\n', "utf-8")
    options = ("-m", learnt.path, *QUICK, "-i", source, "-o", target, "--json")
    report = json.loads(ibidem("translate", *options, "--min-confidence", 1).out)
    assert (report["translated"], len(report["left_out"]), report["confidence"]) == (0, 1, None)
    assert target.read_bytes() == source.read_bytes()
    report = json.loads(ibidem("translate", *options).out)
    assert (report["translated"], report["left_out"]) == (1, [])
    assert 0 <= report["confidence"] < 1
    assert target.read_bytes() != source.read_bytes()


def test_explain_shows_confidence_and_matches(ibidem: Run, learnt: Memory) -> None:
    source = next(learnt.sentences()).source
    text = ibidem("explain", "-m", learnt.path, *QUICK, "--matches", 1, source).out
    assert "needs no edit with a probability of" in text
    assert "100% " in text
    result = json.loads(ibidem("explain", "-m", learnt.path, *QUICK, "--matches", 1, "--json", source).out)
    assert 0 <= result["confidence"] < 1
    assert result["matches"][0][0]["percent"] == 100
