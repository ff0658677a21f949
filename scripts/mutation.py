"""Mutation testing: change the sources in one place at a time, and run the tests that should notice.

    python scripts/mutation.py memory combine --sample 300 --seed 1

Each mutant is an operator, a condition, a number or a call that is changed in one module. It is killed if a test fails,
or takes much longer than without it. One process collects the tests, runs them once to record the lines and the
processor time of each (kept in `build/mutation-tests.json` until a file changes), and is then forked for every mutant,
in which it replaces the code of the changed function and runs the tests that reach the line: those of the module first,
then those of its package and of `WIDER`, the short ones first, until `--test-seconds` are used up. A change outside
functions is imported by a fresh process, and shown to the tests that reach its module. Processes that a test starts
import the changed module too. The last lines give the shares that were killed, and the report (JSON) names every
survivor; `--again` tries the survivors of the report once more.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import Pipe
from pathlib import Path
from random import Random
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "ibidem"
BUILD = ROOT / "build"
BASELINE = BUILD / "mutation-tests.json"
# Imported before the processes are forked; nothing of ibidem may be.
LIBRARIES = ("numpy", "torch", "safetensors", "hypothesis", "filelock", "faiss", "sentencepiece", "coverage")
# Plugins of pytest that no test of these packages needs.
LEFT_OUT = ("schemathesis.pytest.plugin", "xdist.plugin", "xdist.looponfail")
OPTIONS = [
    "-q",
    "-s",
    "--no-header",
    "--timeout=0",
    *(f"-pno:{name}" for name in ("cacheprovider", "xdist", "schemathesis", "randomly")),
]
# The tests of a package: its folder, and those of others that are tried last.
WIDER = {
    "memory": [
        "tests/memory",
        *(f"tests/trust/test_{name}.py" for name in ("damage", "model", "faults", "power_cuts")),
    ],
    "combine": ["tests/combine", "tests/decode/test_explain.py", "tests/decode/test_scorer.py"],
}
# The environment variable that names the mutant to the processes that tests start.
VARIABLE = "IBIDEM_MUTANT"
# A mutant may take this many times the processor time of its tests, and more when the machine is busy.
PATIENCE, WALL_PATIENCE = 5, 40
MAX_BYTES = 6 << 30
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


class Baseline(NamedTuple):
    """What the tests do without a mutant.

    Attributes:
        seconds: The processor time of each test and each shared fixture.
        lines: The tests and fixtures that reach each line, by module.
        starters: The tests that start processes, whose lines are not recorded.
        failed: The tests that fail without a mutant, which are left out.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]
    starters: list[str]
    failed: list[str]

    def replaced_by(self, newer: Baseline, files: set[str]) -> Baseline:
        """Return what is known of all tests, where those of some files were run again."""

        def kept(name: str) -> bool:
            return name.partition("::")[0] not in files

        lines = {
            module: {line: [*filter(kept, names)] for line, names in known.items()}
            for module, known in self.lines.items()
        }
        for module, found in newer.lines.items():
            known = lines.setdefault(module, {})
            for line, names in found.items():
                known[line] = sorted({*known.get(line, []), *names})
        return Baseline(
            {**{name: value for name, value in self.seconds.items() if kept(name)}, **newer.seconds},
            lines,
            [*filter(kept, self.starters), *newer.starters],
            [*filter(kept, self.failed), *newer.failed],
        )


def processor_seconds() -> float:
    """Return the processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


class Recorder:
    """Record the lines and the processor time of every test, and of the fixtures that tests share."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self._contexts = [""]
        self._since = processor_seconds()
        self.seconds: Counter[str] = Counter()
        self.starters: list[str] = []
        self.failed: set[str] = set()

    def _switch(self) -> None:
        now = processor_seconds()
        self.seconds[self._contexts[-1]] += now - self._since
        self._since = now

    @contextmanager
    def _within(self, context: str) -> Iterator[None]:
        self._switch()
        self._contexts.append(context)
        self._coverage.switch_context(context)
        try:
            yield
        finally:
            self._switch()
            self._contexts.pop()
            self._coverage.switch_context(self._contexts[-1])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        children = sum(os.times()[2:4])
        with self._within(item.nodeid):
            result = yield
        if sum(os.times()[2:4]) > children:
            self.starters.append(item.nodeid)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self._within(f"fixture {fixturedef.argname}"):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def record(session: pytest.Session, items: list[pytest.Item], file: Path) -> None:
    """Run tests of a session, and write what they do to a file."""
    from coverage import Coverage

    os.environ["COVERAGE_CORE"] = "ctrace"  # the only one that records which test reaches a line, in every Python
    coverage = Coverage(data_file=None, include=[f"{SOURCES}/*"], config_file=False)
    coverage.start()
    recorder = Recorder(coverage)
    session.config.pluginmanager.register(recorder)
    run_items(session, items, stop=False)
    coverage.stop()
    data = coverage.get_data()
    lines = {
        os.path.relpath(os.path.realpath(measured), SOURCES): {
            str(line): [context for context in contexts if context]
            for line, contexts in data.contexts_by_lineno(measured).items()
        }
        for measured in data.measured_files()
    }
    found = Baseline(dict(recorder.seconds), lines, recorder.starters, sorted(recorder.failed))
    file.write_text(json.dumps(found), "utf-8")


def run_items(session: pytest.Session, items: list[pytest.Item], *, stop: bool, progress: int = -1) -> None:
    """Run tests of a session; end this process with status 1 at the first failure if `stop` is set."""
    for item, following in pairwise([*items, None]):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if stop and session.testsfailed:
            os._exit(1)
        if progress >= 0:
            os.write(progress, b".")


def in_child(work: Callable[[int], None], patience: Callable[[int], float], limit: float) -> tuple[str, float, int]:
    """Do work in a forked process.

    Args:
        work: What is done; it writes a byte to the descriptor after each step.
        patience: Returns the seconds that a step may take, by its number.
        limit: The processor time of all steps together.

    Returns:
        `survived` (the status was 0), `killed` or `too slow`, the processor time, and the number of steps.
    """
    reading, writing = os.pipe()
    before = sum(os.times()[2:4])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setsid()
            silence = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(silence, descriptor)
            for kind, most in ((resource.RLIMIT_DATA, MAX_BYTES), (resource.RLIMIT_FSIZE, 1 << 30)):
                resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
            work(writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    steps, waited, state = 0, 0.0, None
    try:
        while state is None:
            began = time.monotonic()
            ready, _, _ = select.select([reading], [], [], 0.5)
            received = len(os.read(reading, 4096)) if ready else 0
            steps += received
            # A machine that was stopped meanwhile counts as half a second.
            waited = 0.0 if received else waited + min(0.5, time.monotonic() - began)
            done, code = os.waitpid(child, 0 if ready and not received else os.WNOHANG)
            if done:
                state = "survived" if os.waitstatus_to_exitcode(code) == 0 else "killed"
            elif waited > patience(steps) or processor_seconds_of(child) > limit:
                state = "too slow"
    finally:
        os.close(reading)
        # Also what the child has started, and the child if this process was interrupted.
        for kill in (os.killpg, os.kill) if state in (None, "too slow") else (os.killpg,):
            try:
                kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if state in (None, "too slow"):
            os.waitpid(child, 0)
    return state, sum(os.times()[2:4]) - before, steps


def processor_seconds_of(process: int) -> float:
    """Return the processor time of a process and of those that it waited for."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def function_codes(code: CodeType) -> tuple[list[object], dict[tuple[str, int], CodeType]]:
    """Return what the module and its classes do outside functions, and the code of the outermost functions."""
    outside: list[object] = [code.co_code, code.co_names]
    functions: dict[tuple[str, int], CodeType] = {}
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            outside.append(repr(constant))
        elif constant.co_flags & 1:  # optimised, as every function is and no body of a class
            functions[constant.co_qualname, constant.co_firstlineno] = constant
        else:
            more, inner = function_codes(constant)
            outside += more
            functions |= inner
    return outside, functions


class Functions:
    """The functions of the imported modules, whose code a mutant replaces."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename.startswith(str(SOURCES)):
                code = found.__code__
                self._known[code.co_filename, code.co_qualname, code.co_firstlineno].append(found)

    def replaced_by(self, mutant: Mutant) -> list[tuple[FunctionType, CodeType]]:
        """Return the functions that a mutant changes, with their new code; empty if it changes something else."""
        path = str(SOURCES / mutant.module)
        old = compile((SOURCES / mutant.module).read_text("utf-8"), path, "exec", dont_inherit=True)
        new = compile(mutant.tree(), path, "exec", dont_inherit=True)
        (outside, functions), (new_outside, new_functions) = function_codes(old), function_codes(new)
        if outside != new_outside or functions.keys() != new_functions.keys():
            return []
        changed = {key: code for key, code in new_functions.items() if code != functions[key]}
        found = [(function, code) for key, code in changed.items() for function in self._known.get((path, *key), [])]
        same = all(function.__code__.co_freevars == code.co_freevars for function, code in found)
        return found if same and len(changed) == 1 else []


class Choice(NamedTuple):
    """The tests that are run for a mutant.

    Attributes:
        tests: Their ids, in order.
        seconds: The processor time of each without the mutant.
        complete: Whether these are all tests that reach the line.
    """

    tests: list[str]
    seconds: list[float]
    complete: bool

    @property
    def most_seconds(self) -> float:
        """The processor time that a mutant may need."""
        return 20 + PATIENCE * sum(self.seconds)

    def patience(self, done: int) -> float:
        """Return the time that the test after those that are done may take on a busy machine."""
        return 60 + WALL_PATIENCE * (self.seconds[done] if done < len(self.seconds) else 0)


def choose_tests(
    mutant: Mutant,
    baseline: Baseline,
    fixtures: dict[str, list[str]],
    *,
    whole: bool,
    limit: float,
    kills: Counter[str],
) -> Choice:
    """Return the tests that reach a mutant, those that are likely to fail first.

    Args:
        mutant: The mutant.
        baseline: What the tests do.
        fixtures: The shared fixtures of every test.
        whole: Whether all tests that reach the module are meant, instead of those that reach the line.
        limit: The processor time that the tests may need together; one test always is run.
        kills: How many mutants each test has killed.
    """
    lines = baseline.lines.get(mutant.module, {})
    reached = {each for line in (lines if whole else [str(mutant.line)]) for each in lines.get(line, [])}
    package = mutant.module.partition("/")[0]
    own = tests_of(mutant.module)
    candidates = []
    for test, shared in fixtures.items():
        starts = test in baseline.starters and test.startswith(f"tests/{package}/")
        if test not in baseline.failed and (test in reached or starts or reached.intersection(shared)):
            seconds = sum(baseline.seconds.get(each, 0.0) for each in (test, *shared))
            reaches = test in reached or bool(reached.intersection(shared))
            near = (
                not reaches,
                not test.startswith(tuple(f"{file}::" for file in own)),
                not test.startswith("tests/" + package),
            )
            # A test that is ten times as long must have killed more.
            candidates.append((near, seconds / (1 + kills[test]), seconds, test))
    candidates.sort()
    tests, times = [], []
    for _, _, seconds, test in candidates:
        if not tests or sum(times) + seconds <= limit:
            tests.append(test)
            times.append(seconds)
    return Choice(tests, times, len(tests) == len(candidates))


class Loop:
    """The plugin of pytest that tries the mutants with the collected tests."""

    def __init__(
        self, mutants: list[Mutant], limit: float, ends: float, fresh: Fresh, report: Callable[[dict[str, Any]], None]
    ) -> None:
        self._mutants, self._limit, self._ends, self._fresh, self._report = mutants, limit, ends, fresh, report
        self._kills: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            sys.exit("Some tests cannot be collected.")
        baseline = self._baseline(session)
        shared = {name.removeprefix("fixture ") for name in baseline.seconds if name.startswith("fixture ")}
        items = {item.nodeid: item for item in session.items}
        fixtures = {
            name: [f"fixture {each}" for each in getattr(item, "fixturenames", []) if each in shared]
            for name, item in items.items()
        }
        functions = Functions()
        gc.collect()
        gc.freeze()  # less memory is copied in the forked processes
        for mutant in self._mutants:
            if time.monotonic() > self._ends:
                break
            replaced = functions.replaced_by(mutant)
            choice = choose_tests(mutant, baseline, fixtures, whole=not replaced, limit=self._limit, kills=self._kills)
            state, spent, done = self._try(session, mutant, replaced, choice, [items[test] for test in choice.tests])
            row = {**mutant._asdict(), "state": state}
            if state == "killed" and done < len(choice.tests):
                self._kills[choice.tests[done]] += 1
                row["by"] = choice.tests[done]
            row |= {"tests": len(choice.tests), "complete": choice.complete, "seconds": round(spent, 2)}
            self._report(row)
        return True

    def _baseline(self, session: pytest.Session) -> Baseline:
        """Return what the tests do; those of files that changed since the last run are run."""
        # The lines of these packages; changes elsewhere hardly change which test reaches them.
        common = [file for package in WIDER for file in (SOURCES / package).rglob("*.py")]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(common))).hexdigest()
        files = {item.path for item in session.items}
        digests = {str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        known = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
        if known.get("digest") != digest:
            known = {"digest": digest, "files": {}, "baseline": Baseline({}, {}, [], [])}
        changed = [file for file, value in digests.items() if known["files"].get(file) != value]
        baseline = Baseline(*known["baseline"])
        if changed:
            items = [item for item in session.items if item.nodeid.partition("::")[0] in changed]
            with tempfile.TemporaryDirectory() as folder:
                written = Path(folder) / "baseline.json"
                in_child(lambda _: record(session, items, written), lambda _: 36_000, 36_000)
                if not written.exists():
                    sys.exit("The tests without a mutant ended with an error.")
                baseline = baseline.replaced_by(Baseline(*json.loads(written.read_text("utf-8"))), set(changed))
            known["files"] |= digests
            BASELINE.write_text(json.dumps({**known, "baseline": baseline}), "utf-8")
        for test in baseline.failed:
            print(f"left out, because it fails without a mutant: {test}", flush=True)
        return baseline

    def _try(
        self,
        session: pytest.Session,
        mutant: Mutant,
        replaced: list[tuple[FunctionType, CodeType]],
        choice: Choice,
        items: list[pytest.Item],
    ) -> tuple[str, float, int]:
        """Run tests with a mutant, and return the state, the processor time and the number of tests that passed."""
        if not items:
            return "survived", 0.0, 0
        if not replaced:
            return self._fresh.run(mutant, choice)

        def work(progress: int) -> None:
            announce(mutant)
            for function, code in replaced:
                function.__code__ = code
            run_items(session, items, stop=True, progress=progress)

        return in_child(work, choice.patience, choice.most_seconds)


class Fresh:
    """A process that imports nothing of ibidem, and is forked for mutants outside functions."""

    def __init__(self) -> None:
        self._connection, other = Pipe()
        self._process = os.fork()
        if self._process == 0:
            self._connection.close()
            try:
                self._serve(other)
            finally:
                os._exit(0)
        other.close()

    def run(self, mutant: Mutant, choice: Choice) -> tuple[str, float, int]:
        """Run tests with a mutant, and return the state, the processor time and the number of tests that passed."""
        self._connection.send((mutant, choice))
        return self._connection.recv()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._connection.close()
        os.waitpid(self._process, 0)

    @staticmethod
    def _serve(connection: Connection) -> None:
        while True:
            try:
                mutant, choice = connection.recv()
            except EOFError:
                return

            def work(progress: int, mutant: Mutant = mutant, choice: Choice = choice) -> None:
                class Progress:
                    def pytest_runtest_logfinish(self) -> None:
                        os.write(progress, b".")

                announce(mutant)
                install(mutant)
                if pytest.main([*OPTIONS, "-x", *choice.tests], plugins=[Progress()]):
                    os._exit(1)

            connection.send(in_child(work, choice.patience, choice.most_seconds + 60))


def announce(mutant: Mutant) -> None:
    """Let the processes that tests start import the changed module."""
    folder = BUILD / "mutation"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import json, os, sys\nsys.path.append({str(ROOT / 'scripts')!r})\nimport mutation\n"
        f"mutation.install(mutation.Mutant(*json.loads(os.environ[{VARIABLE!r}])))\n",
        "utf-8",
    )
    os.environ[VARIABLE] = json.dumps(mutant)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT / "src")])


def install(mutant: Mutant) -> None:
    """Let this process import the changed module."""
    path, tree = str(SOURCES / mutant.module), mutant.tree()
    real = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> object:
        if os.path.realpath(self.path) == path:
            return compile(tree, path, "exec", dont_inherit=True)
        return real(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages or modules: memory, combine, memory/journal.py")
    parser.add_argument("--sample", type=int, default=0, help="mutants of all packages together; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="no mutant is begun after this time")
    parser.add_argument("--test-seconds", type=float, default=60, help="processor time of the tests of a mutant")
    parser.add_argument("--report", type=Path, default=BUILD / "mutation.json")
    parser.add_argument("--continue", action="store_true", help="keep the results of the report")
    parser.add_argument("--narrow", action="store_true", help="leave out tests outside the folders of the packages")
    parser.add_argument("--again", action="store_true", help="try only the survivors of the report")
    chosen = parser.parse_args()
    ends = time.monotonic() + chosen.seconds
    os.chdir(ROOT)
    BUILD.mkdir(exist_ok=True)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(BUILD / "hypothesis")
    sys.path[:0] = [str(ROOT / "src")]
    for library in LIBRARIES:
        importlib.import_module(library)
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        if plugin.module not in LEFT_OUT:
            plugin.load()
    # A failing example is enough; a smaller one takes time.
    hypothesis = importlib.import_module("hypothesis")
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("mutation", phases=phases, report_multiple_bugs=False)
    hypothesis.settings.load_profile("mutation")
    modules = [file for each in chosen.packages for file in sorted((SOURCES / each).rglob("*.py"))]
    modules += [SOURCES / each for each in chosen.packages if each.endswith(".py")]
    mutants = [mutant for module in modules if module.name != "__init__.py" for mutant in read_mutants(module)]
    total = len(mutants)
    Random(chosen.seed).shuffle(mutants)
    mutants = mutants[: chosen.sample or total]
    results: list[dict[str, Any]] = []
    if chosen.again or getattr(chosen, "continue"):
        before = json.loads(chosen.report.read_text("utf-8"))
        total = before["mutants"]
        states = {place_of(row): row["state"] for row in before["results"]}
        wanted = "survived" if chosen.again else None
        mutants = [mutant for mutant in mutants if states.get(place_of(mutant._asdict())) == wanted]
        tried = {place_of(mutant._asdict()) for mutant in mutants}
        results = [row for row in before["results"] if place_of(row) not in tried]

    def report(row: dict[str, Any]) -> None:
        results.append(row)
        words = f"{row['module']}:{row['line']} {row['change']}: {row['state']} ({row['seconds']} s)"
        print(f"{len(results)}: {words}", flush=True)
        found = {"seed": chosen.seed, "mutants": total, "tried": len(results), "results": results}
        chosen.report.write_text(json.dumps(found, indent=1) + "\n", "utf-8")

    packages = sorted({mutant.module.partition("/")[0] for mutant in mutants})
    tests = [f"tests/{package}" for package in packages]
    if not chosen.narrow:
        tests += [file for package in packages for file in WIDER.get(package, []) if file not in tests]
    fresh = Fresh()
    folder = tempfile.mkdtemp(prefix="ibidem-mutation-")
    try:
        status = pytest.main(
            [*OPTIONS, f"--basetemp={folder}/tests", *tests],
            plugins=[Loop(mutants, chosen.test_seconds, ends, fresh, report)],
        )
    finally:
        fresh.close()
        shutil.rmtree(folder, ignore_errors=True)
    counts = Counter((row["module"].partition("/")[0], row["state"] != "survived") for row in results)
    for package in sorted({package for package, _ in counts}):
        killed, survived = counts[package, True], counts[package, False]
        print(f"{package}: {killed} of {killed + survived} mutants killed ({killed / (killed + survived):.0%})")
    print(f"{total} mutants in all")
    return int(status not in (0, 5))


def place_of(row: dict[str, Any]) -> tuple[object, ...]:
    """Return what identifies a mutant in a report."""
    return row["module"], row["line"], row["change"], row["place"], row["number"]


if __name__ == "__main__":
    sys.exit(main())
