"""The committed end is recorded outside of the journal: the loss of acknowledged records is always detected."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from typer.testing import CliRunner

from ibidem.cli.app import app
from ibidem.errors import CommittedError, DamagedMemoryError, MemoryFolderError
from ibidem.memory import Memory, accept_loss, verify_folder
from ibidem.memory.journal import Journal

from .samples import IDENTITY, MOMENT, append, files_of, sample
from .test_crash import hook
from .test_journal import one, pairs_of, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOURNAL = "journals/000001.log"
ENDS = "journals.json"


class Case(NamedTuple):
    """A memory with three records in its journal, and the files as they were after each of them."""

    path: Path
    states: list[dict[str, bytes]]
    places: list[int]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "memory"
    Memory.create(path, IDENTITY, created=MOMENT)
    states, places = [files_of(path)], [0]
    for number, removed in ((7, ()), (8, (0,)), (9, ())):
        memory = record(path, one(number), removed)
        states.append(files_of(path))
        places.append(memory.tail.journals[-1].end)
    return Case(path, states, places)


def check_found(case: Case, name: str, content: bytes | None) -> None:
    """Put a file in another's place, and check that it is found by everything that would use it, and left as it is."""
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
    """As `check_found`, and a process that had the memory open does not write to it either."""
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


def flips(content: bytes, places: range) -> Iterator[bytes]:
    """One bit flipped in each of these bytes, in turn another one."""
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


def test_a_flipped_bit_in_the_last_record_is_found(case: Case) -> None:
    """In every byte of its frame, and in every fifth after it; the slow test below takes all bits."""
    content = (case.path / JOURNAL).read_bytes()
    start = case.places[2] + 12
    for places in (
        range(case.places[2], start),
        range(start, case.places[3], 5),
        range(case.places[3] - 1, start, -97),
    ):
        for damaged in flips(content, places):
            check_found(case, JOURNAL, damaged)


def test_a_flipped_bit_in_an_earlier_record_is_found(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    for damaged in flips(content, range(0, case.places[2], 11)):
        check_found(case, JOURNAL, damaged)


@pytest.mark.slow
def test_any_flipped_bit_of_the_whole_journal_is_found(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        check_found(case, JOURNAL, bytes(changed))


def test_a_shorter_journal_is_found(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    about = {place + offset for place in (17, *case.places) for offset in (-1, 0, 1, 11, 12, 13)}
    for length in sorted(about.union(range(0, len(content), 17)) & {*range(len(content))}):
        check_found(case, JOURNAL, content[:length])


@pytest.mark.slow
def test_a_journal_of_any_lesser_length_is_found(case: Case) -> None:
    content = (case.path / JOURNAL).read_bytes()
    for length in range(len(content)):
        check_found(case, JOURNAL, content[:length])


def test_a_journal_that_is_gone_or_garbled_is_found(case: Case) -> None:
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


def test_an_older_copy_of_the_journal_is_found(case: Case) -> None:
    for state in case.states[1:-1]:
        check_found(case, JOURNAL, state[JOURNAL])
        check_refused(case, JOURNAL, state[JOURNAL])


def test_a_journal_of_the_same_shape_with_other_records_is_found(case: Case, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Memory.create(other, IDENTITY, created=MOMENT)
    for number in (8, 7, 9):
        record(other, one(number))
    mine, theirs = (folder / JOURNAL for folder in (case.path, other))
    check_found(case, JOURNAL, theirs.read_bytes())
    swapped = tmp_path / "swapped"
    Memory.create(swapped, IDENTITY, created=MOMENT)
    for number, removed in ((7, ()), (8, ()), (9, ())):  # as long, were it not for the removed id
        record(swapped, one(number), removed)
    assert mine.read_bytes()[: case.places[1]] == (swapped / JOURNAL).read_bytes()[: case.places[1]]
    check_found(case, JOURNAL, (swapped / JOURNAL).read_bytes())


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_any_damage_of_the_committed_ends_is_found(case: Case, step: int) -> None:
    content = (case.path / ENDS).read_bytes()
    for damaged in flips(content, range(0, len(content), step)):
        check_found(case, ENDS, damaged)
    for length in {*range(0, len(content), step), len(content) - 1}:
        check_found(case, ENDS, content[:length])
    for other in (None, content + b"\0", b"{}", b"[]"):
        check_refused(case, ENDS, other)
    check_found(case, ENDS, None)


def test_an_older_copy_of_the_committed_ends_loses_nothing(case: Case) -> None:
    """The records beyond it are whole: they are read, and committed by the next writer."""
    expected = pairs_of(Memory.open(case.path))
    for kept in range(3):
        (case.path / ENDS).write_bytes(case.states[kept][ENDS])
        assert pairs_of(Memory.open(case.path)) == expected
        assert [damage.file for damage in verify_folder(case.path)[1]] == ([ENDS] if kept < 2 else [])
    (case.path / ENDS).write_bytes(case.states[0][ENDS])
    memory = record(case.path, one(5))
    assert pairs_of(memory).keys() == pairs_of(Memory.open(case.path)).keys() == {*expected, 3}
    assert memory.verify() == []
    assert json.loads((case.path / ENDS).read_text("utf-8"))["journals"][0]["records"] == 4


def test_an_old_copy_of_the_manifest_is_found(path: Path) -> None:
    append(path, 1)
    old = (path / "manifest.json").read_bytes()
    for number in (7, 8, 9):
        record(path, one(number)).sealed()
    with Memory.open(path).edit() as edit:
        edit.commit()
    (path / "manifest.json").write_bytes(old)
    with pytest.raises(DamagedMemoryError, match=r"manifest\.json is damaged: it needs journal 1, .* an old copy"):
        Memory.open(path)
    assert "manifest.json" in [damage.file for damage in verify_folder(path)[1]]


def test_a_long_lived_reader_and_writer_notice_a_shorter_journal(case: Case) -> None:
    memory = Memory.open(case.path)
    (case.path / JOURNAL).write_bytes((case.path / JOURNAL).read_bytes()[:-1])
    with pytest.raises(DamagedMemoryError, match=r"000001\.log is damaged: it has \d+ bytes, and 3 records"):
        memory.refresh()


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_damage_that_only_going_back_would_meet_is_found(path: Path, kind: str) -> None:
    memory = append(path, 1)
    record(path, one(7))
    with memory.edit() as edit:
        edit.commit()
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.commit()
    record(path, one(8))
    Memory.open(path).sealed()
    record(path, one(9)).sealed()
    (snapshot,) = (path / "snapshots").iterdir()
    file = snapshot if kind == "snapshot" else path / "journals/000002.log"
    name = file.relative_to(path).as_posix()
    good = file.read_bytes()
    for content in (None, b"", good[:-1], good[:150] + bytes([good[150] ^ 1]) + good[151:]):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        before = files_of(path)
        assert [damage.file for damage in verify_folder(path)[1]] == [name]
        if kind == "snapshot":
            with pytest.raises(DamagedMemoryError, match=r"unpruned-\d+\.json is damaged"):
                Memory.open(path)
        with pytest.raises(DamagedMemoryError), Memory.open(path).edit() as edit:
            edit.restore_snapshot("unpruned")
        assert files_of(path) == before
    file.write_bytes(good)
    assert verify_folder(path)[1] == []


def test_an_older_memory_is_strict_about_whole_records(case: Case) -> None:
    """Without a committed end, a record that is as long as it says and has another checksum is damaged, not torn."""
    make_older(case.path)
    assert pairs_of(Memory.open(case.path)).keys() == {1, 2}
    file = case.path / JOURNAL
    good = file.read_bytes()
    for damaged in flips(good, range(case.places[2] + 8, case.places[3], 11)):
        file.write_bytes(damaged)
        with pytest.raises(DamagedMemoryError, match=r"000001\.log is damaged"):
            Memory.open(case.path)
        with pytest.raises(DamagedMemoryError):
            record(case.path, one(5))
        assert file.read_bytes() == damaged
    file.write_bytes(good)
    memory = record(case.path, one(5))
    assert memory.manifest.format == 4
    assert pairs_of(memory).keys() == {1, 2, 3}
    assert verify_folder(case.path)[1] == []
    check_found(case, JOURNAL, good)


def make_older(path: Path) -> None:
    from .test_manifest import rewrite

    def older(document: dict[str, object]) -> None:
        document["format"] = 3
        del document["snapshots"]

    rewrite(path, older)
    (path / ENDS).unlink()


def test_the_loss_can_be_accepted(case: Case) -> None:
    whole = files_of(case.path)
    file = case.path / JOURNAL
    reached = [{}, {0: 7}, {1: 8}]  # the pairs after each record, by id
    for cut in (0, 20, case.places[1], case.places[1] + 9, case.places[2], case.places[3] - 1):
        restore(case.path, whole)
        file.write_bytes(whole[JOURNAL][:cut])
        (damage,) = accept_loss(case.path)
        assert damage.file == JOURNAL
        left = max(number for number in range(3) if case.places[number] <= cut)
        memory = Memory.open(case.path)
        assert {id: pair[3] // 100 for id, pair in pairs_of(memory).items()} == reached[left]
        assert verify_folder(case.path)[1] == []
        assert (case.path / (JOURNAL + ".damaged")).read_bytes() == whole[JOURNAL][:cut]
        assert len(pairs_of(record(case.path, one(5)))) == len(reached[left]) + 1
        assert accept_loss(case.path) == []


def restore(path: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(path)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    for name in ("segments", "artefacts"):
        (path / name).mkdir(exist_ok=True)


def test_accepting_a_loss_gives_up_what_came_later(path: Path) -> None:
    """A later journal refers to ids of the lost records."""
    append(path, 1)
    record(path, one(7)).sealed()
    record(path, one(8))
    shutil.copyfile(path / "manifest.previous.json", path / "manifest.json")  # so that both journals are needed
    assert pairs_of(Memory.open(path)).keys() == {0, 1, 2, 3, 4}
    file = path / "journals/000001.log"
    file.write_bytes(file.read_bytes()[:-1])
    lost = accept_loss(path)
    assert [damage.file for damage in lost] == ["journals/000001.log", "journals/000002.log"]
    assert pairs_of(Memory.open(path)).keys() == {0, 1, 2}
    assert verify_folder(path)[1] == []


def test_accepting_the_loss_of_ends_and_snapshots(case: Case) -> None:
    expected = pairs_of(Memory.open(case.path))
    with Memory.open(case.path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.commit()
    shutil.rmtree(case.path / "snapshots")
    (case.path / ENDS).unlink()
    assert [damage.file for damage in verify_folder(case.path)[1]] == ["snapshots/unpruned-000002.json", ENDS]
    result = CliRunner().invoke(app, ["verify", "-m", str(case.path), "--accept-loss"])
    assert result.exit_code == 0, result.output
    memory = Memory.open(case.path)
    assert pairs_of(memory) == expected
    assert memory.snapshots() == []
    assert memory.verify() == []


def test_verify_names_a_journal_that_keeps_the_memory_from_opening(case: Case) -> None:
    (case.path / JOURNAL).unlink()
    result = CliRunner().invoke(app, ["verify", "-m", str(case.path)])
    assert result.exit_code == 1
    assert f"damaged: {JOURNAL}: the file is missing, and 3 records of" in result.output


def test_a_newer_file_of_committed_ends_is_refused_as_newer(case: Case) -> None:
    from ibidem.memory.json_document import encode_document

    (case.path / ENDS).write_bytes(encode_document({"format": 2, "first": 1, "journals": []}, "it"))
    with pytest.raises(MemoryFolderError, match="upgrade ibidem") as caught:
        Memory.open(case.path)
    assert not isinstance(caught.value, DamagedMemoryError)


def test_sealed_memories_keep_few_committed_ends(path: Path) -> None:
    append(path, 1)
    for number in range(2, 7):
        record(path, one(number)).sealed()
    found = json.loads((path / ENDS).read_text("utf-8"))
    assert len(found["journals"]) <= 3
    assert sample(1).pairs + 5 == Memory.open(path).living_pairs


@pytest.mark.parametrize("first", [True, False])
def test_a_failed_step_of_an_add_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """The pair is there if and only if the error says so, and the same writer goes on."""
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


def test_a_reader_drops_a_record_that_was_never_committed(case: Case) -> None:
    """It was taken over while its writer was at work, which then failed: another record came in its place."""
    (case.path / ENDS).write_bytes(case.states[2][ENDS])
    reader = Memory.open(case.path)
    assert {pair[1] for pair in pairs_of(reader).values()} == {one(8).targets[0], one(9).targets[0]}
    (case.path / JOURNAL).write_bytes(case.states[2][JOURNAL])
    record(case.path, one(3))
    newer = reader.refresh()
    assert pairs_of(newer) == pairs_of(Memory.open(case.path))
    assert {pair[1] for pair in pairs_of(newer).values()} == {one(8).targets[0], one(3).targets[0]}


def test_a_sealed_leftover_is_still_there_after_going_back(path: Path) -> None:
    """A killed writer left the first record of a journal uncommitted; later journals count on its ids."""
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


def test_a_writer_goes_on_after_it_committed_a_leftover_and_then_failed(
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


def test_accepting_a_loss_keeps_sound_records_beyond_an_older_committed_end(case: Case) -> None:
    expected = pairs_of(Memory.open(case.path))
    (case.path / ENDS).write_bytes(case.states[0][ENDS])
    assert [damage.file for damage in verify_folder(case.path)[1]] == [ENDS]
    assert accept_loss(case.path) == []
    assert verify_folder(case.path)[1] == []
    assert pairs_of(Memory.open(case.path)) == expected
    (case.path / ENDS).write_bytes(case.states[1][ENDS])
    content = bytearray((case.path / JOURNAL).read_bytes())
    content[case.places[1] + 20] ^= 1
    (case.path / JOURNAL).write_bytes(content)
    assert [damage.file for damage in accept_loss(case.path)] == [JOURNAL]
    assert {pair[1] for pair in pairs_of(Memory.open(case.path)).values()} == {one(7).targets[0]}
    assert verify_folder(case.path)[1] == []


def test_accepting_a_loss_of_a_sound_older_memory_gives_up_nothing(case: Case) -> None:
    make_older(case.path)
    before = files_of(case.path)
    assert accept_loss(case.path) == []
    assert files_of(case.path) == before


def test_a_torn_record_that_is_replaced_during_a_reading_is_no_damage(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reading gives a part of the torn record, and then the end of what was written in its place."""
    expected = pairs_of(Memory.open(case.path))
    (case.path / ENDS).write_bytes(case.states[1][ENDS])
    good = case.states[3][JOURNAL]
    mixed = iter([good[: case.places[1]] + bytes(20) + good[case.places[1] + 20 :]])
    whole = Journal._content

    def content(journal: Journal) -> tuple[int | None, bytes]:
        first = next(mixed, None)
        return whole(journal) if first is None else (len(first), first)

    monkeypatch.setattr(Journal, "_content", content)
    assert pairs_of(Memory.open(case.path)) == expected
    assert next(mixed, None) is None


def test_a_file_system_that_cannot_sync_directories_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_verify_is_not_misled_by_generations_that_are_committed_meanwhile(path: Path) -> None:
    append(path, 1, 2)
    record(path, one(7))
    commits = []

    def commit(done: int, total: int) -> None:
        if not commits:
            commits.append((done, total))
            for number in (8, 9):
                with record(path, one(number), removed=(number - 8,)).edit() as edit:
                    edit.commit()

    assert verify_folder(path, commit)[1] == []
    assert commits
