"""Pairs added and removed one by one: there when the call returns, gone when it returns, and sealed without a trace."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibidem.errors import DamagedMemoryError, LockedMemoryError, MemoryFolderError, MismatchError, UsageError
from ibidem.memory import Memory, SegmentData
from ibidem.memory.journal import Journal

from .samples import IDENTITY, MOMENT, append, files_of, sample
from .test_crash import hook
from .test_manifest import rewrite

if TYPE_CHECKING:
    from pathlib import Path

Row = tuple[str, str, str, int, list[int], list[list[float]]]


def one(number: int, *, pairs: int = 1, compact: int | None = None, keys: bool = True) -> SegmentData:
    """Pairs to add, always the same for a number."""
    data = sample(number, pairs=pairs)
    wide = None if compact is None else np.full((data.entries, compact), number, np.float16)
    return replace(data, keys=data.keys if keys else None, compact=wide)


def record(path: Path, added: SegmentData | None = None, removed: tuple[int, ...] = ()) -> Memory:
    with Memory.open(path).writing() as writer:
        return writer.record(added, removed)


def rows(memory: Memory) -> dict[int, Row]:
    """All that a memory holds of every pair, by id, entries read through their numbers."""
    keys = np.concatenate([memory.keys.read(0, memory.entries), memory.tail_keys()])
    values = np.concatenate([memory.values(), memory.tail.values])
    found = {}
    for pair in memory.sentences():
        span = slice(pair.entries.start, pair.entries.stop)
        found[pair.id] = (
            *(pair.source, pair.target, pair.origin, pair.location),
            values[span].tolist(),
            keys[span].tolist(),
        )
        for position, entry in enumerate(pair.entries):
            assert memory.locate(entry) == (memory.number_of(pair.id), position)
        number = memory.number_of(pair.id)
        assert memory.sentence(number) == pair
        assert memory.tokens_of(number).tolist() == values[span].tolist()
    assert len(found) == memory.living_pairs
    return found


def rows_of(data: SegmentData, first_id: int) -> dict[int, Row]:
    offsets = data.offsets()
    assert data.keys is not None
    return {
        first_id + i: (
            *(data.sources[i], data.targets[i], data.origins[i], data.locations[i]),
            data.values[offsets[i] : offsets[i + 1]].tolist(),
            data.keys[offsets[i] : offsets[i + 1]].tolist(),
        )
        for i in range(data.pairs)
    }


def test_what_was_recorded_is_there_at_once_and_after_opening(path: Path) -> None:
    append(path, 1)
    reader = Memory.open(path)
    expected = rows_of(sample(1), 0) | rows_of(one(7, pairs=2), 3)
    written = record(path, one(7, pairs=2))
    for memory in (written, Memory.open(path), reader.refresh()):
        assert rows(memory) == expected
        assert (memory.pairs, memory.tail.pairs, memory.living_pairs) == (3, 2, 5)
    assert rows(reader) == rows_of(sample(1), 0)  # a reader stays what it was
    assert reader.generation == written.generation
    assert written.verify() == []


def test_what_was_removed_is_gone_at_once_and_keeps_its_id(path: Path) -> None:
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


def test_removed_text_is_no_longer_in_the_folder(path: Path) -> None:
    append(path, 1)
    record(path, replace(one(7), sources=["GEHEIM"]))
    secret = rows_of(sample(1), 0)[2][0].encode()
    memory = record(path, removed=(2, 3)).sealed()
    with memory.edit() as edit:
        edit.commit()  # the generation before is kept until the next commit
    assert not any(secret in content or b"GEHEIM" in content for content in files_of(path).values())


def test_pairs_are_found_by_text_and_by_origin(path: Path) -> None:
    append(path, 1, 2)
    twin = replace(one(9), sources=[sample(1).sources[2]], targets=[sample(1).targets[2]], origins=["by hand"])
    memory = record(path, twin)
    assert memory.find(sample(1).sources[2], sample(1).targets[2]) == [2, 6]
    assert memory.find(sample(1).sources[2], sample(1).targets[1]) == []
    assert memory.find("", "") == []
    assert memory.find("\ud800", "x") == []
    assert memory.find_origin("by hand") == [6]
    assert memory.find_origin("nowhere") == []
    expected = [id for id, row in rows(memory).items() if row[2] == "file-1.tsv"]
    assert memory.find_origin("file-1.tsv") == expected
    memory = record(path, removed=(2, expected[0]))
    assert memory.find(sample(1).sources[2], sample(1).targets[2]) == [6]
    sealed = memory.sealed()
    assert sealed.find(sample(1).sources[2], sample(1).targets[2]) == [6]
    assert sealed.find_origin("file-1.tsv") == [id for id in expected[1:] if id != 2]


def test_many_pairs_of_one_length_are_told_apart(path: Path) -> None:
    names = [f"Satz {number:04d}" for number in range(500)]
    data = sample(3, pairs=500)
    with Memory.open(path).edit() as edit:
        edit.append_segment(replace(data, sources=names, targets=names[::-1]))
        memory = edit.commit()
    assert [memory.find(names[i], names[499 - i]) for i in range(0, 500, 37)] == [[i] for i in range(0, 500, 37)]
    assert memory.find(names[3], names[3]) == []


def test_what_does_not_fit_is_refused_and_changes_nothing(path: Path) -> None:
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
    """What a memory should hold: rows by id, in order."""

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
def test_any_order_of_changes_gives_what_it_should(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
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
    """Entries, tokens and pairs part ways: numbers must be those of what is left of each."""
    memory = append(path, 1, 2, 3)
    with memory.edit() as edit:
        edit.put_array("compact", lambda start, stop: np.arange(start, stop)[:, None].repeat(2, 1).astype(np.float16))
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


def test_serial_numbers_tell_where_entries_have_gone(path: Path) -> None:
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


def test_a_memory_that_is_held_can_be_read_whatever_others_commit(path: Path) -> None:
    append(path, 1, 2)
    known, held = Memory.open(path), Memory.open(path).held()
    everything = rows(Memory.open(path))
    for id in range(4):
        record(path, removed=(id,)).sealed()
    with pytest.raises(MemoryFolderError, match="was deleted, since newer generations"):
        rows(known)
    assert rows(held) == everything
    assert rows(known.held()) == rows(Memory.open(path))


def test_an_edit_seals_first_so_no_stage_misses_a_pair(path: Path) -> None:
    memory = append(path, 1)
    record(path, one(7), removed=(0,))
    with memory.edit() as edit:
        assert rows(edit.memory).keys() == {1, 2, 3}
        assert not edit.memory.tail
        assert edit.memory.generation == memory.generation + 1


def test_what_was_made_for_some_entries_is_stored_after_others_came_and_went(path: Path) -> None:
    known = append(path, 1, 2)
    made_for = known.entries
    for number in (7, 8):
        record(path, one(number), removed=(number - 7,))
        with known.edit() as edit:
            edit.set_merged(known)
            memory = edit.commit()
    assert memory.merged_entries == made_for - len(memory.removed_entries)
    assert len(memory.removed_entries) > 0
    with memory.edit() as edit:
        edit.keep_entries(np.ones(memory.entries, bool))
        edit.commit()
        with pytest.raises(MismatchError, match="changed by another process"):
            edit.set_merged(memory)


def test_a_snapshot_comes_back_with_what_was_added_and_without_what_was_removed(path: Path) -> None:
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
    assert len(list((path / "journals").iterdir())) <= 2  # the older ones went with the snapshot


def test_a_snapshot_with_keys_comes_back_without_those_that_later_pairs_lack(path: Path) -> None:
    memory = append(path, 1)
    with memory.edit() as edit:
        edit.put_array("compact", lambda start, stop: np.zeros((stop - start, 2), np.float16))
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


def test_going_back_to_the_previous_manifest_loses_no_pair(path: Path) -> None:
    append(path, 1)
    record(path, one(7)).sealed()
    expected = rows(record(path, one(8)))
    (path / "manifest.json").write_bytes(b"damaged")
    with pytest.raises(DamagedMemoryError, match=r"copy manifest\.previous\.json over manifest\.json"):
        Memory.open(path)
    shutil.copyfile(path / "manifest.previous.json", path / "manifest.json")
    assert rows(Memory.open(path)) == expected
    assert rows(record(path, one(9))) == expected | rows_of(one(9), 5)
    assert rows(Memory.open(path).sealed()) == expected | rows_of(one(9), 5)


@pytest.mark.parametrize("format", [1, 2, 3])
def test_a_memory_of_an_older_format_is_read_as_it_is_and_upgraded_by_the_first_pair(path: Path, format: int) -> None:
    append(path, 1)

    def older(document: dict[str, Any]) -> None:
        document["format"] = format
        del document["snapshots"]
        if format < 3:
            del document["journal"], document["numbering"]
        if format == 1:
            del document["layout"], document["identity"]["source_prefix"]
            for segment in document["segments"]:
                del segment["tokens"]

    rewrite(path, older)
    (path / "journals.json").unlink()
    before = files_of(path)
    memory = Memory.open(path)
    assert rows(memory) == rows_of(sample(1), 0)
    assert (memory.manifest.format, files_of(path)) == (format, before)
    memory = record(path, one(7))
    assert memory.manifest.format == 4
    assert rows(Memory.open(path)) == rows_of(sample(1), 0) | rows_of(one(7), 3)


def test_a_torn_record_is_cut_off_and_a_whole_one_taken_over(path: Path) -> None:
    """A writer killed between the record and its committed end leaves a part of the record, or all of it."""
    append(path, 1)
    ends_file = path / "journals.json"
    places = [0]
    states, ends = [rows(Memory.open(path))], [ends_file.read_bytes()]
    for number, removed in ((7, ()), (8, (0, 3)), (9, ())):
        memory = record(path, one(number), removed)
        states.append(rows(memory))
        ends.append(ends_file.read_bytes())
        places.append(memory.tail.journals[-1].end)
    file = memory.tail.journals[-1].path
    whole = file.read_bytes()
    assert len(whole) == places[-1]
    for committed in range(3):
        ends_file.write_bytes(ends[committed])
        for cut in range(places[committed], places[committed + 1] + 1, 7):
            for rest in (b"", b"\0" * 50, whole[:3]):
                file.write_bytes(whole[:cut] + rest)
                reached = max(i for i, end in enumerate(places) if end <= cut)
                assert rows(Memory.open(path)) == states[reached]
    ends_file.write_bytes(ends[2])
    file.write_bytes(whole[: places[2] + 30])
    assert Memory.open(path).verify() == []
    again = record(path, one(9))
    assert rows(again) == states[3]
    assert file.read_bytes() == whole
    assert ends_file.read_bytes() == ends[3]


def test_a_changed_byte_before_the_end_is_damage(path: Path) -> None:
    append(path, 1)
    for number in (7, 8, 9):
        memory = record(path, one(number))
    file = memory.tail.journals[-1].path
    whole = bytearray(file.read_bytes())
    last = len(whole) - len(whole) // 3
    for place in range(0, last - 100, 11):
        damaged = whole.copy()
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(DamagedMemoryError, match=r"000001\.log is damaged"):
            Memory.open(path)
        assert [damage.file for damage in memory.verify()] == ["journals/000001.log"]
        with pytest.raises(DamagedMemoryError):
            record(path, one(5))
        assert file.read_bytes() == bytes(damaged)  # nobody cuts off what was promised


def test_a_record_that_says_what_cannot_be_is_damage(path: Path) -> None:
    append(path, 1)
    memory = record(path, one(7))
    journal = memory.tail.journals[-1]
    from ibidem.memory import journal as module

    for content in (b"", b"\xff\xff\xff\xff", b"\x02\0\0\0[]", b'\x0e\0\0\0{"removed": 1}'):
        whole = journal.path.read_bytes()
        journal.path.write_bytes(whole + module._frame(content, len(whole)))
        with pytest.raises(DamagedMemoryError, match=r"000001\.log is damaged"):
            Memory.open(path)
        journal.path.write_bytes(whole)
    assert Memory.open(path).living_pairs == 4


def test_a_failed_write_leaves_what_was_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, 1)
    record(path, one(7))
    before = files_of(path)

    def fail(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        hook(patch, fail)
        with pytest.raises(MemoryFolderError, match="No space left"):
            record(path, one(8))
    assert files_of(path) == before
    assert rows(record(path, one(8))).keys() == {0, 1, 2, 3, 4}


def check_kills(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, every: int) -> None:
    """Killed before a step: either the state before or the one after, whole, and the next writer goes on from it."""
    memory = append(path, 1, 2)
    with memory.edit() as edit:
        edit.keep_snapshot("kept")
        edit.keep_entries(np.arange(memory.entries) % 2 == 0)
        edit.commit(MOMENT)
    if change != "first":
        record(path, one(7), removed=(0,))

    def act(folder: Path) -> None:
        if change in ("record", "first"):
            record(folder, one(8), removed=(1,))
        elif change == "seal":
            Memory.open(folder).sealed()
        else:
            with Memory.open(folder).edit() as edit:
                edit.restore_snapshot("kept")
                edit.forget_snapshot("kept")
                edit.commit(MOMENT)

    finished = tmp_path / "finished"
    shutil.copytree(path, finished)
    steps: list[str] = []
    with monkeypatch.context() as patch:
        hook(patch, steps.append)
        act(finished)
    before, after = pairs_of(Memory.open(path)), pairs_of(Memory.open(finished))
    assert len(steps) >= (1 if change == "record" else 2)
    for last in range(0, len(steps), every):
        folder = tmp_path / f"killed-{last}"
        shutil.copytree(path, folder)
        child = os.fork()
        if child == 0:
            left = iter(range(last))
            hook(monkeypatch, lambda _: None if next(left, None) is not None else os._exit(9))  # noqa: B023
            act(folder)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        memory = Memory.open(folder)
        assert memory.verify() == []
        assert pairs_of(memory) in (before, after)
        added = {id: row[:4] for id, row in rows_of(one(9), memory.tail.next_id).items()}
        assert pairs_of(record(folder, one(9))) == pairs_of(memory) | added
        assert pairs_of(Memory.open(folder).sealed()) == pairs_of(memory) | added


@pytest.mark.parametrize(("change", "every"), [("record", 1), ("first", 1), ("seal", 7), ("restore", 13)])
def test_killed_at_any_step(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, every: int
) -> None:
    check_kills(path, tmp_path, monkeypatch, change, every)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["seal", "restore"])
def test_killed_at_every_step(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    check_kills(path, tmp_path, monkeypatch, change, 1)


def pairs_of(memory: Memory) -> dict[int, tuple[Any, ...]]:
    return {pair.id: (pair.source, pair.target, pair.origin, pair.location) for pair in memory.sentences()}


def test_readers_see_whole_states_while_a_writer_records_and_seals(path: Path) -> None:
    """Every view that a reader gets is one that was committed, and views never go back."""
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
                known = list(allowed)  # a state is noted before it is committed
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


def test_looking_for_news_is_cheap(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, 1)
    memory = record(path, one(7))
    read = Journal.read
    reads: list[Journal] = []
    monkeypatch.setattr(
        Journal, "read", lambda self, *args, **kwargs: reads.append(self) or read(self, *args, **kwargs)
    )
    assert memory.refresh() is memory
    assert Memory.open(path).refresh().living_pairs == 4
    assert len(reads) == 1  # by open
    record(path, one(8))
    assert memory.refresh().living_pairs == 5
    assert reads[-1].end == memory.tail.journals[-1].end  # only what is new


def test_a_writer_waits_for_another_one(path: Path) -> None:
    append(path, 1)
    memory = Memory.open(path)
    with memory.edit():
        started = time.monotonic()
        with pytest.raises(LockedMemoryError), memory.writing(patience=0.05):
            pass
        assert time.monotonic() - started >= 0.05
    released = threading.Event()

    def hold() -> None:
        with memory.edit():
            released.set()
            time.sleep(0.1)

    other = threading.Thread(target=hold)
    other.start()
    released.wait()
    with memory.writing() as writer:
        writer.record(one(7))
    other.join()
    assert Memory.open(path).living_pairs == 4
