"""Arrays added to entries, entries left out, generations kept by name: every change crash-safe, none lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.memory.samples import IDENTITY, MOMENT, append, files_of, sample
from tests.memory.test_manifest import rewrite

from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory import Memory, files, generations
from ibidem.memory.manifest import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def compacted(memory: Memory, width: int = 2) -> NDArray[np.float16]:
    return np.arange(memory.entries * width, dtype=np.float16).reshape(-1, width)


def compact(path: Path, width: int = 2) -> Memory:
    memory = Memory.open(path)
    rows = compacted(memory, width)
    with memory.edit() as edit:
        edit.put_array("compact", lambda start, stop: rows[start:stop])
        edit.put_array("clusters", lambda start, stop: np.arange(start, stop, dtype=np.int32))
        return edit.commit(MOMENT)


def prune(memory: Memory, kept: NDArray[np.bool_]) -> Memory:
    with memory.edit() as edit:
        edit.keep_entries(kept)
        return edit.commit(MOMENT)


def test_compact_keys_are_searched_and_the_rest_costs_no_bytes(path: Path) -> None:
    before = append(path, 1, 2)
    keys = before.keys.read(0, before.entries).copy()
    inodes = {name: (path / f"segments/000001/{name}.bin").stat().st_ino for name in ("keys", "sources")}
    memory = compact(path)
    assert memory.layout == Layout(keys=True, compact=2, clusters=True)
    assert memory.dimension == memory.search_keys.dimension == 2
    np.testing.assert_array_equal(memory.search_keys.read(0, memory.entries), compacted(memory))
    np.testing.assert_array_equal(memory.keys.read(0, memory.entries), keys)
    assert memory.clusters() is not None
    np.testing.assert_array_equal(memory.clusters(), np.arange(memory.entries))
    name = memory.manifest.segments[0].name
    assert {array: (path / f"segments/{name}/{array}.bin").stat().st_ino for array in inodes} == inodes
    assert memory.verify() == []


def test_without_hard_links_arrays_are_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, 1, 2)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    memory = compact(path)
    assert memory.verify() == []
    np.testing.assert_array_equal(memory.keys.read(0, sample(1).entries), sample(1).keys)


def test_dropped_keys_are_gone_and_said_to_be(path: Path) -> None:
    append(path, 1, 2)
    memory = compact(path)
    with memory.edit() as edit:
        edit.drop_array("keys")
        memory = edit.commit()
        memory = edit.commit()  # the generation with the keys is then not even the previous one
    with pytest.raises(UsageError, match="--keep-keys"):
        _ = memory.keys
    assert "keys" not in memory.bytes_by_array()
    assert not list(path.rglob("keys.bin"))
    assert memory.search_keys.size == memory.entries
    assert memory.verify() == []


def test_a_compacted_memory_takes_no_plain_pairs(path: Path) -> None:
    append(path, 1)
    with compact(path).edit() as edit, pytest.raises(UsageError, match="learn a new memory"):
        edit.append_segment(sample(2))


@pytest.mark.parametrize("seed", range(5))
def test_kept_entries_are_unchanged_and_stand_where_they_stood(path: Path, seed: int) -> None:
    append(path, 1, 2, 3, 4)
    before = compact(path)
    kept = np.random.default_rng(seed).random(before.entries) < 0.5
    memory = prune(before, kept)
    chosen = np.flatnonzero(kept)
    assert (memory.entries, memory.tokens, memory.pairs) == (len(chosen), before.entries, before.pairs)
    for read in ("values", "log_probs", "clusters"):
        np.testing.assert_array_equal(getattr(memory, read)(), getattr(before, read)()[chosen])
    np.testing.assert_array_equal(memory.keys.read(0, len(chosen)), before.keys.gather(chosen))
    np.testing.assert_array_equal(memory.search_keys.read(0, len(chosen)), before.search_keys.gather(chosen))
    np.testing.assert_array_equal(memory.rows(), chosen)
    np.testing.assert_array_equal(memory.token_values(), before.values())
    np.testing.assert_array_equal(memory.token_offsets(), before.token_offsets())
    assert [memory.locate(entry) for entry in range(len(chosen))] == [before.locate(int(old)) for old in chosen]
    for pair, (new, old) in enumerate(zip(memory.sentences(), before.sentences(), strict=True)):
        assert (new.source, new.target, new.origin, new.location) == (old.source, old.target, old.origin, old.location)
        assert chosen[list(new.entries)].tolist() == [entry for entry in old.entries if kept[entry]]
        assert all(memory.locate(entry)[0] == pair for entry in new.entries)
    assert memory.verify() == []
    again = prune(memory, np.arange(memory.entries) % 2 == 0)
    np.testing.assert_array_equal(again.rows(), chosen[::2])
    assert again.verify() == []


def test_pruning_nothing_and_everything(path: Path) -> None:
    before = append(path, 1, 2)
    same = prune(before, np.ones(before.entries, bool))
    assert same.manifest.segments == before.manifest.segments
    none = prune(same, np.zeros(before.entries, bool))
    assert (none.entries, none.pairs) == (0, before.pairs)
    assert none.values().size == none.rows().size == 0
    assert none.verify() == []


def test_a_snapshot_outlives_generations_and_can_be_restored(path: Path) -> None:
    before = append(path, 1, 2)
    with before.edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(before.entries) % 2 == 0)
        edit.remove_artefact("index")
        edit.commit()
        for _ in range(3):
            memory = edit.commit()
    assert memory.snapshots() == ["unpruned"]
    assert memory.entries < before.entries
    with memory.edit() as edit:
        edit.restore_snapshot("unpruned")
        restored = edit.commit()
    assert restored.generation > memory.generation
    np.testing.assert_array_equal(restored.values(), before.values())
    artefact = restored.artefact("index")
    assert artefact is not None
    assert artefact.path.read_bytes() == b"index 2"
    with restored.edit() as edit:
        edit.forget_snapshot("unpruned")
        edit.commit()
        edit.commit()
    assert Memory.open(path).snapshots() == []
    assert len(list((path / "segments").iterdir())) == 2
    assert Memory.open(path).verify() == []


def test_a_new_segment_never_takes_the_name_of_a_kept_one(path: Path) -> None:
    """After going back, the numbers of the generation gone back from are still in use on disk."""
    before = append(path, 1, 2)
    with before.edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(before.entries) % 2 == 0)
        edit.commit()
        edit.restore_snapshot("unpruned")
        edit.commit()
        edit.append_segment(sample(3))
        memory = edit.commit()
    assert memory.verify() == []
    assert generations.load_manifest(path / "manifest.previous.json").segments == before.manifest.segments
    assert len({segment.name for segment in memory.manifest.segments}) == 3


def test_unknown_and_ill_named_snapshots(path: Path) -> None:
    with append(path, 1).edit() as edit:
        for act in (edit.restore_snapshot, edit.forget_snapshot):
            with pytest.raises(UsageError, match="no snapshot 'old': its snapshots are none"):
                act("old")
        with pytest.raises(UsageError, match="not a valid name for a snapshot"):
            edit.keep_snapshot("../old")


@pytest.mark.parametrize("name", ["compact", "clusters", "rows"])
def test_damage_of_the_new_arrays_is_found(path: Path, name: str) -> None:
    append(path, 1, 2)
    memory = prune(compact(path), np.arange(sample(1).entries + sample(2).entries) % 3 > 0)
    file = path / "segments" / memory.manifest.segments[1].name / f"{name}.bin"
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    damages = Memory.open(path).verify()
    assert [damage.file for damage in damages] == [file.relative_to(path).as_posix()]
    reads = {"compact": lambda m: m.search_keys.read(0, m.entries), "clusters": Memory.clusters, "rows": Memory.values}
    with pytest.raises(DamagedMemoryError, match=rf"{name}\.bin is damaged"):
        reads[name](Memory.open(path))


def test_damage_of_a_snapshot_is_found(path: Path) -> None:
    before = append(path, 1, 2)
    with before.edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(before.entries) % 2 == 0)
        memory = edit.commit()
    file = path / "segments/000001/keys.bin"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert [damage.file for damage in memory.verify()] == ["segments/000001/keys.bin"]


def test_a_failure_at_any_step_leaves_the_old_generation(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever write fails while arrays are added and entries left out: the memory is the old one, or the new one."""
    before = append(path, 1, 2)
    old, new = before.entries, int((np.arange(before.entries) % 2 == 0).sum())
    outcomes = set()
    for step in range(200):
        folder = tmp_path / f"copy-{step}"
        shutil.copytree(path, folder)
        count = 0

        def failing(source: Path, target: Path, *, step: int = step) -> None:
            nonlocal count
            count += 1
            if count > step:
                raise OSError(errno.ENOSPC, "No space left on device", str(target))
            source.replace(target)
            files.sync_directory(target.parent)

        for module in ("files", "segment", "artefacts"):
            monkeypatch.setattr(f"ibidem.memory.{module}.rename", failing)
        memory = Memory.open(folder)
        done = False
        with contextlib.suppress(MemoryFolderError), memory.edit() as edit:
            edit.keep_snapshot("unpruned")
            edit.put_array("compact", lambda a, b: np.zeros((b - a, 2), np.float16))
            edit.keep_entries(np.arange(memory.entries) % 2 == 0)
            edit.commit()
            done = True
        monkeypatch.undo()
        found = Memory.open(folder)
        assert found.verify() == []
        assert found.entries in ({new} if done else {old, new})
        outcomes.add(found.entries)
        if done:
            break
    assert done
    assert outcomes == {old, new}


def test_a_memory_of_the_first_format_is_read_and_written_on(path: Path) -> None:
    memory = append(path, 1, 2)
    values = memory.values().copy()

    def older(document: dict[str, object]) -> None:
        document["format"] = 1
        del document["journal"], document["numbering"], document["snapshots"]
        del document["layout"], document["identity"]["source_prefix"]  # type: ignore[attr-defined]
        for segment in document["segments"]:  # type: ignore[attr-defined]
            del segment["tokens"]

    rewrite(path, older)
    (path / "journals.json").unlink()
    memory = Memory.open(path)
    np.testing.assert_array_equal(memory.values(), values)
    memory = compact(path)
    assert memory.verify() == []
    assert json.loads((path / "manifest.json").read_text("utf-8"))["format"] == 4


def test_a_workspace_is_found_again_by_its_digest(path: Path) -> None:
    memory = append(path, 1)
    with memory.edit() as edit:
        folder = edit.workspace("cluster", "a" * 64)
        (folder / "done").write_text("1")
        edit.commit()
    with Memory.open(path).edit() as edit:
        assert (edit.workspace("cluster", "a" * 64) / "done").exists()
        other = edit.workspace("cluster", "b" * 64)
        assert not (other / "done").exists()
        assert not folder.exists()
        edit.clear_workspace("cluster")
        assert not other.exists()
    assert Memory.open(path).verify() == []


def test_an_empty_memory_can_be_given_arrays(tmp_path: Path) -> None:
    memory = Memory.create(tmp_path / "empty", IDENTITY)
    with memory.edit() as edit:
        edit.put_array("clusters", lambda a, b: np.zeros(b - a, np.int32))
        memory = edit.commit()
    assert memory.layout.clusters
    assert files_of(memory.path)


def test_wrong_arrays_are_refused(path: Path) -> None:
    memory = append(path, 1)
    with memory.edit() as edit:
        with pytest.raises(UsageError, match="not an array of entries"):
            edit.put_array("values", lambda a, b: np.zeros(b - a, np.int32))
        with pytest.raises(UsageError, match="invalid clusters for"):
            edit.put_array("clusters", lambda a, b: np.zeros(b - a + 1, np.int32))
        with pytest.raises(UsageError, match="invalid compact for"):
            edit.put_array("compact", lambda a, b: np.zeros((b - a, 2), np.float32))
        with pytest.raises(UsageError, match="entries"):
            edit.keep_entries(np.ones(memory.entries + 1, bool))


def test_a_reader_left_behind_is_told_so(path: Path) -> None:
    """What was read of an old generation stays; what was not is gone, but the memory is not damaged."""
    append(path, 1, 2)
    old = Memory.open(path)
    newer = compact(path)
    prune(newer, np.arange(newer.entries) % 2 == 0)
    with pytest.raises(MemoryFolderError, match="open the memory again"):
        old.keys.read(0, 1)
    assert old.refresh().verify() == []
