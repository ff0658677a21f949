"""The cost of imports, and which package may import which."""

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
COMMANDS = (
    *(
        "check",
        "learn",
        "adapt",
        "translate",
        "explain",
        "serve",
        "evaluate",
        "add",
        "remove",
        "replace",
        "inspect",
        "verify",
        "export",
        "backup",
        "repair",
        "push",
        "pull",
    ),
    *(
        "extract",
        "cluster",
        "compact",
        "tune",
        "prune",
        "restore",
        "index",
        "shard",
        "bench",
        "reproduce",
        "glossary",
        "model",
        "mcp",
    ),
)

# A package imports only packages before it in this list, and only through their fronts.
PACKAGES = (
    "native",
    "text",
    "model",
    "check",
    "memory",
    "glossary",
    "compact",
    "retrieve",
    "combine",
    "decode",
    "evaluate",
    "executor",
    "learn",
    "reproduce",
    "serve",
    "api",
    "cli",
)
SHARED = ("errors", "progress", "wording")

_HELP = """
import contextlib, io, json, sys
from ibidem.cli import main

shown = {}
for command in [None, *sys.argv[1:]]:
    sys.argv = ["ibidem", *([command] if command else []), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            shown[command or ""] = [end.code, out.getvalue()]
print(json.dumps({"shown": shown, "modules": sorted(sys.modules)}))
"""


def python(code: str, *arguments: str, timeout: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light() -> None:
    modules = json.loads(python("import ibidem, json, sys; print(json.dumps(list(sys.modules)))"))
    assert "ibidem" in modules
    assert not {"torch", "transformers", "faiss", "numpy", "ray", "sacrebleu", "submitit"} & set(modules)


def test_shards_are_imported_when_they_are_used() -> None:
    code = "import ibidem.api, ibidem.decode, ibidem.serve, ibidem.cli.app, sys; print(*sys.modules)"
    loaded = python(code).split()
    assert "ibidem.retrieve.parts" in loaded
    assert not [name for name in loaded if name.startswith("ibidem.retrieve.sharded")]


_ONE_MACHINE = """
import contextlib, io, sys
from pathlib import Path
from ibidem.cli import main

folder, model, corpus = sys.argv[1:]
few = ["--set", "tune.metak.updates=2", "--set", "tune.contextual.updates=2"]
text = Path(folder + ".txt")
text.write_text("Guten Morgen.")
for words in (
    ["learn", "--train", corpus, "-o", folder, "--model", model, *few],
    ["index", "-m", folder],
    ["translate", "-m", folder, "--model", model, "-i", str(text), "-o", folder + ".out"],
):
    sys.argv = ["ibidem", *words]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            assert not end.code, words
print(*sys.modules)
"""


def test_one_machine_imports_nothing_for_several(tmp_path: Path, tiny_folder: Path, corpus_file: Path) -> None:
    arguments = [str(tmp_path / "memory"), str(tiny_folder), str(corpus_file)]
    loaded = python(_ONE_MACHINE, *arguments, timeout=240).split()
    assert {"ibidem.learn.recipe", "ibidem.learn.maintenance", "ibidem.decode.translator"} <= set(loaded)
    others = ("ray", "submitit", "obstore", "ibidem.executor", "ibidem.learn.jobs", "ibidem.retrieve.sharded")
    assert not [name for name in loaded if name.startswith(others)]
    assert not [name for name in loaded if name.startswith("ibidem") and name.endswith("_tasks")]


def test_every_command_prints_help_without_heavy_imports() -> None:
    answer = json.loads(python(_HELP, *COMMANDS))
    heavy = {"torch", "transformers", "faiss", "sacrebleu", "fastapi", "uvicorn", "ray", "submitit"}
    assert not heavy & set(answer["modules"])
    assert set(answer["shown"]) == {"", *COMMANDS}
    for command, (code, text) in answer["shown"].items():
        assert code == 0, command
        assert f"ibidem {command}".strip() in text
    assert all(command in answer["shown"][""][1] for command in COMMANDS)


def test_the_installed_command_answers() -> None:
    command = Path(sys.executable).with_name("ibidem")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ibidem {ibidem.__version__}\n", "")


def test_the_public_names() -> None:
    from ibidem import Memory, Translator
    from ibidem.memory import Memory as Folder

    assert issubclass(Memory, Folder)
    assert callable(Memory.learn)
    assert callable(Translator)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = ibidem.nothing_of_this_name


def imported_modules(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import of ibidem in a file, inside functions and type checks too."""
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
            if name.startswith("ibidem.") and not name.startswith("ibidem._"):
                yield node.lineno, name


def is_front(name: str) -> bool:
    """Return whether an imported name is reached without naming a module inside a package.

    A name that the front exports counts as exported even if a module has the same name.
    """
    parts = name.split(".")[1:]
    front = SOURCE.joinpath(*parts[:-1], "__init__.py")
    if front.exists() and f'    "{parts[-1]}",' in front.read_text("utf-8"):
        return True
    return not any(SOURCE.joinpath(*parts[:n]).with_suffix(".py").exists() for n in range(2, len(parts) + 1))


def forbidden_imports(file: Path) -> list[str]:
    """Return the imports of a file that go against the order of packages, or past the front of another one."""
    here = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if here in ("__init__", "__main__"):
        return []
    allowed = {*SHARED, here} if here in SHARED else {*SHARED, *PACKAGES[: PACKAGES.index(here) + 1]}
    return [
        f"{file}:{line} {here} imports {name}"
        for line, name in imported_modules(file)
        if (other := name.split(".")[1]) not in allowed or (other != here and not is_front(name))
    ]


def test_packages_import_only_earlier_packages_through_their_fronts() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 50
    assert [wrong for file in files for wrong in forbidden_imports(file)] == []


def test_a_forbidden_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself can fail: it finds every way of writing an import."""
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    for folder in ("memory", "text", "text/inline"):
        (tmp_path / folder).mkdir()
    for module in ("text/tmx.py", "text/inline/codes.py", "errors.py"):
        (tmp_path / module).touch()
    file = tmp_path / "memory" / "lock.py"
    for wrong in (
        "import ibidem.decode",
        "from ibidem import learn",
        "from ibidem.retrieve.exact import ExactIndex",
        "def f():\n    from ibidem.cli import main",
        "from ..combine import mixing",
        "from ibidem.text.tmx import read_tmx",
        "from ibidem.text import tmx",
        "import ibidem.text.tmx",
        "from ibidem.text.inline.codes import Code",
    ):
        file.write_text(wrong)
        assert len(forbidden_imports(file)) == 1, wrong
    file.write_text(
        "from ibidem.errors import IbidemError\nfrom ibidem.text import Pair\n"
        "from ibidem.text.inline import Code\nfrom . import keys\nfrom ibidem.memory.files import replace_file\n"
    )
    assert forbidden_imports(file) == []
