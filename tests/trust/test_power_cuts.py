"""The power is cut after every file operation: acknowledged changes survive, and nothing else than whole changes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ibidem.memory import Memory, back_up, verify_folder

from .operations import Operation, kill_at, observed
from .power import Disk
from .workload import OPERATIONS, copy, create, held, in_child, make_base, merge, pairs, prune, record, restore, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Budget
    from .workload import Held

# Each step is one acknowledged change.
LIFE: list[Callable[[Path], object]] = [
    create,
    lambda folder: record(folder, pairs(1, 2)),
    lambda folder: record(folder, pairs(2), removed=(0,)),
    seal,
    lambda folder: record(folder, pairs(3)),
    OPERATIONS["append"],
    lambda folder: record(folder, pairs(4), removed=(2,)),
    prune,
    lambda folder: record(folder, pairs(5)),
    merge,
    lambda folder: record(folder, removed=(1,)),
    restore,
    lambda folder: record(folder, pairs(6)),
]


def states_of(folder: Path, steps: list[Callable[[Path], object]]) -> list[Held]:
    """Return what the memory holds after each step."""
    states: list[Held] = []
    for step in steps:
        step(folder)
        states.append(held(Memory.open(folder)))
    return states


def test_power_cut_after_every_operation(scratch: Path, budget: Budget) -> None:
    (scratch / "plain").mkdir()
    states: list[Held] = [{}, *states_of(scratch / "plain" / "mine", LIFE)]
    cuts = 0
    for number in budget.rounds(1):
        root = scratch / f"live-{number}"
        root.mkdir()
        disk = Disk(root)
        acknowledged = 0

        def after(operation: Operation) -> None:
            nonlocal cuts
            disk.record(operation)  # noqa: B023
            if budget.random.random() > min(1.0, 0.12 * budget.scale):
                return
            cuts += 1
            chance = budget.random.choice([0.0, 0.5, 0.5, 0.9, 1.0])
            left = disk.cut(scratch / "left", budget.random, chance)  # noqa: B023
            check(left / "mine", acknowledged, states, f"{operation.kind} {operation.path.name}, cut {cuts}")  # noqa: B023
            shutil.rmtree(left)

        for step in LIFE:
            with observed(root, after=after):
                step(root / "mine")
            acknowledged += 1
        shutil.rmtree(root)
    budget.count("power cuts", cuts)
    assert cuts > 20


def check(folder: Path, acknowledged: int, states: list[Held], case: str) -> None:
    """Check that the state is the acknowledged one, or the one after the change that was being made."""
    case = f"step {acknowledged + 1}: {case}"
    if not Memory.exists(folder):
        assert acknowledged == 0, case
        create(folder)  # what is left does not prevent the next attempt
        assert Memory.open(folder).verify() == [], case
        return
    assert verify_folder(folder)[1] == [], case
    found = held(Memory.open(folder))
    allowed = states[acknowledged : acknowledged + 2]
    assert found in allowed, f"{case}: {sorted(found)} instead of {[sorted(state) for state in allowed]}"
    record(folder, pairs(99))
    assert len(held(Memory.open(folder))) == len(found) + 1, case


@pytest.mark.parametrize("name", ["create", "add", "seal", "prune", "merge"])
def test_power_cut_after_a_killed_writer_and_an_acknowledged_pair(scratch: Path, budget: Budget, name: str) -> None:
    """The writer is killed, the next one adds a pair, and the power is cut: nothing of the killed one was synced."""
    base = scratch / "base"
    if name == "create":
        base.mkdir()
    else:
        make_base(base)
    whole = copy(base, scratch / "count" / "mine")
    counted: list[Operation] = []
    with observed(whole.parent, after=counted.append):
        OPERATIONS[name](whole)
    before = held(Memory.open(base)) if name != "create" else {}
    for number in budget.chosen(len(counted), 5):
        if budget.over:
            break
        root = scratch / "live"
        folder = copy(base, root / "mine")
        disk = Disk(root)
        left = iter(range(number))

        class Killed(BaseException):
            """Raised instead of a kill, so that this process can follow the disk."""

        def before_operation(_: Operation) -> None:
            if next(left, None) is None:  # noqa: B023
                raise Killed

        stopped = False
        try:
            with observed(root, before_operation, disk.record):
                OPERATIONS[name](folder)
        except Killed:
            stopped = True
        assert stopped
        with observed(root, after=disk.record):
            record(create(folder).path, pairs(50))
        after = disk.cut(scratch / "after", budget.random, budget.random.choice([0.0, 0.5])) / "mine"
        budget.count("power cuts")
        case = f"{name}, ended before operation {number} ({counted[number].kind} {counted[number].path.name})"
        assert verify_folder(after)[1] == [], case
        found = held(Memory.open(after))
        assert pairs(50).sources[0] in {row[0] for row in found.values()}, case
        assert before.keys() <= found.keys(), case
        shutil.rmtree(scratch / "after")
        shutil.rmtree(root)


def test_power_cut_during_a_backup(scratch: Path, budget: Budget) -> None:
    """A folder with the name of the backup is complete, whenever the power is cut."""
    base = make_base(scratch / "base")
    expected = held(Memory.open(base))
    root = scratch / "target"
    root.mkdir()
    disk = Disk(root)
    complete = cuts = 0

    def after(operation: Operation) -> None:
        nonlocal complete, cuts
        disk.record(operation)
        if operation.kind == "rename" or budget.random.random() < min(1.0, 0.05 * budget.scale):
            left = disk.cut(scratch / "left", budget.random, budget.random.choice([0.0, 0.5, 1.0]))
            cuts += 1
            if (left / "copy").exists():
                complete += 1
                assert verify_folder(left / "copy")[1] == []
                assert held(Memory.open(left / "copy")) == expected
            shutil.rmtree(left)

    with observed(root, after=after):
        back_up(base, root / "copy")
    left = disk.cut(scratch / "left", budget.random, 0.0)
    assert held(Memory.open(left / "copy")) == expected
    budget.count("power cuts", cuts + 1)
    assert cuts


def test_a_kill_differs_from_a_raised_end(scratch: Path) -> None:
    """The layer ends a process before an operation, with a torn write if wanted: the operation is not done."""
    folder = make_base(scratch / "mine")

    def act() -> None:
        with observed(scratch, kill_at(1, 0.5)):
            record(folder, pairs(7))

    size = (folder / "journals").stat().st_size
    assert in_child(act) == -9
    assert size == (folder / "journals").stat().st_size
