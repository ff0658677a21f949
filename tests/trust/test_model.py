"""A memory behaves like a dictionary under any sequence of changes, crashes, backups and other processes."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ibidem.errors import UsageError
from ibidem.memory import Memory, back_up, repair_folder

from .operations import kill_at, observed
from .workload import Held, append, compact, create, held, in_child, merge, pairs, prune, record, restore, seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.memory import SegmentData

    from .conftest import Budget


class Comparison(RuleBasedStateMachine):
    """Compares a memory with a dictionary of its pairs by id: texts, origin, location and tokens."""

    def __init__(self) -> None:
        super().__init__()
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.root = Path(tempfile.mkdtemp(prefix="ibidem-model-", dir=place))
        self.folder = self.root / "mine"
        self.expected: Held = {}
        self.next_id = 0
        self.number = 0
        self.backups: list[tuple[Path, Held, int]] = []
        self.snapshot = False

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    @initialize()
    def start(self) -> None:
        create(self.folder)
        self.open = Memory.open(self.folder)

    def new_pairs(self, count: int) -> SegmentData:
        self.number += 1
        return pairs(self.number, count)

    def expect_added(self, data: SegmentData) -> None:
        offsets = data.offsets()
        for place in range(data.pairs):
            tokens = tuple(data.values[offsets[place] : offsets[place + 1]].tolist())
            texts = (data.sources[place], data.targets[place], data.origins[place], data.locations[place])
            self.expected[self.next_id + place] = (*texts, tokens)
        self.next_id += data.pairs

    def ids(self, data: st.DataObject, most: int) -> tuple[int, ...]:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.expected)), max_size=most, unique=True))
        return tuple(chosen)

    @rule(count=st.integers(1, 3))
    def add(self, count: int) -> None:
        data = self.new_pairs(count)
        record(self.folder, data)
        self.expect_added(data)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = self.ids(data, 2)
        record(self.folder, removed=gone)
        for id in gone:
            del self.expected[id]

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        gone, new = self.ids(data, 1), self.new_pairs(1)
        record(self.folder, new, gone)
        for id in gone:
            del self.expected[id]
        self.expect_added(new)

    @rule()
    def append_segment(self) -> None:
        memory = Memory.open(self.folder)
        if memory.layout.clusters:
            return
        if self.snapshot:
            with pytest.raises(UsageError, match="restored without this segment"):
                append(self.folder, 0)
            return
        self.number += 1
        append(self.folder, self.number)
        self.expect_added(pairs(self.number, 3))

    @rule()
    def seal(self) -> None:
        seal(self.folder)

    @rule()
    def merge(self) -> None:
        merge(self.folder)

    @rule()
    def cluster(self) -> None:
        if Memory.open(self.folder).sealed().entries:
            compact(self.folder)

    @precondition(lambda self: not self.snapshot)
    @rule()
    def prune(self) -> None:
        if Memory.open(self.folder).sealed().entries:
            prune(self.folder)
            self.snapshot = True

    @precondition(lambda self: self.snapshot)
    @rule()
    def restore(self) -> None:
        restore(self.folder)
        self.snapshot = False

    @rule()
    def back_up(self) -> None:
        target = self.root / f"backup-{len(self.backups)}"
        back_up(self.folder, target)
        self.backups.append((target, dict(self.expected), self.next_id))

    @precondition(lambda self: self.backups)
    @rule(data=st.data())
    def restore_backup(self, data: st.DataObject) -> None:
        source, expected, next_id = data.draw(st.sampled_from(self.backups))
        shutil.rmtree(self.folder)
        back_up(source, self.folder)
        self.expected, self.next_id = dict(expected), next_id
        self.snapshot = bool(Memory.open(self.folder).snapshots())
        self.open = Memory.open(self.folder)

    @rule(number=st.integers(0, 60), share=st.sampled_from([0.0, 0.5]), kind=st.sampled_from(["add", "seal", "prune"]))
    def crash(self, number: int, share: float, kind: str) -> None:
        """Kill a change before a file operation: all of it or nothing of it is there."""
        data = self.new_pairs(2)
        act: dict[str, Callable[[], object]] = {
            "add": lambda: record(self.folder, data),
            "seal": lambda: seal(self.folder),
            "prune": lambda: merge(self.folder),
        }

        def killed() -> None:
            with observed(self.root, kill_at(number, share)):
                act[kind]()

        status = in_child(killed)
        assert status in (0, -signal.SIGKILL)
        found = held(Memory.open(self.folder))
        if kind == "add" and self.next_id in found:
            self.expect_added(data)
        assert status or kind != "add" or self.next_id - data.pairs in found

    @rule(count=st.integers(1, 2))
    def second_process(self, count: int) -> None:
        """Another process changes the memory while this one has it open."""
        data = self.new_pairs(count)
        before = self.open.refresh()

        def act() -> None:
            record(self.folder, data)
            if count == 2:
                seal(self.folder)

        assert in_child(act) == 0
        assert before.active_pairs == len(self.expected)
        self.expect_added(data)

    @rule()
    def repair(self) -> None:
        done = repair_folder(self.folder, accept_loss=True)
        assert (done.mended, done.lost, done.left) == ([], [], [])

    @invariant()
    def holds_what_is_expected(self) -> None:
        if not hasattr(self, "open"):
            return
        self.open = self.open.refresh()
        fresh = Memory.open(self.folder)
        for memory in (self.open, fresh):
            assert {id: row[:5] for id, row in held(memory).items()} == self.expected
            assert memory.tail.next_id == self.next_id
        assert fresh.verify() == []


EXAMPLES, STEPS = 6, 20


def test_memory_is_a_dictionary(budget: Budget) -> None:
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate, *([Phase.shrink] if os.environ.get("IBIDEM_TRUST_SHRINK") != "0" else [])],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    for number in budget.rounds(1):
        machine = type("Comparison", (Comparison,), {"_hypothesis_internal_use_seed": 1000 * budget.seed + number})
        run_state_machine_as_test(machine, settings=chosen)  # type: ignore[no-untyped-call]
        budget.count("sequences of changes", EXAMPLES)
        budget.count("steps of sequences, at most", EXAMPLES * STEPS)
