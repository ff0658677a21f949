"""Journals: torn and damaged records, committed ends, and older formats."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import (
    CommittedError,
    DamagedMemoryError,
    MemoryFolderError,
)
from ibidem.memory import Memory, repair_folder, verify_folder
from ibidem.memory.journal import Journal

from .samples import (
    ENDS,
    IDENTITY,
    JOURNAL,
    MOMENT,
    Case,
    append,
    files_of,
    flips,
    hook,
    one,
    pairs_of,
    record,
    rows,
    sample,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_torn_record_is_truncated_and_complete_one_accepted(path: Path) -> None:
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


def test_changed_byte_before_the_end_is_damage(path: Path) -> None:
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
        assert file.read_bytes() == bytes(damaged)  # acknowledged records are not truncated


def test_invalid_record_with_valid_checksum_is_damage(path: Path) -> None:
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
    assert Memory.open(path).active_pairs == 4


def test_failed_write_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def check_found(case: Case, name: str, content: bytes | None) -> None:
    """Replace a file, and check that `verify_folder` and `Memory.open` detect it and leave it unchanged."""
    file = case.path / name
    good = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert [damage.file for damage in verify_folder(case.path)[1]] == [name]
    with pytest.raises(DamagedMemoryError, match="--accept-loss") as caught:
        Memory.open(case.path)
    assert file.name in str(caught.value)
    assert (file.read_bytes() if file.exists() else None) == content
    file.write_bytes(good)


def check_refused(case: Case, name: str, content: bytes | None) -> None:
    """Replace a file, and check that a process that has the memory open refuses to write to it."""
    memory = Memory.open(case.path)
    file = case.path / name
    good = file.read_bytes()
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    before = files_of(case.path)
    with pytest.raises(DamagedMemoryError), memory.writing() as writer:
        writer.record(one(5))
    assert files_of(case.path) == before
    file.write_bytes(good)


def test_flipped_bit_in_the_last_record_is_detected(case: Case) -> None:
    """Every byte of the frame and every fifth after it; the slow test below covers all bits."""
    content = (case.path / JOURNAL).read_bytes()
    start = case.places[2] + 12
    for places in (
        range(case.places[2], start),
        range(start, case.places[3], 5),
        range(case.places[3] - 1, start, -97),
    ):
        for damaged in flips(content, places):
            check_found(case, JOURNAL, damaged)


def test_flipped_bit_in_an_earlier_record_is_detected(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    for damaged in flips(content, range(0, case.places[2], 11)):
        check_found(case, JOURNAL, damaged)


@pytest.mark.slow
def test_any_flipped_bit_of_a_journal_is_detected(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        check_found(case, JOURNAL, bytes(changed))


def test_truncated_journal_is_detected(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    about = {place + offset for place in (17, *case.places) for offset in (-1, 0, 1, 11, 12, 13)}
    for length in sorted(about.union(range(0, len(content), 17)) & {*range(len(content))}):
        check_found(case, JOURNAL, content[:length])


@pytest.mark.slow
def test_journal_truncated_to_any_length_is_detected(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    for length in range(len(content)):
        check_found(case, JOURNAL, content[:length])


def test_missing_or_overwritten_journal_is_detected(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    random = Random(3)
    others = [None, b"", bytes(len(content)), content[1:], content[::-1], content[: case.places[1]] * 3]
    others += [random.randbytes(size) for size in (1, 17, 100, len(content), 2 * len(content))]
    others += [content[:place] + random.randbytes(len(content) - place) for place in (5, 17, *case.places[1:-1])]
    others += [content[:place] + content[place + 8 :] for place in range(0, len(content), 97)]
    for other in others:
        check_found(case, JOURNAL, other)
        check_refused(case, JOURNAL, other) if other is None or len(other) < len(content) else None
    shutil.rmtree(case.path / "journals")
    assert [damage.file for damage in verify_folder(case.path)[1]] == [JOURNAL]
    with pytest.raises(DamagedMemoryError, match=r"000001\.log is damaged: the file is missing, and 3 records"):
        Memory.open(case.path)


def test_older_copy_of_a_journal_is_detected(case: Case) -> None:
    for state in case.states[1:-1]:
        check_found(case, JOURNAL, state[JOURNAL])
        check_refused(case, JOURNAL, state[JOURNAL])


def test_journal_of_another_memory_is_detected(case: Case, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Memory.create(other, IDENTITY, created=MOMENT)
    for number in (8, 7, 9):
        record(other, one(number))
    mine, theirs = (folder / JOURNAL for folder in (case.path, other))
    check_found(case, JOURNAL, theirs.read_bytes())
    swapped = tmp_path / "swapped"
    Memory.create(swapped, IDENTITY, created=MOMENT)
    for number, removed in ((7, ()), (8, ()), (9, ())):  # of the same length, except for the removed id
        record(swapped, one(number), removed)
    assert mine.read_bytes()[: case.places[1]] == (swapped / JOURNAL).read_bytes()[: case.places[1]]
    check_found(case, JOURNAL, (swapped / JOURNAL).read_bytes())


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_any_damage_of_the_committed_ends_is_detected(case: Case, step: int) -> None:
    content = (case.path / ENDS).read_bytes()
    for damaged in flips(content, range(0, len(content), step)):
        check_found(case, ENDS, damaged)
    for length in {*range(0, len(content), step), len(content) - 1}:
        check_found(case, ENDS, content[:length])
    for other in (None, content + b"\0", b"{}", b"[]"):
        check_refused(case, ENDS, other)
    check_found(case, ENDS, None)


def test_older_copy_of_the_committed_ends_is_found_and_loses_no_record(case: Case) -> None:
    """The records beyond it are complete: a repair or the next writer commits them."""
    expected = pairs_of(Memory.open(case.path))
    for kept in range(2):
        (case.path / ENDS).write_bytes(case.states[kept][ENDS])
        with pytest.raises(DamagedMemoryError, match=r"journals\.json is damaged: it is older than .*ibidem repair"):
            Memory.open(case.path)
        assert [damage.file for damage in verify_folder(case.path)[1]] == [ENDS]
    assert [row.file for row in repair_folder(case.path).mended] == [ENDS]
    assert pairs_of(Memory.open(case.path)) == expected
    (case.path / ENDS).write_bytes(case.states[2][ENDS])  # as after a kill before the commit of the last record
    assert pairs_of(Memory.open(case.path)) == expected
    memory = record(case.path, one(5))
    assert pairs_of(memory).keys() == pairs_of(Memory.open(case.path)).keys() == {*expected, 3}
    assert memory.verify() == []
    assert json.loads((case.path / ENDS).read_text("utf-8"))["journals"][0]["records"] == 4


def test_old_copy_of_the_manifest_is_detected(path: Path) -> None:
    append(path, 1)
    old = (path / "manifest.json").read_bytes()
    for number in (7, 8, 9):
        record(path, one(number)).sealed()
    with Memory.open(path).edit() as edit:
        edit.commit()
    (path / "manifest.json").write_bytes(old)
    with pytest.raises(DamagedMemoryError, match=r"manifest\.json is damaged: it is an old copy: it has generation 2"):
        Memory.open(path)
    assert "manifest.json" in [damage.file for damage in verify_folder(path)[1]]


def test_open_reader_and_writer_detect_a_truncated_journal(case: Case) -> None:
    memory = Memory.open(case.path)
    (case.path / JOURNAL).write_bytes((case.path / JOURNAL).read_bytes()[:-1])
    with pytest.raises(DamagedMemoryError, match=r"000001\.log is damaged: it has \d+ bytes, and 3 records"):
        memory.refresh()


def test_newer_format_of_committed_ends_is_refused(case: Case) -> None:
    from ibidem.memory.json_document import encode_document

    (case.path / ENDS).write_bytes(encode_document({"format": 2, "first": 1, "journals": []}, "it"))
    with pytest.raises(MemoryFolderError, match="upgrade ibidem") as caught:
        Memory.open(case.path)
    assert not isinstance(caught.value, DamagedMemoryError)


def test_committed_ends_of_sealed_journals_are_dropped(path: Path) -> None:
    append(path, 1)
    for number in range(2, 7):
        record(path, one(number)).sealed()
    found = json.loads((path / ENDS).read_text("utf-8"))
    assert len(found["journals"]) <= 3
    assert sample(1).pairs + 5 == Memory.open(path).active_pairs


@pytest.mark.parametrize("first", [True, False])
def test_error_of_a_failed_record_shows_whether_it_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """The pair is present if and only if the error is a CommittedError, and the same writer can continue."""
    told = []
    for bad in range(20):
        path = tmp_path / f"memory-{bad}"
        Memory.create(path, IDENTITY, created=MOMENT)
        if not first:
            record(path, one(7))
        before = pairs_of(Memory.open(path))
        left = iter(range(bad))

        def act(_: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")

        with Memory.open(path).writing() as writer:
            error: MemoryFolderError | None = None
            with monkeypatch.context() as patch:
                hook(patch, act)
                try:
                    writer.record(one(8))
                except MemoryFolderError as caught:
                    error = caught
            found = Memory.open(path)
            assert found.verify() == []
            assert (pairs_of(found) == before) == (error is not None and not isinstance(error, CommittedError))
            told.append("none" if error is None else "is recorded" if "is recorded" in str(error) else "stays")
            last = writer.record(one(9))
        assert pairs_of(last) == pairs_of(Memory.open(path))
        assert len(pairs_of(last)) == len(pairs_of(found)) + 1
        assert last.verify() == []
        if error is None:
            break
    assert told[-2:] == ["is recorded", "none"]
    assert set(told[:-2]) == {"stays"}
    assert len(told) == (9 if first else 5)


def test_reader_ignores_a_record_of_a_running_writer(case: Case) -> None:
    """Its writer may still fail; then another record replaces it. The record of a writer that has ended is read."""
    (case.path / ENDS).write_bytes(case.states[2][ENDS])
    both = {one(8).targets[0], one(9).targets[0]}
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    for pid, seen in ((os.getpid(), {one(8).targets[0]}), (int(ended.stdout), both)):
        holder = {"pid": pid, "host": socket.gethostname(), "since": "now"}
        (case.path / "lock.holder").write_text(json.dumps(holder))
        reader = Memory.open(case.path)
        assert {pair[1] for pair in pairs_of(reader).values()} == seen
        assert pairs_of(reader.refresh()) == pairs_of(reader)
    (case.path / "lock.holder").unlink()
    assert {pair[1] for pair in pairs_of(Memory.open(case.path)).values()} == both
    (case.path / JOURNAL).write_bytes(case.states[2][JOURNAL])
    record(case.path, one(3))
    newer = reader.refresh()
    assert pairs_of(newer) == pairs_of(Memory.open(case.path))
    assert {pair[1] for pair in pairs_of(newer).values()} == {one(8).targets[0], one(3).targets[0]}


def test_sealed_uncommitted_record_survives_a_restore(path: Path) -> None:
    """A killed writer left the first record of a journal uncommitted; ids in later journals depend on it."""
    append(path, 1)
    with Memory.open(path).edit() as edit:
        edit.keep_snapshot("before")
        edit.commit()
    ends = (path / ENDS).read_bytes()
    record(path, one(7, pairs=2))
    (path / ENDS).write_bytes(ends)
    Memory.open(path).sealed()
    record(path, one(8))
    expected = pairs_of(record(path, one(9), removed=(4,)))
    assert expected.keys() == {0, 1, 2, 3, 5, 6}
    with Memory.open(path).edit() as edit:
        edit.restore_snapshot("before")
        assert pairs_of(edit.commit()) == expected
    assert verify_folder(path)[1] == []


def test_writer_continues_after_a_failure_behind_an_uncommitted_record(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case.path / ENDS).write_bytes(case.states[2][ENDS])

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Memory.open(case.path).writing() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", fail)
            with pytest.raises(MemoryFolderError, match="No space left"):
                writer.record(one(5))
        memory = writer.record(one(5))
    assert pairs_of(memory).keys() == pairs_of(Memory.open(case.path)).keys() == {1, 2, 3}
    assert memory.verify() == []


def test_torn_record_replaced_while_reading_is_no_damage(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt reads the start of the torn record and the end of the record that replaced it."""
    (case.path / ENDS).write_bytes(case.states[2][ENDS])
    expected = pairs_of(Memory.open(case.path))
    good = case.states[3][JOURNAL]
    mixed = iter([good[: case.places[1]] + bytes(20) + good[case.places[1] + 20 :]])
    whole = Journal._content

    def content(journal: Journal) -> tuple[int | None, bytes]:
        first = next(mixed, None)
        return whole(journal) if first is None else (len(first), first)

    monkeypatch.setattr(Journal, "_content", content)
    assert pairs_of(Memory.open(case.path)) == expected
    assert next(mixed, None) is None


def test_file_system_without_directory_sync_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    failure = errno.EINVAL

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(failure, os.strerror(failure))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "memory"
    Memory.create(path, IDENTITY, created=MOMENT)
    record(path, one(7)).sealed()
    assert pairs_of(Memory.open(path)).keys() == {0}
    failure = errno.EIO
    with pytest.raises(MemoryFolderError, match="Input/output error"):
        record(path, one(8))
