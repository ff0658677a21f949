"""explain: the same translations as translate, word by word."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from ibidem.cli.explain import show
from ibidem.decode import CitedPair, Explanation, Neighbour, SearchSettings, Token, Translator
from ibidem.decode.explain import make_word

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from .conftest import Run

BY_HAND = ("--beam", 2, "--k", 4, "--weight", 0.9, "--temperature", 0.1)


def test_arguments_and_lines_are_explained_alike(ibidem: Run, memory: Path) -> None:
    texts = ["Die Datei wurde nicht gefunden.", "", "Bitte speichern."]
    answer = ibidem("explain", "-m", memory, "--beam", 2, "--json", *texts)
    assert (answer.code, answer.err) == (0, "")
    piped = ibidem("explain", "-m", memory, "--beam", 2, "--json", stdin="\n".join(texts))
    assert piped.out == answer.out
    expected = Translator(memory=memory, settings=SearchSettings(beam=2), device="cpu").explain(texts)
    found = [json.loads(line) for line in answer.lines]
    assert [result.pop("confidence") is None for result in found] == [False, True, False]
    assert found == [json.loads(json.dumps(explanation.to_json())) for explanation in expected]
    translated = ibidem("translate", "-m", memory, "--beam", 2, stdin="\n".join(texts))
    assert [json.loads(line)["translation"] for line in answer.lines] == translated.lines


def test_words_are_shown_with_their_sentences(ibidem: Run, memory: Path) -> None:
    text = "Die Datei wurde nicht gefunden."
    answer = ibidem("explain", "-m", memory, *BY_HAND, text)
    assert answer.code == 0
    assert answer.lines[0] == text
    assert "\x1b" not in answer.out
    explanation = Translator(memory=memory, device="cpu", settings=SearchSettings(beam=2)).explain([text])[0]
    assert explanation.words
    summaries = [line for line in answer.lines if re.search(r"from (memory|the base model): \d+ %, \d+ of \d+ n", line)]
    assert [line.split()[0] for line in summaries[:-1]] == answer.lines[1].split()
    assert summaries[-1].split()[0] == "(end)"
    cited = re.compile(r"^ +\d+% .*\[.*\].*  \(.+:\d+, pair \d+, distance [\d.e+]+\)$")
    assert sum(cited.match(line) is not None for line in answer.lines) >= len(summaries)
    silent = ibidem("explain", "-m", memory, *BY_HAND, "--neighbours", 0, text)
    assert not any(cited.match(line) for line in silent.lines)


def test_the_bare_model(ibidem: Run, tiny_folder: Path) -> None:
    answer = ibidem("explain", "--model", tiny_folder, "--beam", 1, "Hallo")
    assert answer.code == 0
    assert "from the base model: no neighbour" in answer.out


def test_a_memory_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2Jx\x07\r"
    pair = CitedPair("memory", 1, evil, evil, evil, 3)
    neighbour = Neighbour(1.0, 0.5, True, 7, "x", 4, 5, 11, pair)
    token = Token(7, "x", 0, 1, 0, 0.5, 1.0, 0.75, 0.5, 2 / 3, False, (neighbour,))
    show(Explanation(evil, "x", (-0.3,), (make_word("x", 0, 1, (token,)),)), 1)
    assert not {"\x1b", "\x07", "\r"} & set(capsys.readouterr().out)


def test_several_memories_by_name_and_weight(ibidem: Run, fails: Run, memory: Path, tmp_path: Path) -> None:
    other = memory.rename(tmp_path / "client:2")  # a colon in a name is no weight
    shutil.copytree(other, memory)
    answer = ibidem("explain", "-m", f"{memory}:0.5", "-m", other, "--beam", 1, "--json", "Bitte speichern.")
    assert answer.code == 0, answer.err
    cited = {
        neighbour["pair"]["memory"]
        for word in json.loads(answer.out)["words"]
        for token in word["tokens"]
        for neighbour in token["neighbours"]
    }
    assert cited == {str(memory), str(other)}
    for command in ("translate", "explain"):
        assert ibidem(command, "-m", memory, "-m", f"{other}:3", "--beam", 1, stdin="Bitte speichern.").code == 0
        assert "alone" in fails(2, command, "-m", "none", "-m", memory)
        assert "weight -1" in fails(2, command, "-m", f"{memory}:-1")
        assert "given twice" in fails(2, command, "-m", memory, "-m", memory)
