"""Every file operation of every change fails in turn: the memory stays whole, and the error says what happened."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import CommittedError, IbidemError
from ibidem.memory import Memory, verify_folder

from .operations import count_operations, fail_at, observed
from .workload import OPERATIONS, copy, held, make_base_of

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Budget

KINDS = ("EIO", "ENOSPC", "torn", "short")


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_fault_at_every_call(scratch: Path, budget: Budget, name: str) -> None:
    base = make_base_of(name, scratch / "base")
    operation = OPERATIONS[name]
    finished = copy(base, scratch / "finished" / "mine")
    steps = count_operations(finished.parent, lambda: operation(finished))
    total = len(steps)
    assert total > 3
    before = held(Memory.open(base)) if name != "create" else {}
    after = held(Memory.open(finished))
    cases = [
        (number, kind, lasting)
        for number in range(total)
        for kind in KINDS
        for lasting in (False, True)
        # Where nothing is written, these two are ENOSPC and no fault.
        if kind not in ("torn", "short") or steps[number].kind == "write"
    ]
    budget.count("cases of faults", len(cases))
    for index in budget.chosen(len(cases), 10):
        if budget.over:
            break
        number, kind, lasting = cases[index]
        shutil.rmtree(scratch / "faulty", ignore_errors=True)
        folder = copy(base, scratch / "faulty" / "mine")
        error: IbidemError | None = None
        with observed(folder.parent, fail_at(number, kind, lasting=lasting)):
            try:
                operation(folder)
            except IbidemError as raised:
                error = raised
        case = f"{name}: {kind} at operation {number} of {total}{' and after it' if lasting else ''}: {error}"
        budget.count("faults")
        budget.count(f"faults of {name}")
        check(folder, name, error, before, after, case)
        if kind == "short":
            assert error is None, case
        if error is not None and not isinstance(error, CommittedError):
            assert "space" in str(error) or "Input/output error" in str(error), case
        again(folder, name, before, after, case)


def check(folder: Path, name: str, error: IbidemError | None, before: object, after: object, case: str) -> None:
    """Check that nothing is damaged, and that the state is the one that the error implies."""
    if not Memory.exists(folder):
        assert name == "create", case
        assert error is not None, case
        return
    assert verify_folder(folder)[1] == [], case
    found = held(Memory.open(folder))
    if name == "backup":
        assert found == before, case
        target = folder.with_name("copy")
        assert target.exists() == (error is None or isinstance(error, CommittedError)), case
        if target.exists():
            assert held(Memory.open(target)) == before, case
            assert verify_folder(target)[1] == [], case
        return
    if error is None:
        assert found == after, case
    elif "may be recorded or not" in str(error):
        assert "and after it" in case  # the removal of the record failed too
        assert found in (before, after) or name == "import", case
    elif name in ("add", "remove", "replace"):
        assert found == (after if isinstance(error, CommittedError) else before), case
    elif name not in ("import", "create"):  # these have several changes
        assert found in (before, after), case


def again(folder: Path, name: str, before: object, after: object, case: str) -> None:
    """Check that the next writer can do the change, if it was not done."""
    if name == "backup":
        shutil.rmtree(folder.with_name("copy"), ignore_errors=True)
    if name == "create" or (Memory.exists(folder) and held(Memory.open(folder)) == before and name != "import"):
        OPERATIONS[name](folder)
        if name != "create":
            assert held(Memory.open(folder)) == after, case
        assert verify_folder(folder)[1] == [], case
