"""An edit counts from its commit on, and cleans up what does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.errors import MismatchError, UsageError
from ibidem.memory import Memory

from .samples import append, check_prefix, files_of, sample

if TYPE_CHECKING:
    from pathlib import Path


def test_leaving_without_commit_changes_nothing(path: Path) -> None:
    append(path, 1)
    before = files_of(path)
    with Memory.open(path).edit() as edit:
        edit.append_segment(sample(2))
        edit.put_artefact("combiner", "safetensors", b"abc", {})
        edit.set_complete(True)
        assert (path / "segments" / "000002" / "segment.json").exists()
    assert files_of(path) == before


def test_leaving_by_an_exception_changes_nothing(path: Path) -> None:
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


def test_notes_are_kept_as_json(path: Path) -> None:
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
def test_notes_that_json_cannot_hold_are_refused(path: Path, value: object) -> None:
    with Memory.open(path).edit() as edit:
        with pytest.raises(UsageError, match="stage 'tune'"):
            edit.set_stage("tune", {"value": value})
        with pytest.raises(UsageError, match="artefact 'index'"):
            edit.put_artefact("index", "faiss", b"", {"value": value})


def test_artefacts_are_put_replaced_and_removed(path: Path, tmp_path: Path) -> None:
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
def test_artefacts_stay_in_their_folder(path: Path, name: str, extension: str) -> None:
    before = files_of(path)
    with Memory.open(path).edit() as edit, pytest.raises(UsageError):
        edit.put_artefact(name, extension, b"", {})
    assert files_of(path) == before


def test_artefact_of_no_file_is_refused(path: Path, tmp_path: Path) -> None:
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


def test_next_writer_removes_what_a_killed_one_left(path: Path) -> None:
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


def test_going_back_to_the_previous_generation(path: Path) -> None:
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
