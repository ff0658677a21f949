"""Processes are killed at file operations and at random moments: a fresh process finds all acknowledged changes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory, verify_folder

from .operations import count_operations, kill_at, observed
from .workload import (
    OPERATIONS,
    copy,
    create,
    digest,
    held,
    in_child,
    make_base_of,
    pairs,
    prune,
    record,
    restore,
    seal,
)

if TYPE_CHECKING:
    from .conftest import Budget

SCRIPT = Path(__file__).with_name("stage_crashes.py")
# A process loads the model once for all stages of a group.
STAGES = {
    "learning": ("learn", "extract", "compact", "tune", "confidence", "prune", "restore", "index", "adapt"),
    "changes": ("add", "remove", "replace", "seal", "import", "merge"),
}


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_kill_at_file_operations(scratch: Path, budget: Budget, name: str) -> None:
    operation = OPERATIONS[name]
    base = make_base_of(name, scratch / "base")
    finished = copy(base, scratch / "finished" / "mine")
    steps = count_operations(finished.parent, lambda: operation(finished))
    states = [held(Memory.open(base)) if name != "create" else {}, held(Memory.open(finished))]
    wanted = digest(finished)
    cases = [
        (number, share) for number in range(len(steps)) for share in ((0.0, 0.5) if writes(steps[number]) else (0.0,))
    ]
    for index in budget.chosen(len(cases), 6):
        if budget.over:
            break
        number, share = cases[index]
        folder = copy(base, scratch / "killed" / "mine")

        def act() -> None:
            with observed(folder.parent, kill_at(number, share)):  # noqa: B023
                operation(folder)  # noqa: B023

        def check() -> None:
            found = check_state(folder, name, states)  # noqa: B023
            if name == "backup":
                target = folder.with_name("copy")  # noqa: B023
                if not target.exists():
                    operation(folder)  # noqa: B023
                assert held(Memory.open(target)) == states[0]
            elif found == states[0] and name != "import":
                operation(folder)  # noqa: B023
            if name != "import":
                assert digest(folder) == wanted  # noqa: B023
            assert verify_folder(folder)[1] == []  # noqa: B023

        step = steps[number]
        case = f"{name}, killed at operation {number} ({step.kind} {step.path.name}) with {share:.0%} of the write"
        assert in_child(act) == -signal.SIGKILL, case
        budget.count("kills at file operations")
        assert in_child(check) == 0, case
        shutil.rmtree(folder.parent)


def writes(step: object) -> bool:
    return getattr(step, "kind", "") == "write"


def check_state(folder: Path, name: str, states: list[dict[int, tuple[object, ...]]]) -> object:
    """Check that the memory is whole, in the state before or after; an import may be between them."""
    if name == "create" and not Memory.exists(folder):
        return {}
    assert verify_folder(folder)[1] == []
    found = held(Memory.open(folder))
    if name in ("import", "create"):
        assert states[0].items() <= found.items()
        assert found.items() <= states[1].items()
    else:
        assert found in states
    return found


def test_kill_at_random_moments(scratch: Path, budget: Budget) -> None:
    """A writer reports each acknowledged change through a pipe, and is killed at a random moment."""
    folder = scratch / "mine"
    create(folder)
    acknowledged: dict[int, int] = {}  # the number of the added pair by its id
    removed: set[int] = set()
    first = 0
    for number in budget.rounds(5):
        if number % 8 == 7:  # start anew: the check reads all of the memory
            shutil.rmtree(folder)
            create(folder)
            acknowledged.clear()
            removed.clear()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                write_until_killed(folder, writer, first, sorted(acknowledged.keys() - removed))
            finally:
                os._exit(70)
        os.close(writer)
        time.sleep(budget.random.uniform(0, 0.12))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        with os.fdopen(reader) as lines:
            reported = [line.split() for line in lines if line.endswith("\n")]
        begun = {int(line[1]) for line in reported if line[0] == "removing"}
        for kind, *numbers in reported:
            if kind == "added":
                acknowledged[int(numbers[0])] = int(numbers[1])
            elif kind == "removed":
                removed.add(int(numbers[0]))
        budget.count("kills at random moments")
        check_acknowledged(folder, acknowledged, removed, begun)
        removed |= begun - held(Memory.open(folder)).keys()
        first += 1000


def write_until_killed(folder: Path, pipe: int, first: int, known: list[int]) -> None:
    number = first
    while True:
        number += 1
        memory = record(folder, pairs(number))
        id = memory.tail.next_id - 1
        os.write(pipe, f"added {id} {number}\n".encode())
        known.append(id)
        if number % 3 == 0:
            gone = known.pop(number % len(known))
            os.write(pipe, f"removing {gone}\n".encode())
            record(folder, removed=(gone,))
            os.write(pipe, f"removed {gone}\n".encode())
        if number % 5 == 0:
            seal(folder)
        if number % 7 == 0 and "unpruned" not in Memory.open(folder).snapshots():
            prune(folder)
        elif number % 11 == 0 and "unpruned" in Memory.open(folder).snapshots():
            restore(folder)


def check_acknowledged(folder: Path, acknowledged: dict[int, int], removed: set[int], begun: set[int]) -> None:
    def check() -> None:
        assert verify_folder(folder)[1] == []
        found = held(Memory.open(folder))
        for id, number in acknowledged.items():
            if id in removed:
                assert id not in found
            elif id not in begun:
                assert found[id][0] == pairs(number).sources[0]

    assert in_child(check) == 0


@pytest.mark.slow
@pytest.mark.parametrize("group", STAGES)
def test_kill_stages_of_learning(
    scratch: Path, budget: Budget, tiny_folder: Path, corpus_file: Path, group: str
) -> None:
    """Stages of learning, and changes with a model, are killed and run again."""
    stages = STAGES[group]
    command = [sys.executable, str(SCRIPT), str(tiny_folder), str(corpus_file), str(scratch / "stages")]
    seconds = os.environ.get("IBIDEM_TRUST_SECONDS", "0")  # of each stage
    command += [",".join(stages), str(budget.seed), str(round(2 * budget.scale)), seconds]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    reports = json.loads(done.stdout.splitlines()[-1])
    assert [*reports] == [*stages]
    for stage, report in reports.items():
        budget.count("kills of stages", report["kills"])
        budget.count(f"kills of {stage}", report["kills"])
    assert [failure for report in reports.values() for failure in report["failures"]] == [], done.stderr[-3000:]
