"""Pairs that are added and removed one by one: visible at once, and sealed into segments later."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.errors import DamagedMemoryError, MemoryFolderError, MismatchError, UsageError
from ibidem.memory import Memory, SegmentData
from ibidem.memory.journal import Journal

from .samples import (
    IDENTITY,
    MOMENT,
    Row,
    append,
    files_of,
    one,
    put_coding,
    record,
    rows,
    rows_of,
    sample,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_recorded_pairs_are_visible_at_once_and_after_opening(path: Path) -> None:
    append(path, 1)
    reader = Memory.open(path)
    expected = rows_of(sample(1), 0) | rows_of(one(7, pairs=2), 3)
    written = record(path, one(7, pairs=2))
    for memory in (written, Memory.open(path), reader.refresh()):
        assert rows(memory) == expected
        assert (memory.pairs, memory.tail.pairs, memory.active_pairs) == (3, 2, 5)
    assert rows(reader) == rows_of(sample(1), 0)  # an open reader does not change
    assert reader.generation == written.generation
    assert written.verify() == []


def test_removed_pairs_disappear_at_once_and_keep_their_ids(path: Path) -> None:
    append(path, 1, 2)
    everything = rows_of(sample(1), 0) | rows_of(sample(2), 3) | rows_of(one(7), 6) | rows_of(one(8), 7)
    record(path, one(7))
    memory = record(path, one(8), removed=(2, 6))
    left = {id: row for id, row in everything.items() if id not in (2, 6)}
    assert rows(memory) == rows(Memory.open(path)) == left
    for id in (2, 6):
        with pytest.raises(UsageError, match=f"no pair with the id {id}: it was removed"):
            memory.number_of(id)
    with pytest.raises(UsageError, match="the ids so far end at 7"):
        memory.number_of(8)
    sealed = memory.sealed()
    assert not sealed.tail
    assert rows(sealed) == rows(Memory.open(path)) == left
    assert sealed.verify() == []
    with pytest.raises(UsageError, match="it was removed"):
        sealed.number_of(2)
    assert rows(record(path, one(9))) == left | rows_of(one(9), 8)  # no id is given twice


def test_removed_text_is_deleted_from_the_folder(path: Path) -> None:
    append(path, 1)
    record(path, replace(one(7), sources=["GEHEIM"]))
    secret = rows_of(sample(1), 0)[2][0].encode()
    memory = record(path, removed=(2, 3)).sealed()
    with memory.edit() as edit:
        edit.commit()  # the generation before is kept until the next commit
    assert not any(secret in content or b"GEHEIM" in content for content in files_of(path).values())


def test_invalid_changes_are_refused(path: Path) -> None:
    append(path, 1)
    before = files_of(path)
    for wrong, message in (
        (replace(one(7), keys=one(7).keys[:, :3]), "keys of 3 dimensions"),
        (replace(one(7), keys=None), "keys of no dimensions"),
        (one(7, compact=2), "compact keys of 2 dimensions"),
        (replace(one(7), values=one(7).values + 100), "vocabulary of 100"),
    ):
        with pytest.raises(MismatchError, match=message):
            record(path, wrong)
    for removed in ((3,), (-1,), (0, 0)):
        with pytest.raises(UsageError):
            record(path, removed=removed)
    assert files_of(path) == before


class Oracle:
    """The expected content of a memory: rows by id, in order."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.next_id = 0

    def add(self, data: SegmentData) -> None:
        self.rows |= rows_of(data, self.next_id)
        self.next_id += data.pairs


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 6), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(0, 20), st.integers(1, 4)),
        st.tuples(st.just("replace"), st.integers(0, 20), st.integers(1, 3)),
        st.tuples(st.just("seal"), st.just(0), st.just(0)),
        st.tuples(st.just("segment"), st.integers(1, 6), st.just(0)),
    ),
    max_size=10,
)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_order_of_changes_equals_the_reference(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "memory"
    memory = Memory.create(path, IDENTITY, created=MOMENT)
    oracle = Oracle()
    for step, number, count in steps:
        left = list(oracle.rows)
        if step == "add":
            memory = record(path, one(number, pairs=count))
            oracle.add(one(number, pairs=count))
        elif step in ("remove", "replace") and left:
            chosen = tuple(dict.fromkeys(left[(number + i) % len(left)] for i in range(count)))
            added = one(number, pairs=1) if step == "replace" else None
            memory = record(path, added, chosen)
            for id in chosen:
                del oracle.rows[id]
            if added is not None:
                oracle.add(added)
        elif step == "seal":
            memory = memory.sealed()
        elif step == "segment":
            with memory.edit() as edit:
                edit.append_segment(sample(number))
                memory = edit.commit()
            oracle.add(sample(number))
        assert memory.tail.next_id == oracle.next_id
    assert rows(memory) == rows(Memory.open(path)) == oracle.rows
    sealed = memory.sealed()
    assert rows(sealed) == oracle.rows
    assert sealed.verify() == []


def test_sealing_pruned_compacted_and_clustered_segments(path: Path) -> None:
    """Entries, tokens and pairs have different counts, and each has its own numbers."""
    memory = append(path, 1, 2, 3)
    with memory.edit() as edit:
        edit.put_array("compact", lambda start, stop: np.arange(start, stop)[:, None].repeat(2, 1).astype(np.int8))
        put_coding(edit, 2)
        edit.put_array("clusters", lambda start, stop: np.arange(start, stop, dtype=np.int32))
        memory = edit.commit()
    kept = np.arange(memory.entries) % 3 != 1
    with memory.edit() as edit:
        edit.keep_entries(kept)
        memory = edit.commit()
    alive = np.flatnonzero(kept)
    data = one(7, pairs=3, compact=2)
    by_id = {pair.id: pair for pair in memory.sentences()}
    record(path, data)
    sealed = record(path, removed=(0, 4, 9)).sealed()
    assert sealed.verify() == []
    expected = [entry for id, pair in by_id.items() if id not in (0, 4) for entry in alive[list(pair.entries)]]
    new = int(data.lengths[1:].sum())
    compact = sealed.search_keys.read(0, sealed.entries)[:, 0].tolist()
    assert compact == [*expected, *[7] * new]
    assert sealed.clusters().tolist() == [*expected, *[-1] * new]
    assert sealed.tokens - sealed.entries == sum(
        len(memory.tokens_of(id)) - len(pair.entries) for id, pair in by_id.items() if id not in (0, 4)
    )
    assert [pair.id for pair in sealed.sentences()] == [1, 2, 3, 5, 6, 7, 8, 10, 11]


def test_many_small_seals_do_not_make_many_segments(path: Path) -> None:
    for number in range(1, 18):
        memory = record(path, one(number)).sealed()
    assert rows(memory) == {id: row for number in range(1, 18) for id, row in rows_of(one(number), number - 1).items()}
    assert len(memory.manifest.segments) < 6


def test_serial_numbers_follow_removed_entries(path: Path) -> None:
    memory = append(path, 1, 2, 3)
    first = rows(memory)
    entries = {pair.id: pair.entries for pair in memory.sentences()}
    gone: list[int] = []
    serials = {id: list(entries[id]) for id in entries}
    for ids in ((7,), (0, 3), (8,)):
        memory = record(path, removed=ids).sealed()
        gone += [serial for id in ids for serial in serials[id]]
        assert memory.removed_entries.tolist() == gone
        assert memory.manifest.numbering == 1
        for pair in memory.sentences():
            assert list(pair.entries) == [serial - sum(g < serial for g in gone) for serial in serials[pair.id]]
            assert rows(memory)[pair.id] == first[pair.id]
    with memory.edit() as edit:
        edit.keep_entries(np.ones(memory.entries, bool))
        memory = edit.commit()
    assert memory.removed_entries.tolist() == []
    assert memory.manifest.numbering == memory.generation


def test_held_memory_stays_readable_after_other_commits(path: Path) -> None:
    append(path, 1, 2)
    known, held = Memory.open(path), Memory.open(path).pinned()
    everything = rows(Memory.open(path))
    for id in range(4):
        record(path, removed=(id,)).sealed()
    with pytest.raises(MemoryFolderError, match="was deleted, since newer generations"):
        rows(known)
    assert rows(held) == everything
    assert rows(known.pinned()) == rows(Memory.open(path))


def test_edit_seals_the_journal_first(path: Path) -> None:
    memory = append(path, 1)
    record(path, one(7), removed=(0,))
    with memory.edit() as edit:
        assert rows(edit.memory).keys() == {1, 2, 3}
        assert not edit.memory.tail
        assert edit.memory.generation == memory.generation + 1


def test_set_merged_after_entries_were_added_and_removed(path: Path) -> None:
    known = append(path, 1, 2)
    made_for = known.entries
    for number in (7, 8):
        record(path, one(number), removed=(number - 7,))
        with known.edit() as edit:
            edit.set_fitted(known)
            memory = edit.commit()
    assert memory.fitted_entries == made_for - len(memory.removed_entries)
    assert len(memory.removed_entries) > 0
    with memory.edit() as edit:
        edit.keep_entries(np.ones(memory.entries, bool))
        edit.commit()
        with pytest.raises(MismatchError, match="changed by another process"):
            edit.set_fitted(memory)


def test_restored_snapshot_has_later_additions_and_removals(path: Path) -> None:
    memory = append(path, 1, 2)
    record(path, one(6))  # sealed into the snapshot
    with memory.edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.put_artefact("index", "bin", b"of the pruned one", {})
        edit.commit()
    record(path, one(7), removed=(0,))
    Memory.open(path).sealed()
    record(path, one(8), removed=(7,))
    record(path, one(9))
    memory = Memory.open(path)
    with memory.edit() as edit:
        edit.restore_snapshot("unpruned")
        edit.forget_snapshot("unpruned")
        restored = edit.commit()
    expected = rows_of(sample(1), 0) | rows_of(sample(2), 3) | rows_of(one(6), 6)
    expected |= rows_of(one(8), 8) | rows_of(one(9), 9)
    del expected[0]
    assert rows(restored) == rows(Memory.open(path)) == expected
    assert restored.entries == restored.tokens
    assert restored.verify() == []
    assert not restored.tail
    assert rows(record(path, one(5))) == expected | rows_of(one(5), 10)
    with restored.edit() as edit:
        edit.commit()
    assert len(list((path / "journals").iterdir())) <= 2  # older journals were deleted with the snapshot


def test_restored_snapshot_drops_keys_that_later_pairs_lack(path: Path) -> None:
    memory = append(path, 1)
    with memory.edit() as edit:
        edit.put_array("compact", lambda start, stop: np.zeros((stop - start, 2), np.int8))
        put_coding(edit, 2)
        memory = edit.commit()
        edit.keep_snapshot("unpruned")
        edit.drop_array("keys")
        edit.commit()
    record(path, one(7, compact=2, keys=False))
    with Memory.open(path).edit() as edit:
        edit.restore_snapshot("unpruned")
        restored = edit.commit()
    assert not restored.layout.keys
    assert [pair.id for pair in restored.sentences()] == [0, 1, 2, 3]
    assert restored.verify() == []


def test_previous_manifest_loses_no_pair(path: Path) -> None:
    append(path, 1)
    record(path, one(7)).sealed()
    expected = rows(record(path, one(8)))
    (path / "manifest.json").write_bytes(b"damaged")
    with pytest.raises(DamagedMemoryError, match=r"repair --accept-loss` goes back to generation"):
        Memory.open(path)
    shutil.copyfile(path / "manifest.previous.json", path / "manifest.json")
    assert rows(Memory.open(path)) == expected
    assert rows(record(path, one(9))) == expected | rows_of(one(9), 5)
    assert rows(Memory.open(path).sealed()) == expected | rows_of(one(9), 5)


def test_readers_see_consistent_states_while_a_writer_records_and_seals(path: Path) -> None:
    """Every state that a reader gets was committed, and a reader never returns to an older state."""
    append(path, 1)
    allowed = [rows(Memory.open(path))]
    done = threading.Event()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            memory = Memory.open(path)
            reached = 0
            while not done.is_set():
                memory = memory.refresh()
                found = rows(memory)
                known = list(allowed)  # a state is listed before it is committed
                reached = next(i for i in range(reached, len(known)) if known[i] == found)
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=watch) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(2, 30):
        state = allowed[-1] | rows_of(one(number), number + 1)
        removed = (number - 1,) if number % 3 == 0 else ()
        for id in removed:
            state.pop(id)
        allowed.append(state)
        memory = record(path, one(number), removed)
        if number % 5 == 0:
            memory.sealed()
    done.set()
    for reader in readers:
        reader.join()
    assert not failures, failures
    assert rows(Memory.open(path)) == allowed[-1]


def test_refresh_without_changes_reads_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, 1)
    memory = record(path, one(7))
    read = Journal.read
    reads: list[Journal] = []
    monkeypatch.setattr(
        Journal, "read", lambda self, *args, **kwargs: reads.append(self) or read(self, *args, **kwargs)
    )
    assert memory.refresh() is memory
    assert Memory.open(path).refresh().active_pairs == 4
    assert len(reads) == 1  # by open
    record(path, one(8))
    assert memory.refresh().active_pairs == 5
    assert reads[-1].end == memory.tail.journals[-1].end  # only the new records
