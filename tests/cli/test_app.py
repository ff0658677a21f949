"""Groups of options: the parameters that typer reads, and the arguments that a command receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from ibidem.cli.app import group_options, repeat_file_options

Size = Annotated[int, typer.Option("--size", min=1, help="How large.")]


@dataclass(frozen=True, kw_only=True)
class Shape:
    size: Size = 3
    colour: Annotated[str, typer.Option("--colour")] = "red"


@dataclass(frozen=True, kw_only=True)
class Painted(Shape):
    colour: Annotated[str, typer.Option("--colour")] = "blue"
    coats: Annotated[int, typer.Option("--coats")] = 1


def paint(
    name: Annotated[str, typer.Argument()], *, shape: Painted, loud: Annotated[bool, typer.Option("--loud")] = False
) -> None:
    """Paint a thing."""
    print(name, shape, loud)


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(group_options(paint))
    return CliRunner().invoke(app, arguments).output


def test_fields_are_options() -> None:
    assert run("wall", "--size", "7", "--loud") == f"wall {Painted(size=7)} True\n"
    assert run("wall", "--colour", "green", "--coats", "2") == f"wall {Painted(colour='green', coats=2)} False\n"


def test_defaults_are_those_of_the_last_class() -> None:
    assert run("wall") == f"wall {Painted(size=3, colour='blue', coats=1)} False\n"


def test_options_keep_their_bounds_and_help() -> None:
    assert "greater than or equal to 1" in run("wall", "--size", "0")
    shown = run("--help")
    assert all(part in shown for part in ("--size", "How large.", "--coats", "Paint a thing."))


def test_a_command_without_groups_is_unchanged() -> None:
    def shout(word: Annotated[str, typer.Argument()] = "hey") -> None:
        print(word.upper())

    app = typer.Typer()
    app.command()(group_options(shout))
    assert CliRunner().invoke(app, ["ho"]).output == "HO\n"
    assert CliRunner().invoke(app, []).output == "HEY\n"


def test_a_second_file_after_an_option_repeats_the_option() -> None:
    assert repeat_file_options(["learn", "--train", "a", "b", "--dev", "c", "-", "-o", "m"]) == [
        *("learn", "--train", "a", "--train", "b", "--dev", "c", "--dev", "-", "-o", "m")
    ]
    unchanged = ["learn", "--train", "a", "--train", "b", "-o", "m", "--json"]
    assert repeat_file_options(unchanged) == unchanged
    assert repeat_file_options(["translate", "--train", "a", "b"]) == ["translate", "--train", "a", "b"]
    assert repeat_file_options(["add", "-m", "m", "--file", "a", "b"])[-2:] == ["--file", "b"]
