"""Mutation testing: change the sources in one place at a time, and run the tests that should notice.

    python scripts/mutation.py memory combine --sample 100 --seed 1

Each mutant is an operator, a condition, a number or a call that is changed in one module. It is killed if a test fails,
or takes much longer than without it. A process imports the libraries once and is forked for every mutant. The tests of
the module run first; a mutant that survives them is shown to the tests of the whole package. The last lines give the
shares that were killed, and the report (JSON) names every survivor. Tests that start processes of their own see the
sources without the mutant.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.machinery
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "ibidem"
# Imported before the processes are forked; nothing of ibidem may be.
LIBRARIES = ("numpy", "torch", "safetensors", "hypothesis", "pytest", "filelock", "faiss", "sentencepiece")
# Plugins of pytest that no test of these packages needs.
LEFT_OUT = ("schemathesis.pytest.plugin", "xdist.plugin", "xdist.looponfail")
# The tests of a package beyond its own folder, in which a mutant that survives its module's tests is tried.
WIDER = {
    "memory": ["tests/memory", "tests/trust/test_damage.py", "tests/trust/test_model.py", "tests/trust/test_faults.py"],
    "combine": ["tests/combine", "tests/decode/test_explain.py", "tests/decode/test_scorer.py"],
}
# Tests of modules whose tests have another name.
NARROWER = {
    "memory/artefacts.py": ["test_memory.py", "test_integrity.py"],
    "memory/columns.py": ["test_memory.py", "test_pairs.py"],
    "memory/creation.py": ["test_memory.py"],
    "memory/files.py": ["test_integrity.py", "test_memory.py"],
    "memory/generations.py": ["test_manifest.py", "test_memory.py", "test_lock.py"],
    "memory/json_document.py": ["test_manifest.py", "test_integrity.py"],
    "memory/segment.py": ["test_memory.py", "test_integrity.py"],
    "combine/contextual.py": ["test_combiners.py", "test_storage.py", "test_contextual_kernels.py"],
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}


class Mutant(NamedTuple):
    """A change of one module.

    Attributes:
        module: The path of the module in the package, such as `memory/journal.py`.
        line: The line that is changed.
        change: The change in words.
        place: The number of the place in `find_places`.
        number: The number of the change among those of the place.
    """

    module: str
    line: int
    change: str
    place: int
    number: int

    def tree(self) -> ast.Module:
        """Return the changed module."""
        tree = ast.parse((SOURCES / self.module).read_text("utf-8"))
        parent, name, index = find_places(tree)[self.place]
        old = getattr(parent, name) if index is None else getattr(parent, name)[index]
        new = list(mutate(old))[self.number][1]
        new = ast.copy_location(ast.Pass() if new is None else new, old)
        if index is None:
            setattr(parent, name, new)
        else:
            getattr(parent, name)[index] = new
        return ast.fix_missing_locations(tree)


def mutate(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """Yield the changes of a node: a description, and the node in its place (None removes a statement)."""
    changed = copy.copy(node)
    match node:
        case ast.Compare(ops=[operator, *rest]) if type(operator) in COMPARISONS:
            changed.ops = [COMPARISONS[type(operator)](), *rest]  # type: ignore[attr-defined]
            yield f"{type(operator).__name__} -> {type(changed.ops[0]).__name__}", changed  # type: ignore[attr-defined]
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            changed.op = OPERATORS[type(operator)]()  # type: ignore[attr-defined]
            yield f"{type(operator).__name__} -> {type(changed.op).__name__}", changed  # type: ignore[attr-defined]
        case ast.BoolOp(op=operator):
            changed.op = ast.Or() if isinstance(operator, ast.And) else ast.And()  # type: ignore[attr-defined]
            yield f"{type(operator).__name__} -> {type(changed.op).__name__}", changed  # type: ignore[attr-defined]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not removed", operand
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            changed.test = ast.UnaryOp(ast.Not(), test)  # type: ignore[attr-defined]
            yield "condition negated", changed
        case ast.Constant(value=bool(value)):
            yield f"{value} -> {not value}", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield f"{value} -> {value + 1}", ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()):
            yield "call removed", None
        case ast.Break():
            yield "break -> continue", ast.Continue()
        case ast.Continue():
            yield "continue -> break", ast.Break()
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "returns None", ast.Return(ast.Constant(None))


# No test can notice a changed annotation, and messages of errors are texts.
IGNORED = (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.arg)


def find_places(tree: ast.Module) -> list[tuple[ast.AST, str, int | None]]:
    """Return the places of the nodes of a module that can change: the parent, the field and the index in it."""
    found: list[tuple[ast.AST, str, int | None]] = []

    def visit(node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                    continue
                # Triton reads the source of a kernel from its file, so a changed tree would not run.
                if isinstance(child, ast.FunctionDef) and any("triton" in ast.dump(d) for d in child.decorator_list):
                    continue
                if isinstance(child, ast.AST) and not isinstance(child, IGNORED):
                    found.append((node, name, index))
                    visit(child)

    visit(tree)
    return found


def read_mutants(module: Path) -> list[Mutant]:
    """Return all mutants of a module."""
    name = str(module.relative_to(SOURCES))
    mutants = []
    for place, (parent, field, index) in enumerate(find_places(ast.parse(module.read_text("utf-8")))):
        node = getattr(parent, field) if index is None else getattr(parent, field)[index]
        line = getattr(node, "lineno", 0)
        mutants += [Mutant(name, line, change, place, number) for number, (change, _) in enumerate(mutate(node))]
    return mutants


def tests_of(module: str) -> list[str]:
    """Return the files of tests of a module, empty if only the whole package has some."""
    package, _, name = module.partition("/")
    names = NARROWER.get(module, [f"test_{name}"])
    files = [f"tests/{package}/{each}" for each in names]
    return [file for file in files if (ROOT / file).exists()]


def run_tests(files: list[str], mutant: Mutant | None, seconds: float) -> tuple[str, float]:
    """Run tests in a forked process, with a mutant, and return `survived`, `killed` or `too slow`, and the seconds."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        status = 1
        try:
            silence = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(silence, descriptor)
            if mutant is not None:
                install(mutant)
            import pytest

            options = [
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-p",
                "no:schemathesis",
                "-p",
                "no:randomly",
                "--no-header",
            ]
            status = int(pytest.main([*options, *files]))
        finally:
            os._exit(status)
    while True:
        done, state = os.waitpid(child, os.WNOHANG)
        spent = time.monotonic() - began
        if done:
            return "survived" if os.waitstatus_to_exitcode(state) == 0 else "killed", spent
        if spent > seconds:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "too slow", spent
        time.sleep(0.02)


def install(mutant: Mutant) -> None:
    """Let this process import the changed module."""
    path, tree = str(SOURCES / mutant.module), mutant.tree()
    real = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> object:
        if os.path.realpath(self.path) == path:
            return compile(tree, path, "exec")
        return real(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages or modules: memory, combine, memory/journal.py")
    parser.add_argument("--sample", type=int, default=0, help="mutants of all packages together; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="ends the run after this time; 0 for no end")
    parser.add_argument("--quick", action="store_true", help="only the tests of the module, where it has some")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "mutation.json")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(ROOT / "build" / "hypothesis")
    sys.path[:0] = [str(ROOT / "src")]
    for library in LIBRARIES:
        importlib.import_module(library)
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        if plugin.module not in LEFT_OUT:
            plugin.load()
    modules = [file for each in chosen.packages for file in sorted((SOURCES / each).rglob("*.py") or [])]
    modules += [SOURCES / each for each in chosen.packages if each.endswith(".py")]
    mutants = [mutant for module in modules if module.name != "__init__.py" for mutant in read_mutants(module)]
    total = len(mutants)
    Random(chosen.seed).shuffle(mutants)
    mutants = mutants[: chosen.sample or total]
    limits: dict[str, float] = {}
    results: list[dict[str, object]] = []
    counts: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    for number, mutant in enumerate(mutants, start=1):
        if chosen.seconds and time.monotonic() - began > chosen.seconds:
            break
        package = mutant.module.partition("/")[0]
        state, spent = "survived", 0.0
        own, wider = tests_of(mutant.module), WIDER.get(package, [f"tests/{package}"])
        for files in (own, [] if own and chosen.quick else wider):
            if state == "survived" and files:
                key = " ".join(files)
                if key not in limits:
                    sound, seconds = run_tests(files, None, 1800)
                    if sound != "survived":
                        sys.exit(f"The tests fail without a mutant: pytest {key}")
                    limits[key] = 20 + 6 * seconds
                state, seconds = run_tests(files, mutant, limits[key])
                spent += seconds
        counts[package, state] += 1
        results.append({"module": mutant.module, "line": mutant.line, "change": mutant.change, "state": state})
        print(f"{number}: {mutant.module}:{mutant.line} {mutant.change}: {state} ({spent:.1f} s)", flush=True)
        chosen.report.parent.mkdir(parents=True, exist_ok=True)
        report = {"seed": chosen.seed, "mutants": total, "tried": len(results), "results": results}
        chosen.report.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    for package in sorted({package for package, _ in counts}):
        tried = sum(count for (name, _), count in counts.items() if name == package)
        killed = tried - counts[package, "survived"]
        print(f"{package}: {killed} of {tried} mutants killed ({killed / tried:.0%}); all packages have {total}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
