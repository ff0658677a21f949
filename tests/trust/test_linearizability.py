"""Readers and writers in several processes: every read is one state of one total order of the changes, at its time."""

from __future__ import annotations

import json
import os
import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import LockedMemoryError, MemoryFolderError
from ibidem.memory import Memory, back_up, verify_folder

from .workload import create, pairs

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Budget

WRITERS, READERS = 3, 2


class Change(NamedTuple):
    """An acknowledged change: it adds the pair with an id and removes another, or none (-1)."""

    begin: float
    end: float
    id: int
    removed: int


class Read(NamedTuple):
    """A read: the ids that it found."""

    begin: float
    end: float
    ids: frozenset[int]


def write(folder: Path, number: int, changes: int) -> list[list[float]]:
    memory = Memory.open(folder)
    mine: list[int] = []
    done = []
    for change in range(changes):
        removed = mine.pop(0) if len(mine) > 2 else -1
        begin = time.monotonic()
        with memory.writing(60) as writer:
            memory = writer.record(pairs(1000 * number + change), (removed,) if removed >= 0 else ())
            id = memory.tail.next_id - 1
        done.append([begin, time.monotonic(), id, removed])
        mine.append(id)
        if change % 5 == 4:
            try:
                memory = memory.sealed()
            except LockedMemoryError:
                memory = memory.refresh()
    return done


def read(folder: Path, number: int, stop: Path) -> list[list[object]]:
    """Read again and again: with a fresh memory, with one that is refreshed, and through a backup."""
    memory = Memory.open(folder)
    done: list[list[object]] = []
    while not stop.exists():
        begin = time.monotonic()
        try:
            if len(done) % 4 == 3:
                copy = folder.with_name(f"copy-{number}-{len(done)}")
                memory = Memory.open(back_up(folder, copy).path)
                found = [pair.id for pair in memory.sentences()]
                memory = Memory.open(folder)
            else:
                memory = Memory.open(folder) if len(done) % 2 else memory.pinned()
                found = [pair.id for pair in memory.sentences()]
        except MemoryFolderError as error:
            if not re.search("open the memory again|changes faster than it can be copied", str(error)):
                raise
            memory = Memory.open(folder)  # two generations were committed since it was opened
            continue
        done.append([begin, time.monotonic(), found])
    return done


def test_reads_are_linearizable(scratch: Path, budget: Budget) -> None:
    for number in budget.rounds(1):
        folder = scratch / f"run-{number}" / "mine"
        create(folder)
        stop = scratch / f"stop-{number}"
        parts = [scratch / f"part-{number}-{place}.json" for place in range(WRITERS + READERS)]
        children = []
        for place, part in enumerate(parts):
            child = os.fork()
            if child == 0:
                status = 70
                try:
                    found = write(folder, place, 16) if place < WRITERS else read(folder, place, stop)
                    part.write_text(json.dumps(found))
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children[:WRITERS]]
        stop.touch()
        statuses += [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children[WRITERS:]]
        assert statuses == [0] * len(children)
        histories = [json.loads(part.read_text()) for part in parts]
        changes = [Change(*row) for history in histories[:WRITERS] for row in history]
        reads = [Read(row[0], row[1], frozenset(row[2])) for history in histories[WRITERS:] for row in history]
        check_history(changes, reads)
        assert verify_folder(folder)[1] == []
        budget.count("linearizability: changes", len(changes))
        budget.count("linearizability: reads", len(reads))
        assert len(reads) > READERS


def check_history(changes: list[Change], reads: list[Read]) -> None:
    """Check that each read equals the state after a prefix of the changes that is possible at its time.

    Ids are given in the order of the changes, so the order is known.
    """
    order = sorted(changes, key=lambda change: change.id)
    assert [change.id for change in order] == list(range(len(order))), "an id is missing or given twice"
    states = [frozenset[int]()]
    for change in order:
        states.append((states[-1] | {change.id}) - {change.removed})
    for first, second in pairwise(order):
        assert first.begin < second.end, "a change has a lower id than one that ended before it began"
    number_of = {state: number for number, state in enumerate(states)}
    seen: list[tuple[float, int]] = []
    for read_ in sorted(reads, key=lambda found: found.begin):
        assert read_.ids in number_of, f"a read is no state: {sorted(read_.ids)}"
        number = number_of[read_.ids]
        least = max((place + 1 for place, change in enumerate(order) if change.end < read_.begin), default=0)
        most = min((place for place, change in enumerate(order) if change.begin > read_.end), default=len(order))
        assert least <= number <= most, f"a read has {number} changes, and {least} to {most} are possible"
        assert all(other <= number for end, other in seen if end < read_.begin), "a later read is older"
        seen.append((read_.end, number))


def test_the_check_can_fail() -> None:
    changes = [Change(0, 1, 0, -1), Change(2, 3, 1, -1)]
    check_history(changes, [Read(1.5, 1.6, frozenset({0})), Read(2.5, 2.6, frozenset({0, 1}))])
    for wrong in (
        [Read(1.5, 1.6, frozenset())],  # older than an acknowledged change
        [Read(1.5, 1.6, frozenset({0, 1}))],  # a change that did not begin yet
        [Read(4, 5, frozenset({1}))],  # no state
        [Read(2.2, 2.4, frozenset({0, 1})), Read(2.5, 2.6, frozenset({0}))],  # back in time
    ):
        try:
            check_history(changes, wrong)
        except AssertionError:
            continue
        raise AssertionError(f"{wrong} was accepted")
