"""What an import costs, and which room may import which."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ibidem

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(ibidem.__file__).parent
VERBS = (
    *("learn", "translate", "explain", "serve", "evaluate", "add", "remove", "replace", "inspect", "verify", "export"),
    *("extract", "cluster", "compact", "tune", "prune", "restore", "index", "bench", "reproduce"),
)

# A room imports only rooms above it; the façade stands beside the command line.
ROOMS = (
    "native",
    "text",
    "model",
    "memory",
    "compact",
    "retrieve",
    "combine",
    "decode",
    "evaluate",
    "learn",
    "reproduce",
    "serve",
    "facade",
    "cli",
)
SHARED = ("errors", "progress", "wording")

_HELP = """
import contextlib, io, json, sys
from ibidem.cli import main

shown = {}
for verb in [None, *sys.argv[1:]]:
    sys.argv = ["ibidem", *([verb] if verb else []), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            shown[verb or ""] = [end.code, out.getvalue()]
print(json.dumps({"shown": shown, "modules": sorted(sys.modules)}))
"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light() -> None:
    modules = json.loads(python("import ibidem, json, sys; print(json.dumps(list(sys.modules)))"))
    assert "ibidem" in modules
    assert not {"torch", "transformers", "faiss", "numpy", "sacrebleu"} & set(modules)


def test_every_help_answers_and_is_light() -> None:
    answer = json.loads(python(_HELP, *VERBS))
    assert not {"torch", "transformers", "faiss", "sacrebleu", "fastapi", "uvicorn"} & set(answer["modules"])
    assert set(answer["shown"]) == {"", *VERBS}
    for verb, (code, text) in answer["shown"].items():
        assert code == 0, verb
        assert f"ibidem {verb}".strip() in text
    assert all(verb in answer["shown"][""][1] for verb in VERBS)


def test_the_installed_command_answers() -> None:
    command = Path(sys.executable).with_name("ibidem")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ibidem {ibidem.__version__}\n", "")


def test_the_names_that_people_import() -> None:
    from ibidem import Memory, Translator
    from ibidem.memory import Memory as Folder

    assert issubclass(Memory, Folder)
    assert callable(Memory.learn)
    assert callable(Translator)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = ibidem.nothing_of_this_name


def imported_rooms(file: Path) -> Iterator[tuple[int, str]]:
    """Lines and rooms of all imports of ibidem in a file, those inside functions and type checks too."""
    package = ("ibidem", *file.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "ibidem" and len(parts) > 1 and not parts[1].startswith("_"):
                yield node.lineno, parts[1]


def against_traffic(file: Path) -> list[str]:
    here = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here in ("__init__", "__main__"):
        return []
    allowed = {*SHARED, here} if here in SHARED else {*SHARED, *ROOMS[: ROOMS.index(here) + 1]}
    return [f"{file}:{line} {here} -> {room}" for line, room in imported_rooms(file) if room not in allowed]


def test_rooms_import_only_rooms_above_them() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 50
    assert [wrong for file in files for wrong in against_traffic(file)] == []


def test_an_import_against_the_traffic_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail: every way of writing the import is seen."""
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "memory").mkdir()
    file = tmp_path / "memory" / "lock.py"
    for wrong in (
        "import ibidem.decode",
        "from ibidem import learn",
        "from ibidem.retrieve.exact import ExactIndex",
        "def f():\n    from ibidem.cli import main",
        "from ..combine import mixing",
    ):
        file.write_text(wrong)
        assert len(against_traffic(file)) == 1, wrong
    file.write_text("from ibidem.errors import IbidemError\nfrom ibidem.text import Pair\nfrom . import keys\n")
    assert against_traffic(file) == []
