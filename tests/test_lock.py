"""The locks with hashes: made from the same pins as constraints.txt, and complete."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements-hashed.txt", "requirements-hashed-cpu.txt")


def plain(name: str) -> str:
    """The normalised name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(file: str) -> dict[str, str]:
    """The packages of a requirements file and their exact versions, without the name of a build."""
    found = re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)==([^\s;]+)", (ROOT / file).read_text(encoding="utf-8"))
    return {plain(name): version.removesuffix("+cpu") for name, version in found}


@pytest.mark.parametrize("lock", LOCKS)
def test_versions_are_those_of_the_constraints(lock: str) -> None:
    locked, tested = read_pins(lock), read_pins("constraints.txt")
    assert len(locked) > 10
    shared = locked.keys() & tested.keys()
    assert {name: locked[name] for name in shared} == {name: tested[name] for name in shared}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_has_hashes_and_nothing_else(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = re.split(r"(?m)^(?=[^\s#])", text)[1:]
    pinned = re.compile(r"[a-z0-9][\w.-]*==\S+(?: ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")
    assert [entry for entry in entries if not pinned.fullmatch(entry)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_all_that_is_required_is_locked(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    required = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *extras["serve"],
        *extras["reproduce"],
    ]
    names = {plain(re.match(r"[\w.-]+", line).group()) for line in required}
    assert names - read_pins(lock).keys() == set()
