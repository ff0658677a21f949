"""The commands add, remove and replace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ibidem.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

# The states of a random model lie close together: it needs a combiner with a low temperature.
CLOSE = ("--k", 4, "--weight", 0.99, "--temperature", 1e-5, "--dtype", "float32")


def texts(folder: Path) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in Memory.open(folder).sentences()]


def test_a_memory_from_nothing(ibidem: Run, tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    bare = ibidem("translate", "-m", "none", "--model", tiny_folder, "--dtype", "float32", stdin="Guten Morgen\n").out
    added = ibidem("add", "-m", folder, "--model", tiny_folder, "Guten Morgen", "Good morning")
    assert (added.code, added.out) == (0, "1 pair added: id 0\n")
    again = ibidem("add", "-m", folder, "Guten Morgen", "Good morning")
    assert again.out == "nothing new to add\n1 pair already there: id 0: not stored again\n"
    translate = ("translate", "-m", folder, *CLOSE)
    assert ibidem(*translate, stdin="Guten Morgen\n").out == "Good morning\n"
    replaced = ibidem("replace", "-m", folder, "Guten Morgen", "Good morning", "Top of the morning")
    assert replaced.out == "1 pair added in its place: id 1\n"
    assert ibidem(*translate, stdin="Guten Morgen\n").out == "Top of the morning\n"
    replaced = ibidem("replace", "-m", folder, "--id", 1, "Morning", "--json")
    assert json.loads(replaced.out) == {"added": [2]}
    removed = ibidem("remove", "-m", folder, " Guten\tMorgen ", "Morning\n", "--json")
    assert json.loads(removed.out) == {"removed": [2]}
    assert ibidem(*translate, stdin="Guten Morgen\n").out == bare
    assert ibidem("verify", "-m", folder).code == 0


def test_files_and_stdin(ibidem: Run, memory: Path, tmp_path: Path) -> None:
    before = texts(memory)
    file = tmp_path / "new.tsv"
    file.write_text(
        "Erster Satz\tFirst sentence\nZweiter Satz\tSecond sentence\nErster Satz\tFirst sentence\n", "utf-8"
    )
    answer = ibidem("add", "-m", memory, "--file", file, "--json")
    first = len(before)
    assert json.loads(answer.out)["added"] == [first, first + 1]
    answer = ibidem("add", "-m", memory, stdin="Dritter Satz\tThird sentence\nAllein\t\n")
    assert (answer.code, answer.out) == (0, f"1 pair added: id {first + 2}\n")
    assert "dropped 1 (1 empty target)" in answer.err
    new = [("Erster Satz", "First sentence"), ("Zweiter Satz", "Second sentence"), ("Dritter Satz", "Third sentence")]
    assert texts(memory) == before + new
    answer = ibidem("remove", "-m", memory, "--id", first, "--id", first + 2)
    assert answer.out == f"2 pairs removed: ids {first}, {first + 2}\n"
    assert texts(memory) == before + new[1:2]
    origin = list(Memory.open(memory).sentences())[-1].origin
    assert ibidem("remove", "-m", memory, "--origin", origin).out == f"1 pair removed: id {first + 1}\n"
    assert texts(memory) == before


def test_mistakes_change_nothing(fails: Run, memory: Path, tmp_path: Path) -> None:
    before = texts(memory)
    for code, message, arguments in (
        (2, "give a source and a target", ("add", "-m", memory, "Hallo")),
        (2, "not both", ("add", "-m", memory, "Hallo", "Hello", "--file", "x.tsv")),
        (2, "source of the pair is empty", ("add", "-m", memory, " ", "Hello")),
        (2, "Nothing to remove", ("remove", "-m", memory)),
        (2, "give either a source and a target", ("remove", "-m", memory, "--id", 1, "--origin", "x")),
        (2, "no pair with the id 99999", ("remove", "-m", memory, "--id", 1, "--id", 99999)),
        (2, "given twice", ("remove", "-m", memory, "--id", 1, "--id", 1)),
        (2, "no such pair", ("remove", "-m", memory, "Hallo", "Hello")),
        (2, "no pair of the origin", ("remove", "-m", memory, "--origin", "nowhere")),
        (2, "new target alone", ("replace", "-m", memory, "--id", 1, "a", "b")),
        (2, "no such pair", ("replace", "-m", memory, "Hallo", "Hello", "Hi")),
        (1, "no memory", ("remove", "-m", tmp_path / "none", "--id", 1)),
        (1, "no memory", ("replace", "-m", tmp_path / "none", "--id", 1, "x")),
    ):
        assert message in fails(code, *arguments)
    assert "line 2" in fails(1, "add", "-m", memory, stdin="Vierter Satz\tFourth sentence\nkein Tabulator\n")
    assert texts(memory) == before
    assert not (tmp_path / "none").exists()
