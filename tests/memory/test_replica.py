"""A replica has the state of its source, and readers never see an incomplete or damaged one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ibidem.errors import DamagedMemoryError, LockedMemoryError, MemoryFolderError
from ibidem.memory import (
    ChangedSourceError,
    Memory,
    RecordedFile,
    Replica,
    View,
    back_up,
    encode_view,
    read_view,
    verify_folder,
)
from ibidem.memory.view import CARD, decode_view, files_of

from .samples import IDENTITY, MOMENT, append, one, pairs_of, record, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class FolderSource:
    """A memory on this machine as a source; `alter` may change or end what is received."""

    name = "the test"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alter: Callable[[RecordedFile, Iterable[bytes]], Iterable[bytes]] = lambda _, parts: parts
        self.before_open: Callable[[], None] = lambda: None
        self.received: list[tuple[str, int]] = []

    def read_view(self, known: str) -> tuple[str, View] | None:
        content = encode_view(read_view(self.folder))
        tag = str(hash(content))
        return None if tag == known else (tag, decode_view(content, Path("view")))

    @contextlib.contextmanager
    def open(self, file: RecordedFile, start: int, stop: int | None) -> Iterator[Iterable[bytes]]:
        self.before_open()
        self.received.append((file.path, start))
        try:
            content = (self.folder / file.path).read_bytes()[start:stop]
        except FileNotFoundError as error:
            raise ChangedSourceError("gone") from error
        yield self.alter(file, [content[i : i + 100] for i in range(0, len(content), 100)])


@pytest.fixture
def source(path: Path) -> FolderSource:
    append(path, 1, 2)
    record(path, one(7), removed=(0,))
    (path / CARD).write_text("A card.\n")
    return FolderSource(path)


@pytest.fixture
def replica(source: FolderSource, tmp_path: Path) -> Iterator[Replica]:
    with Replica(tmp_path / "copies" / "memory", source) as replica:
        yield replica


def prune(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(edit.memory.entries) % 2 == 0)
        edit.commit()


def restore(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        edit.restore_snapshot("unpruned")
        edit.commit()


def seal(path: Path) -> None:
    Memory.open(path).sealed()


def relearn(path: Path) -> None:
    """Make another memory, whose segments have the names of the former ones."""
    shutil.rmtree(path)
    Memory.create(path, IDENTITY, seed=9, created=MOMENT)
    append(path, 5, 6)


CHANGES: list[Callable[[Path], object]] = [
    lambda path: record(path, one(8)),
    lambda path: [record(path, one(number)) for number in range(10, 15)],
    lambda path: record(path, None, removed=(1,)),
    seal,
    lambda path: append(path, 3, 4),
    prune,
    lambda path: record(path, one(9)),
    restore,
    relearn,
    lambda path: record(path, one(9)),
]


def check_equal(replica: Replica, source: FolderSource) -> None:
    copy, original = Memory.open(replica.folder), Memory.open(source.folder)
    assert pairs_of(copy) == pairs_of(original)
    assert copy.manifest == original.manifest
    cards = [[card.read_bytes() for card in folder.glob(CARD)] for folder in (replica.folder, source.folder)]
    assert cards[0] == cards[1]
    assert verify_folder(replica.folder)[1] == []


def test_a_replica_follows_every_kind_of_change(replica: Replica, source: FolderSource) -> None:
    assert not replica.exists
    assert replica.update()
    opened = Memory.open(replica.folder)
    for change in CHANGES:
        change(source.folder)
        assert replica.update()
        check_equal(replica, source)
        opened = opened.pinned()  # as a server that is running
        assert pairs_of(opened) == pairs_of(Memory.open(source.folder))
        assert not replica.update()
    assert rows(opened) == rows(Memory.open(source.folder))


def test_only_new_bytes_are_fetched(replica: Replica, source: FolderSource) -> None:
    replica.update()
    before, opened = replica.transfer.bytes, Memory.open(replica.folder)
    size = opened.tail.bytes
    source.received.clear()
    memory = record(source.folder, one(8))
    assert replica.update()
    assert source.received == [
        (
            "journals/000002.log" if size == 0 else memory.tail.journals[-1].path.relative_to(source.folder).as_posix(),
            size,
        )
    ]
    assert replica.transfer.bytes - before == memory.tail.bytes - size
    newer = opened.refresh()
    assert (replica.transfer.refused, replica.transfer.updates) == (0, 2)
    assert newer.manifest is opened.manifest, "the manifest is not read again"
    assert newer.tail.added[0] is opened.tail.added[0], "known records are not read again"


def test_an_interrupted_update_continues(replica: Replica, source: FolderSource) -> None:
    class LostError(MemoryFolderError):
        pass

    def lose(_: RecordedFile, parts: Iterable[bytes]) -> Iterator[bytes]:
        for number, part in enumerate(parts):
            yield part
            if number == 0:
                raise LostError

    append(source.folder, 3)
    source.alter = lose
    attempts = 0
    while True:
        attempts += 1
        try:
            replica.update()
            break
        except LostError:
            assert not replica.exists
    assert attempts > 10
    check_equal(replica, source)
    assert any(start for _, start in source.received), "an incomplete file is continued"
    objects = replica.folder.parent / ".memory.copies" / "objects"
    assert replica.transfer.bytes == sum(path.stat().st_size for path in objects.iterdir()), "no byte twice"


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("keys.bin", "change"),
        ("keys.bin", "shorten"),
        ("keys.bin", "lengthen"),
        ("segment.json", "change"),
        ("index-", "change"),
        ("journals/", "change"),
        ("journals/", "lengthen"),
    ],
)
def test_damaged_bytes_are_refused(replica: Replica, source: FolderSource, kind: str, damage: str) -> None:
    replica.update()
    before = pairs_of(Memory.open(replica.folder))
    append(source.folder, 3)
    record(source.folder, one(9))

    def alter(file: RecordedFile, parts: Iterable[bytes]) -> Iterable[bytes]:
        content = bytearray(b"".join(parts))
        if kind in file.path and content:
            if damage == "change":
                content[len(content) // 2] ^= 4
            elif damage == "shorten":
                del content[-1:]
            else:
                content += b"x"
        return [bytes(content)]

    source.alter = alter
    with pytest.raises(MemoryFolderError, match=r"the test|committed"):
        replica.update()
    assert replica.transfer.refused or damage == "shorten"
    assert pairs_of(Memory.open(replica.folder)) == before
    assert verify_folder(replica.folder)[1] == []
    source.alter = lambda _, parts: parts
    with contextlib.suppress(DamagedMemoryError):  # a part that was shortened is longer than it was
        replica.update()
    replica.update()
    check_equal(replica, source)


def test_a_damaged_view_is_refused(source: FolderSource) -> None:
    content = encode_view(read_view(source.folder))
    randomness = random.Random(5)
    for _ in range(50):
        place = randomness.randrange(len(content))
        damaged = content[:place] + bytes([content[place] ^ (1 << randomness.randrange(8))]) + content[place + 1 :]
        with pytest.raises(DamagedMemoryError):
            decode_view(damaged, Path("view"))


@pytest.mark.parametrize("name", ["manifest", "ends", "card"])
def test_a_view_with_half_a_character_is_refused(source: FolderSource, name: str) -> None:
    """JSON can escape one half of a surrogate pair, which no file can hold."""
    fields = json.loads(encode_view(read_view(source.folder)))
    body = json.dumps({**fields, name: "\ud800"}, indent=1)[80:].encode()
    content = b'{\n "checksum": "' + hashlib.sha256(body).hexdigest().encode() + body
    with pytest.raises(DamagedMemoryError, match=name):
        decode_view(content, Path("view"))


def test_a_source_that_changes_meanwhile(replica: Replica, source: FolderSource) -> None:
    """The writer commits twice during the download, and deletes files of the view."""
    randomness = random.Random(3)
    changes = iter(CHANGES)

    def change() -> None:
        if randomness.random() < 0.1 and (chosen := next(changes, None)) is not None:
            chosen(source.folder)

    source.before_open = change
    for _ in range(200):
        with contextlib.suppress(ChangedSourceError, DamagedMemoryError):
            replica.update()
        if replica.exists:
            assert verify_folder(replica.folder)[1] == []
        if next(iter(changes), None) is None:
            break
    source.before_open = lambda: None
    replica.update()
    check_equal(replica, source)


class Crash(BaseException):
    """The end of a process at an operation."""


def test_a_crash_at_every_operation(source: FolderSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever operation is the last one, the folder has the former state or the new one, and the next update ends."""
    left = [10**9]

    def limited(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            return real(*given, **named)

        return run

    for name in ("replace", "link", "fsync", "symlink", "mkdir"):
        monkeypatch.setattr(os, name, limited(getattr(os, name)))
    folder = tmp_path / "copies" / "memory"
    with Replica(folder, source) as replica:
        replica.update()
    former = pairs_of(Memory.open(folder))
    append(source.folder, 3)
    record(source.folder, one(9))
    shutil.copytree(tmp_path / "copies", tmp_path / "kept", symlinks=True)
    wanted = pairs_of(Memory.open(source.folder))
    seen = set()
    for operations in range(0, 2000, 11):
        shutil.rmtree(tmp_path / "copies")
        shutil.copytree(tmp_path / "kept", tmp_path / "copies", symlinks=True)
        left[0] = operations
        ended = True
        with contextlib.suppress(Crash), Replica(folder, source) as replica:
            ended = False
            replica.update()
            ended = True
        left[0] = 10**9
        found = pairs_of(Memory.open(folder))
        assert found in (former, wanted)
        seen.add(found == wanted)
        if operations % 5 == 0:
            assert verify_folder(folder)[1] == []
        with Replica(folder, source) as replica:
            replica.update()
        check_equal(replica, source)
        if ended:
            break
    assert ended
    assert seen == {False, True}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_at_random_moments(source: FolderSource, tmp_path: Path) -> None:
    folder = tmp_path / "copies" / "memory"
    randomness = random.Random(11)
    known = []
    for number in range(12):
        append(source.folder, 3 + number) if number % 3 == 0 else record(source.folder, one(100 + number))
        known.append(pairs_of(Memory.open(source.folder)))
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                Replica(folder, source).update()
            os._exit(0)
        time.sleep(randomness.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if folder.exists():
            assert pairs_of(Memory.open(folder)) in known
            assert verify_folder(folder)[1] == []
    with Replica(folder, source) as replica:
        replica.update()
    check_equal(replica, source)


def test_refused_views_leave_the_state(replica: Replica, source: FolderSource) -> None:
    def refuse(_: View) -> None:
        raise MemoryFolderError("another model")

    replica.update()
    replica.check = refuse
    append(source.folder, 3)
    source.received.clear()
    with pytest.raises(MemoryFolderError, match="another model"):
        replica.update()
    assert not source.received


def test_nothing_unneeded_is_left(replica: Replica, source: FolderSource, tmp_path: Path) -> None:
    for change in CHANGES:
        change(source.folder)
        replica.update()
    copies = tmp_path / "copies" / ".memory.copies"
    assert len(list((copies / "states").iterdir())) == len(list((copies / "sets").iterdir())) == 1
    needed = {file.sha256 for file in _files(source.folder)}
    assert {path.name for path in (copies / "objects").iterdir()} == needed


def _files(folder: Path) -> list[RecordedFile]:
    return list(files_of(folder, read_view(folder)))


def test_one_process_updates(replica: Replica, source: FolderSource) -> None:
    replica.update()
    with Replica(replica.folder, source) as other, pytest.raises(LockedMemoryError):
        other.update()


def test_a_memory_of_its_own_is_not_replaced(source: FolderSource) -> None:
    with Replica(source.folder, source) as replica, pytest.raises(MemoryFolderError, match="of its own"):
        replica.update()


def test_a_replica_is_changed_at_its_source(replica: Replica, source: FolderSource, tmp_path: Path) -> None:
    replica.update()
    with pytest.raises(MemoryFolderError, match="replica of the test"):
        record(replica.folder, one(9))
    made = back_up(replica.folder, tmp_path / "own")
    assert pairs_of(record(made.path, one(9))) != pairs_of(Memory.open(source.folder))


def test_a_full_disk(replica: Replica, source: FolderSource, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(source.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(MemoryFolderError, match="free disk space"):
        replica.update()
    assert not replica.exists
