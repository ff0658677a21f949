"""Edits: commits, notes, artefacts, arrays, pruning, snapshots, and removal of unused files."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ibidem.errors import DamagedMemoryError, MemoryFolderError, MismatchError, UsageError
from ibidem.memory import COMPACTOR_ARTEFACT, Memory, files, generations
from ibidem.memory.manifest import Layout

from .samples import IDENTITY, MOMENT, append, check_prefix, files_of, put_coding, record, sample

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def test_edit_without_commit_changes_nothing(path: Path) -> None:
    append(path, 1)
    before = files_of(path)
    with Memory.open(path).edit() as edit:
        edit.append_segment(sample(2))
        edit.put_artefact("combiner", "safetensors", b"abc", {})
        edit.set_complete(True)
        assert (path / "segments" / "000002" / "segment.json").exists()
    assert files_of(path) == before


def test_edit_with_an_exception_changes_nothing(path: Path) -> None:
    def interrupted() -> None:
        with Memory.open(path).edit() as edit:
            edit.append_segment(sample(1))
            raise KeyboardInterrupt

    before = files_of(path)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert files_of(path) == before
    assert check_prefix(append(path, 1)) == 1


def test_edit_starts_from_the_newest_generation(path: Path) -> None:
    stale = Memory.open(path)
    append(path, 1)
    with stale.edit() as edit:
        assert edit.memory.generation == 2
        edit.set_stage("extract", {"pairs": 3})
        memory = edit.commit()
    assert check_prefix(memory) == 1
    assert memory.generation == 3
    assert stale.generation == 1


def test_an_index_is_stored_only_for_the_entries_it_was_built_of(path: Path) -> None:
    """Pairs may be added and removed while an index is built; another compactor or pruning makes it useless."""
    append(path, 1)
    built = append(path, 2)
    record(path, removed=(1,))
    append(path, 3)
    with Memory.open(path).edit() as edit:
        edit.set_fitted(built)
        fitted = edit.commit(MOMENT)
    assert fitted.fitted_entries == built.entries
    with fitted.edit() as edit:
        edit.put_artefact(COMPACTOR_ARTEFACT, "safetensors", b"another one", {})
        edit.commit(MOMENT)
    with Memory.open(path).edit() as edit, pytest.raises(MismatchError, match="by another process"):
        edit.set_fitted(fitted)
    pruned = Memory.open(path)
    with pruned.edit() as edit:
        edit.keep_entries(np.arange(pruned.entries) % 2 == 0)
        edit.commit(MOMENT)
    with Memory.open(path).edit() as edit, pytest.raises(MismatchError, match="by another process"):
        edit.set_fitted(pruned)


def test_several_commits_and_appends_in_one_edit(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        edit.append_segment(sample(1))
        edit.append_segment(sample(2))
        assert edit.memory.pairs == 0
        assert edit.commit().generation == 2
        edit.append_segment(sample(3))
        edit.put_artefact("index", "bin", b"index 3", {})
        assert edit.commit().generation == 3
    assert check_prefix(Memory.open(path)) == 3


def test_notes_are_stored_as_json(path: Path) -> None:
    notes = {"settings": {"k": (4, 8)}, "name": "Größe"}
    with Memory.open(path).edit() as edit:
        edit.set_stage("tune", notes)
        edit.set_complete(True)
        notes["name"] = "changed later"
        edit.commit()
        edit.set_stage("prune", {})
        edit.commit()
    memory = Memory.open(path)
    assert memory.manifest.stages == {"tune": {"settings": {"k": [4, 8]}, "name": "Größe"}, "prune": {}}
    assert memory.complete
    with Memory.open(path).edit() as edit:
        edit.set_complete(False)
        edit.commit()
    assert not Memory.open(path).complete


@pytest.mark.parametrize("value", [np.float32(1), float("nan"), object(), "\ud800"])
def test_notes_that_are_not_json_are_refused(path: Path, value: object) -> None:
    with Memory.open(path).edit() as edit:
        with pytest.raises(UsageError, match="stage 'tune'"):
            edit.set_stage("tune", {"value": value})
        with pytest.raises(UsageError, match="artefact 'index'"):
            edit.put_artefact("index", "faiss", b"", {"value": value})


def test_artefacts_are_stored_replaced_and_removed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"x" * (2 << 20))
    with Memory.open(path).edit() as edit:
        edit.put_artefact("index", ".faiss", tmp_path / "payload", {"kind": "flat"})
        edit.put_artefact("combiner", "safetensors", b"", {})
        memory = edit.commit()
    index = memory.artefact("index")
    assert index is not None
    assert (index.path.name, index.info) == ("index-000002.faiss", {"kind": "flat"})
    assert index.path.read_bytes() == (tmp_path / "payload").read_bytes()
    with memory.edit() as edit:
        edit.put_artefact("index", "faiss", b"wrong", {})
        edit.put_artefact("index", "bin", b"new", {})
        edit.remove_artefact("combiner")
        edit.remove_artefact("never there")
        memory = edit.commit()
    assert memory.artefact("combiner") is None
    assert {file.name for file in (path / "artefacts").iterdir()} == {
        "index-000002.faiss",  # of the previous generation
        "combiner-000002.safetensors",
        "index-000003.bin",
    }
    with memory.edit() as edit:
        edit.commit()
    assert {file.name for file in (path / "artefacts").iterdir()} == {"index-000003.bin"}
    assert Memory.open(path).verify() == []


@pytest.mark.parametrize(
    ("name", "extension"),
    [("../index", "bin"), ("Index", "bin"), ("", "bin"), ("keys", "bin"), ("a", "b/c"), ("a", "")],
)
def test_invalid_artefact_names_are_refused(path: Path, name: str, extension: str) -> None:
    before = files_of(path)
    with Memory.open(path).edit() as edit, pytest.raises(UsageError):
        edit.put_artefact(name, extension, b"", {})
    assert files_of(path) == before


def test_artefact_from_a_missing_file_is_refused(path: Path, tmp_path: Path) -> None:
    with Memory.open(path).edit() as edit, pytest.raises(UsageError, match="there is no file"):
        edit.put_artefact("index", "bin", tmp_path / "missing", {})


def test_segment_of_another_model_is_refused(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        with pytest.raises(MismatchError, match=r"5 dimensions .* has 4"):
            edit.append_segment(sample(1, dimension=5))
        data = sample(1)
        data.values[0] = 100
        with pytest.raises(MismatchError, match=r"token id 100 .* 100"):
            edit.append_segment(data)


def test_closed_edit_is_refused(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        pass
    for use in (edit.commit, lambda: edit.append_segment(sample(1)), lambda: edit.set_complete(True)):
        with pytest.raises(UsageError, match="is closed"):
            use()


def test_next_writer_removes_files_of_a_killed_one(path: Path) -> None:
    append(path, 1, 2)
    before = files_of(path)
    (path / ".tmp-manifest.json").write_text("{")
    (path / "segments" / ".tmp-000003").mkdir()
    (path / "segments" / ".tmp-000003" / "keys.bin").write_bytes(b"12")
    (path / "segments" / "000003").mkdir()
    (path / "segments" / "000003" / "keys.bin").write_bytes(b"12")
    (path / "artefacts" / ".tmp-index-000004.bin").write_bytes(b"12")
    (path / "artefacts" / "index-000004.bin").write_bytes(b"12")
    (path / "artefacts" / "notes of mine.txt").write_text("not ours to remove")
    messy = files_of(path)
    reader = Memory.open(path)
    assert check_prefix(reader) == 2
    assert reader.verify() == []
    assert files_of(path) == messy
    with reader.edit():
        pass
    assert files_of(path) == before | {"artefacts/notes of mine.txt": b"not ours to remove"}
    assert not (path / "segments" / "000003").exists()


def test_previous_manifest_restores_its_generation(path: Path) -> None:
    append(path, 1, 2)
    (path / "manifest.json").write_bytes((path / "manifest.previous.json").read_bytes())
    memory = Memory.open(path)
    assert check_prefix(memory) == 1
    assert check_prefix(append(path, 2)) == 2


def test_damaged_previous_manifest_keeps_its_files(path: Path) -> None:
    append(path, 1, 2)
    (path / "manifest.previous.json").write_bytes(b"{")
    with Memory.open(path).edit() as edit:
        assert (path / "artefacts" / "index-000002.bin").exists()
        edit.commit()
    assert not (path / "artefacts" / "index-000002.bin").exists()


def compacted(memory: Memory, width: int = 2) -> NDArray[np.int8]:
    return (np.arange(memory.entries * width) % 100).astype(np.int8).reshape(-1, width)


def compact(path: Path, width: int = 2) -> Memory:
    memory = Memory.open(path)
    rows = compacted(memory, width)
    with memory.edit() as edit:
        edit.put_array("compact", lambda start, stop: rows[start:stop])
        put_coding(edit, width)
        edit.put_array("clusters", lambda start, stop: np.arange(start, stop, dtype=np.int32))
        return edit.commit(MOMENT)


def prune(memory: Memory, kept: NDArray[np.bool_]) -> Memory:
    with memory.edit() as edit:
        edit.keep_entries(kept)
        return edit.commit(MOMENT)


def test_put_array_links_unchanged_arrays(path: Path) -> None:
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


def test_arrays_are_copied_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, 1, 2)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    memory = compact(path)
    assert memory.verify() == []
    np.testing.assert_array_equal(memory.keys.read(0, sample(1).entries), sample(1).keys)


def test_reading_dropped_keys_is_refused(path: Path) -> None:
    append(path, 1, 2)
    memory = compact(path)
    with memory.edit() as edit:
        edit.drop_array("keys")
        memory = edit.commit()
        memory = edit.commit()  # the generation with the keys is no longer the previous one
    with pytest.raises(UsageError, match="keep_keys=true"):
        _ = memory.keys
    assert "keys" not in memory.bytes_by_array()
    assert not list(path.rglob("keys.bin"))
    assert memory.search_keys.size == memory.entries
    assert memory.verify() == []


def test_compacted_memory_refuses_pairs_without_compact_keys(path: Path) -> None:
    append(path, 1)
    with compact(path).edit() as edit, pytest.raises(UsageError, match="learn a new memory"):
        edit.append_segment(sample(2))


@pytest.mark.parametrize("seed", range(5))
def test_kept_entries_are_unchanged(path: Path, seed: int) -> None:
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


def test_prune_nothing_and_everything(path: Path) -> None:
    before = append(path, 1, 2)
    same = prune(before, np.ones(before.entries, bool))
    assert same.manifest.segments == before.manifest.segments
    none = prune(same, np.zeros(before.entries, bool))
    assert (none.entries, none.pairs) == (0, before.pairs)
    assert none.values().size == none.rows().size == 0
    assert none.verify() == []


def test_snapshot_can_be_restored_after_later_generations(path: Path) -> None:
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


def test_new_segment_gets_an_unused_name(path: Path) -> None:
    """After a restore, segments of the later generation are still on disk."""
    before = append(path, 1, 2)
    with before.edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.keep_entries(np.arange(before.entries) % 2 == 0)
        edit.commit()
        edit.restore_snapshot("unpruned")
        edit.commit()
        edit.forget_snapshot("unpruned")
        edit.append_segment(sample(3))
        memory = edit.commit()
    assert memory.verify() == []
    assert generations.load_manifest(path / "manifest.previous.json").segments == before.manifest.segments
    assert len({segment.name for segment in memory.manifest.segments}) == 3


def test_unknown_and_invalid_snapshot_names(path: Path) -> None:
    with append(path, 1).edit() as edit:
        for act in (edit.restore_snapshot, edit.forget_snapshot):
            with pytest.raises(UsageError, match="no snapshot 'old': its snapshots are none"):
                act("old")
        with pytest.raises(UsageError, match="not a valid name for a snapshot"):
            edit.keep_snapshot("../old")


@pytest.mark.parametrize("name", ["compact", "clusters", "rows"])
def test_damage_of_compact_keys_and_clusters_is_detected(path: Path, name: str) -> None:
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


def test_damage_of_a_snapshot_is_detected(path: Path) -> None:
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


def test_failure_at_any_step_keeps_the_old_generation(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If any write fails while arrays are added and entries pruned, the memory is the old or the new generation."""
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
            edit.put_array("compact", lambda a, b: np.zeros((b - a, 2), np.int8))
            put_coding(edit, 2)
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


def test_a_late_worker_does_not_keep_a_workspace(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was taken for dead writes a file at the moment in which the emptied folder is deleted."""
    remove = os.rmdir

    def rmdir(*arguments: Any, **options: Any) -> None:
        with contextlib.suppress(OSError):
            (folder / "late").write_text("part")
        remove(*arguments, **options)

    with Memory.open(path).edit() as edit:
        folder = edit.workspace("cluster", "a" * 64)
        (folder / "part").write_text("part")
        monkeypatch.setattr(os, "rmdir", rmdir)
        edit.clear_workspace("cluster")
        assert list((path / "work").iterdir()) == []


def test_workspace_is_reused_for_the_same_digest(path: Path) -> None:
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


def test_put_array_in_an_empty_memory(tmp_path: Path) -> None:
    memory = Memory.create(tmp_path / "empty", IDENTITY)
    with memory.edit() as edit:
        edit.put_array("clusters", lambda a, b: np.zeros(b - a, np.int32))
        memory = edit.commit()
    assert memory.layout.clusters
    assert files_of(memory.path)


def test_invalid_arrays_are_refused(path: Path) -> None:
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


def test_outdated_reader_gets_an_error(path: Path) -> None:
    """Arrays that were read stay readable; others were deleted, which is not reported as damage."""
    append(path, 1, 2)
    old = Memory.open(path)
    newer = compact(path)
    prune(newer, np.arange(newer.entries) % 2 == 0)
    with pytest.raises(MemoryFolderError, match="open the memory again"):
        old.keys.read(0, 1)
    assert old.refresh().verify() == []


def test_nothing_is_appended_beside_a_snapshot(path: Path) -> None:
    """A restored snapshot keeps changes of journals only."""
    with Memory.open(path).edit() as edit:
        edit.keep_snapshot("unpruned")
        edit.commit()
    with Memory.open(path).edit() as edit:
        with pytest.raises(UsageError, match="restored without this segment"):
            edit.append_segment(sample(1))
        with pytest.raises(UsageError, match="restored without this segment"):
            edit.adopt_segment(path)


def test_an_index_is_left_out(path: Path) -> None:
    memory = append(path, 1)
    assert memory.artefact("index") is not None
    with memory.edit() as edit:
        edit.remove_index()
        memory = edit.commit()
    assert memory.artefact("index") is None
