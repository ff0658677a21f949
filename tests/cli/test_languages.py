"""Languages on the command line: none is ignored without a message."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory

if TYPE_CHECKING:
    from .conftest import Run

SWAPPED = ("--source-language", "en", "--target-language", "de")
REFUSED = "translates from de to en, not from en to de: leave --source-language and --target-language out"
TMX = """<tmx version="1.4"><header srclang="de"/><body><tu>
<tuv xml:lang="de"><seg>Datei</seg></tuv><tuv xml:lang="en"><seg>file</seg></tuv></tu></body></tmx>"""


@pytest.fixture
def unstated(tiny_folder: Path, tmp_path: Path) -> Path:
    """Return a model that does not name its languages."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "unstated"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}', encoding="utf-8")
    return folder


@pytest.mark.usefixtures("first_model_only")
def test_the_shipped_model_does_not_translate_from_english(fails: Run) -> None:
    assert f"ibidem-base-de-en {REFUSED}" in fails(2, "translate", *SWAPPED, stdin="The file was deleted.\n")


@pytest.mark.parametrize("command", ["translate", "explain", "serve", "evaluate", "learn", "extract", "add"])
def test_every_command_refuses_them(
    fails: Run, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("ibidem.serve.server.serve", lambda *_: pytest.fail("it serves"))
    (tmp_path / "x.tmx").write_text(TMX, encoding="utf-8")
    more: dict[str, tuple[object, ...]] = {
        "serve": ("-m", tmp_path / "memory", "--port", 0),
        "evaluate": ("--test", tmp_path / "x.tmx"),
        "learn": ("--train", tmp_path / "x.tmx", "-o", tmp_path / "memory"),
        "extract": ("--train", tmp_path / "x.tmx", "-o", tmp_path / "memory"),
        "add": ("-m", tmp_path / "memory", "--file", tmp_path / "x.tmx"),
    }
    error = fails(
        2, command, "--model", tiny_folder, "--device", "cpu", *SWAPPED, *more.get(command, ()), stdin="file\n"
    )
    assert f"{tiny_folder} {REFUSED}" in error
    assert not (tmp_path / "memory").exists()


def test_with_a_memory(ibidem: Run, fails: Run, memory: Path, tmp_path: Path) -> None:
    assert "not from en" in fails(2, "translate", "-m", memory, "--source-language", "en", stdin="file\n")
    answer = ibidem(
        "translate", "-m", memory, "--source-language", "de-AT", "--target-language", "eng", "--quiet", stdin="Datei\n"
    )
    assert (answer.code, answer.err) == (0, "")
    out = tmp_path / "pairs.tmx"
    error = fails(2, "export", "-m", memory, "-o", out, "--source-language", "en")
    assert f"The source language of {memory} is de, not en" in error
    assert not out.exists()
    assert ibidem("export", "-m", memory, "-o", out, "--source-language", "de-AT").code == 0


def test_a_note_where_they_cannot_be_checked(ibidem: Run, unstated: Path, tmp_path: Path) -> None:
    given = ("--model", unstated, "--device", "cpu")
    answer = ibidem(
        "translate", *given, "--quiet", "--source-language", "fr", "--target-language", "en", stdin="Datei\n"
    )
    assert answer.code == 0
    assert answer.err == (
        f"{unstated} does not name its languages, so --source-language and --target-language cannot be checked. "
        "It changes how files are read; it does not change translations.\n"
    )
    assert ibidem("translate", *given, stdin="Datei\n").out == answer.out
    added = ibidem("add", "-m", tmp_path / "memory", *given, "--source-language", "fr", "Maison", "house")
    assert "so --source-language cannot be checked" in added.err
    assert Memory.open(tmp_path / "memory").identity.source_language == "fr"
    # The memory's own languages are not the user's options.
    assert ibidem("translate", "-m", tmp_path / "memory", *given, "--quiet", stdin="Datei\n").err == ""


def test_files_are_not_read_as_german_and_english_by_default(
    fails: Run, ibidem: Run, unstated: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.tmx").write_text(TMX, encoding="utf-8")
    given = ("add", "-m", tmp_path / "memory", "--file", tmp_path / "x.tmx", "--model", unstated, "--device", "cpu")
    assert "tmx files name theirs: give --source-language and --target-language" in fails(2, *given)
    answer = ibidem(*given, "--source-language", "de", "--target-language", "en")
    assert (answer.code, answer.lines) == (0, ["1 pair added: id 0"])
