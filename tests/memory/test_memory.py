"""A memory returns what was stored, and refuses invalid folders and arguments."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import DamagedMemoryError, MemoryFolderError, UsageError
from ibidem.memory import Memory, ModelIdentity, SegmentData, SourceProjection, files

from .samples import (
    IDENTITY,
    MOMENT,
    append,
    check_prefix,
    files_of,
    one,
    record,
    sample,
)


@st.composite
def segments(draw: st.DrawFn, dimension: int) -> SegmentData:
    lengths = draw(st.lists(st.integers(0, 4), max_size=5))
    entries, pairs = sum(lengths), len(lengths)
    finite = st.floats(width=16, allow_nan=False, allow_infinity=False)

    def many(items: st.SearchStrategy[object], size: int) -> list[object]:
        return draw(st.lists(items, min_size=size, max_size=size))

    return SegmentData(
        keys=np.array(many(finite, entries * dimension), np.float16).reshape(entries, dimension),
        values=np.array(many(st.integers(0, 99), entries), np.int32),
        log_probs=np.array(many(finite, entries), np.float32),
        lengths=np.array(lengths, np.int64),
        sources=many(st.text(max_size=5), pairs),
        targets=many(st.text(max_size=5), pairs),
        origins=many(st.sampled_from(["a", "b", "ü"]), pairs),
        locations=many(st.integers(0, 2**63 - 1), pairs),
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data(), dimension=st.integers(1, 3))
def test_random_segments_are_read_back(data: st.DataObject, dimension: int) -> None:
    given_segments = data.draw(st.lists(segments(dimension), max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory.create(Path(folder) / "m", ModelIdentity("m", "a", "b", dimension, 100, None, "en"))
        with memory.edit() as edit:
            for segment in given_segments:
                edit.append_segment(segment)
            edit.commit()
        memory = Memory.open(Path(folder) / "m")
        check_against(memory, given_segments, data)
        assert memory.verify() == []


def check_against(memory: Memory, given_segments: list[SegmentData], data: st.DataObject) -> None:
    keys = np.concatenate([np.empty((0, memory.dimension), np.float16)] + [item.keys for item in given_segments])
    assert memory.entries == len(memory.keys) == len(keys)
    np.testing.assert_array_equal(
        memory.values(), np.concatenate([np.empty(0, np.int32), *(item.values for item in given_segments)])
    )
    np.testing.assert_array_equal(
        memory.log_probs(),
        np.concatenate([np.empty(0, np.float32), *(item.log_probs for item in given_segments)]),
    )
    assert memory.values().dtype == np.int32
    assert memory.log_probs().dtype == np.float32
    rows = data.draw(st.integers(1, 7))
    blocks = list(memory.keys.blocks(rows))
    assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate([keys[:0], *blocks]), keys)
    if memory.entries:
        ids = np.array(data.draw(st.lists(st.integers(0, memory.entries - 1), max_size=9)), np.int64)
        np.testing.assert_array_equal(memory.keys.gather(ids), keys[ids])
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, memory.entries)] * 2)))
    np.testing.assert_array_equal(memory.keys.read(start, stop), keys[start:stop])

    pairs = [
        row
        for item in given_segments
        for row in zip(item.sources, item.targets, item.origins, item.locations, item.lengths, strict=True)
    ]
    sentences = list(memory.sentences())
    assert [(p.source, p.target, p.origin, p.location, len(p.entries)) for p in sentences] == pairs
    assert [memory.sentence(index) for index in range(memory.pairs)] == sentences
    assert [entry for pair in sentences for entry in pair.entries] == list(range(memory.entries))
    lengths = np.concatenate([np.empty(0, np.int64), *(item.lengths for item in given_segments)])
    assert memory.token_offsets().tolist() == [0, *np.cumsum(lengths).tolist()]
    assert memory.rows().tolist() == list(range(memory.entries))
    for index, pair in enumerate(sentences):
        for position, entry in enumerate(pair.entries):
            assert memory.locate(entry) == (index, position)


def test_arrays_are_read_only_and_one_segment_is_not_copied(path: Path) -> None:
    memory = append(path, 1)
    stored = memory._segments[0].array("keys").all()
    assert np.shares_memory(memory.keys.read(0, memory.entries), stored)
    for array in (memory.values(), memory.log_probs(), memory.keys.read(0, 2)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    memory = append(path, 2)
    for array in (memory.values(), memory.keys.read(0, memory.entries)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_empty_memory(path: Path) -> None:
    memory = Memory.open(path)
    assert (memory.generation, memory.entries, memory.pairs, memory.dimension) == (1, 0, 0, 4)
    assert not memory.complete
    assert memory.identity == IDENTITY
    assert memory.manifest.seed == 7
    assert memory.values().shape == memory.log_probs().shape == (0,)
    assert list(memory.keys.blocks()) == list(memory.sentences()) == []
    assert memory.keys.read(0, 0).shape == memory.keys.gather(np.empty(0, np.int64)).shape == (0, 4)
    assert memory.artefact("index") is None
    assert set(memory.bytes_by_array().values()) == {0}
    assert memory.verify() == []


def test_bytes_by_array_are_the_bytes_on_disk(path: Path) -> None:
    memory = append(path, 1, 2)
    counted = memory.bytes_by_array()
    for name in set(counted) - {"index"}:
        assert counted[name] == sum(file.stat().st_size for file in path.glob(f"segments/*/{name}.bin"))
    assert counted["index"] == len(b"index 2")
    assert sum(counted.values()) < sum(len(content) for content in files_of(path).values())
    assert "journal" not in counted
    size = sum(file.stat().st_size for file in record(path, one(7)).path.glob("journals/*.log"))
    assert Memory.open(path).bytes_by_array() == {**counted, "journal": size}


def test_create_refuses_a_folder_with_files(path: Path, tmp_path: Path) -> None:
    with pytest.raises(MemoryFolderError, match="not empty"):
        Memory.create(path, IDENTITY)
    (tmp_path / "file").write_text("x")
    with pytest.raises(MemoryFolderError, match="is a file"):
        Memory.create(tmp_path / "file", IDENTITY)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    with pytest.raises(MemoryFolderError, match=r"thesis\.txt"):
        Memory.create(tmp_path / "other", IDENTITY)
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["thesis.txt"]


def test_create_after_a_killed_create(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    (folder / "segments").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / ".tmp-manifest.json").write_text("{")
    assert not Memory.exists(folder)
    Memory.create(folder, IDENTITY)
    assert Memory.open(folder).verify() == []
    assert not list(folder.glob(".tmp*"))


def test_create_does_not_overwrite_a_concurrent_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "m"
    real = files.make_directory

    def make_directory(path: Path) -> None:
        monkeypatch.undo()
        Memory.create(folder, IDENTITY, seed=1)
        real(path)

    monkeypatch.setattr("ibidem.memory.creation.make_directory", make_directory)
    with pytest.raises(MemoryFolderError, match="not empty"):
        Memory.create(folder, IDENTITY, seed=2)
    assert Memory.open(folder).manifest.seed == 1


def test_open_refuses_other_folders(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        assert not Memory.exists(folder)
        with pytest.raises(MemoryFolderError, match="no memory at") as caught:
            Memory.open(folder)
        assert not isinstance(caught.value, DamagedMemoryError)


@pytest.mark.parametrize("dimension", [0, -1, 2**40, 4.0])
def test_identity_refuses_invalid_dimensions(dimension: int) -> None:
    with pytest.raises(UsageError, match="dimension"):
        ModelIdentity("m", "a", "b", dimension, 100, None, None)


def test_create_refuses_an_invalid_seed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seed"):
        Memory.create(tmp_path / "m", IDENTITY, seed=2**64)
    assert Memory.create(tmp_path / "m", IDENTITY, seed=2**64 - 1).refresh().manifest.seed == 2**64 - 1


def test_same_input_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    append(path, 1, 2, 3)
    other = tmp_path / "other"
    Memory.create(other, IDENTITY, seed=7, created=MOMENT)
    append(other, 1)
    append(other, 2, 3)
    assert files_of(other) == files_of(path)


def test_time_is_stored_only_in_manifests(path: Path, tmp_path: Path) -> None:
    append(path, 1)
    other = tmp_path / "other"
    with Memory.create(other, IDENTITY, seed=7).edit() as edit:
        edit.append_segment(sample(1))
        edit.put_artefact("index", "bin", b"index 1", {"segments": 1})
        edit.commit()
    mine, theirs = files_of(path), files_of(other)
    assert {name for name in mine if mine[name] != theirs[name]} == {
        "manifest.json",
        "manifest.previous.json",
    }
    with pytest.raises(UsageError, match="time zone"), Memory.open(other).edit() as edit:
        edit.commit(MOMENT.replace(tzinfo=None))


def test_reader_keeps_its_generation(path: Path) -> None:
    reader = append(path, 1, 2)
    lazy = Memory.open(path)
    append(path, 3, 4)
    assert check_segments(reader) == check_segments(lazy) == 2
    with pytest.raises(MemoryFolderError, match=r"generation 5 was committed meanwhile: refresh") as caught:
        lazy.artefact("index")
    assert not isinstance(caught.value, DamagedMemoryError)
    assert check_prefix(lazy.refresh()) == 4
    assert reader.generation == 3


def check_segments(memory: Memory) -> int:
    expected = [sample(number) for number in range(1, 3)]
    assert [pair.target for pair in memory.sentences()] == [text for data in expected for text in data.targets]
    assert memory.keys.gather(np.arange(memory.entries)).tolist() == [
        row for data in expected for row in data.keys.tolist()
    ]
    return len(expected)


def test_refresh_keeps_open_segments(path: Path) -> None:
    memory = append(path, 1)
    first = memory.keys.read(0, 2)
    newer = append(path, 2)
    assert not np.shares_memory(first, newer.keys.read(0, 2))
    assert np.shares_memory(first, memory.refresh().keys.read(0, 2))


def test_a_killed_create_can_be_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    projection = SourceProjection.random(8)
    made = Memory.create(folder, IDENTITY, seed=1, source_projection=projection)
    left = list((folder / "artefacts").iterdir())
    assert [path.name for path in left] == ["source_projection-000001.safetensors"]
    for file in folder.glob("manifest*"):
        file.unlink()
    again = Memory.create(folder, IDENTITY, seed=1, source_projection=projection)
    assert again.manifest.artefacts == made.manifest.artefacts
    for file in folder.glob("manifest*"):
        file.unlink()
    (folder / "artefacts" / "index-000002.native").write_bytes(b"")
    with pytest.raises(MemoryFolderError, match="is not empty"):
        Memory.create(folder, IDENTITY, seed=1)
