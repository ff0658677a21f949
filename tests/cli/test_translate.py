"""Lines in, lines out: as many, in order, whatever they hold."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.decode import SearchSettings, Translator

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import Memory
    from ibidem.model import BaseModel

    from .conftest import Run

QUICK = ("--beam", 1)


@pytest.mark.parametrize(
    ("given_text", "count"),
    [
        ("", 0),
        ("Hallo", 1),
        ("Hallo\n", 1),
        ("Hallo\nWelt", 2),
        ("Hallo\r\nWelt\r\n", 2),
        ("\n\n\n", 3),
        ("\nHallo\n\n", 3),
        ("eins\u2028zwei\u2029drei\x85vier\x0bfünf\x0csechs\n", 1),
        ("nur\rein Wagenrücklauf\n", 1),
        ("\ufeffHallo\n", 1),
        ("   \n\t\n\u00a0\n", 3),
        ("a\x00b\n\u200d\u202e\U0001f600\n", 2),
        (">>de<< Hallo\n</s> und <pad>\n", 2),
    ],
)
def test_every_line_gives_one_line(ibidem: Run, learnt: Memory, given_text: str, count: int) -> None:
    answer = ibidem("translate", "-m", learnt.path, *QUICK, "--quiet", stdin=given_text)
    assert (answer.code, answer.err) == (0, "")
    assert len(answer.lines) == count
    assert not any(len(line.splitlines()) > 1 for line in answer.lines)
    # Blank in, blank out; a line's ending and its neighbours do not change its translation.
    lines = given_text.removesuffix("\n").split("\n") if given_text else []
    for line, translation in zip(lines, answer.lines, strict=True):
        if not line.strip("\ufeff \t\r\u00a0"):
            assert not translation.strip()


def test_line_endings_change_nothing(ibidem: Run, learnt: Memory) -> None:
    plain = ibidem("translate", "-m", learnt.path, *QUICK, stdin="Die Datei fehlt.\n\nBitte warten.\n")
    for same in (
        "Die Datei fehlt.\r\n\r\nBitte warten.\r\n",
        "\ufeffDie Datei fehlt.\n\nBitte warten.",
        "Die\u2028Datei fehlt.\n\nBitte\rwarten.\n",
    ):
        assert ibidem("translate", "-m", learnt.path, *QUICK, stdin=same).out == plain.out


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=12), max_size=5))
def test_any_text_keeps_its_lines(ibidem: Run, tiny_folder: Path, lines: list[str]) -> None:
    given_text = "".join(f"{line}\n" for line in lines)
    answer = ibidem("translate", "--model", tiny_folder, *QUICK, stdin=given_text)
    assert answer.code == 0, answer.err
    assert len(answer.lines) == len(lines)


def test_more_lines_than_a_batch_stay_in_order(ibidem: Run, tiny_folder: Path, sentences) -> None:
    lines = [s.german for s in sentences if len(s.german) < 40][:30]
    one_by_one = [ibidem("translate", "--model", tiny_folder, *QUICK, stdin=line).lines[0] for line in lines[:3]]
    batched = ibidem("translate", "--model", tiny_folder, *QUICK, "--batch-size", 7, stdin="\n".join(lines))
    assert batched.lines[:3] == one_by_one
    assert len(batched.lines) == 30


def test_json_lines(ibidem: Run, learnt: Memory, tiny: BaseModel) -> None:
    options = ("--json", "--n-best", 3, "--beam", 2, "--dtype", "float32")
    answer = ibidem("translate", "-m", learnt.path, *options, stdin="Hallo\n\nWelt\n")
    results = [json.loads(line) for line in answer.lines]
    assert [result["source"] for result in results] == ["Hallo", "", "Welt"]
    assert results[1]["translation"] == ""
    translator = Translator(tiny, learnt, settings=SearchSettings(beam=3))
    for result in (results[0], results[2]):
        expected = translator.alternatives([result["source"]], 3)[0]
        assert [row["text"] for row in result["translations"]] == [text for text, _ in expected]
        assert [row["score"] for row in result["translations"]] == pytest.approx([value for _, value in expected])
        assert result["translation"] == expected[0][0]
        assert len(expected) == 3


def test_sentences_of_a_line_are_translated_one_by_one(ibidem: Run, learnt: Memory) -> None:
    first, second = ibidem("translate", "-m", learnt.path, *QUICK, stdin="Die Datei fehlt.\nBitte warten.\n").lines
    line = " Die Datei fehlt.  Bitte warten.\t\n"
    assert ibidem("translate", "-m", learnt.path, *QUICK, stdin=line).out == f" {first}  {second}\t\n"
    whole = ibidem("translate", "-m", learnt.path, *QUICK, "--no-split", stdin=line).out
    unsplit = Translator(memory=learnt, settings=SearchSettings(beam=1), split="off")
    assert whole == f" {unsplit.translate([line.strip()])[0]}\t\n"


def test_suspicious_translations_are_named(ibidem: Run, learnt: Memory) -> None:
    """The tiny model repeats syllables of texts that it has not seen."""
    text = "Hallo\n\nWelt. Noch eine Welt.\n"
    answer = ibidem("translate", "-m", learnt.path, *QUICK, stdin=text)
    *named, last = answer.err.splitlines()
    assert [line.split(": ")[:2] for line in named] == [["warning", "stdin, line 1"], ["warning", "stdin, line 3"]]
    assert all("the translation repeats" in line for line in named)
    assert last == "2 suspicious translations: check them"
    quiet = ibidem("translate", "-m", learnt.path, *QUICK, "--quiet", stdin=text)
    assert (quiet.out, quiet.err) == (answer.out, "")
    as_json = ibidem("translate", "-m", learnt.path, *QUICK, "--json", stdin=text)
    results = [json.loads(line) for line in as_json.lines]
    assert [bool(result["warnings"]) for result in results] == [True, False, True]
    assert as_json.err == ""


def test_forced_beginnings(ibidem: Run, tmp_path: Path, learnt: Memory) -> None:
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("The file\n\nPlease\n", "utf-8")
    answer = ibidem("translate", "-m", learnt.path, *QUICK, "--prefixes", prefixes, stdin="Hallo\nHallo\nHallo\n")
    free = ibidem("translate", "-m", learnt.path, *QUICK, stdin="Hallo\n").lines[0]
    assert answer.lines[0].startswith("The file")
    assert answer.lines[1] == free
    assert answer.lines[2].startswith("Please")
    as_json = ibidem(
        "translate", "-m", learnt.path, *QUICK, "--json", "--prefixes", prefixes, stdin="Hallo\nHallo\nHallo\n"
    )
    assert [json.loads(line)["translation"] for line in as_json.lines] == answer.lines


def test_files_in_and_out(ibidem: Run, tmp_path: Path, tiny_folder: Path) -> None:
    file = tmp_path / "text"
    file.write_text("Hallo\nWelt\n", "utf-8")
    shown = ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file)
    answer = ibidem("translate", "--model", tiny_folder, *QUICK, "--quiet", "-i", file, "-o", tmp_path / "out")
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert (tmp_path / "out").read_text("utf-8") == shown.out
    # A file may be translated in place, since it is only replaced when all is written.
    assert ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file, "-o", file).code == 0
    assert file.read_text("utf-8") == shown.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text"]
    assert ibidem("translate", "--model", tiny_folder, *QUICK, "-i", file, "-o", os.devnull).code == 0


def test_a_failed_translation_leaves_the_old_output(fails: Run, tmp_path: Path, tiny_folder: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before")
    message = fails(1, "translate", "--model", tiny_folder, "-o", out, stdin=b"Hallo\nGr\xfc\xdfe\n")
    assert "stdin, line 2: not UTF-8" in message
    assert "iconv" in message
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]
