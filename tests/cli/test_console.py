"""Messages cannot control the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.cli.console import printable

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Run

TITLE = "\x1b]0;a title\x07\x1b[31m"


def test_control_characters_are_replaced() -> None:
    assert printable(f"a{TITLE}ü\tb") == "a�]0;a title��[31mü\tb"
    assert printable("a\u202etxt.exe\u2066\x9b31m\ud800\n") == "a�txt.exe��31m��"


def test_names_of_files_in_messages(ibidem: Run, fails: Run, tmp_path: Path) -> None:
    message = fails(1, "inspect", "-m", tmp_path / TITLE)
    assert "\x1b" not in message
    assert "�]0;a title" in message
    (tmp_path / f"{TITLE}.tsv").write_text("Der Hund\tThe dog\n", "utf-8")
    answer = ibidem("check", "--sample", 0, tmp_path / f"{TITLE}.tsv")
    assert "\x1b" not in answer.out
    assert "�]0;a title" in answer.out
