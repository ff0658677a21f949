"""Segments that were sealed outside a memory: adoption gives the bytes of `append_segment`, and checks everything."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.errors import DamagedMemoryError, MismatchError
from ibidem.memory import Memory, SegmentData, open_sealed, seal_segment, unique_path
from memory.samples import IDENTITY, MOMENT, sample

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import ModelIdentity


def number_origins(count: int) -> list[dict[str, int]]:
    """The numbers of all origins when each sample from 1 on is added."""
    known: dict[str, int] = {}
    numbers = []
    for number in range(1, count + 1):
        for name in sample(number).origins:
            known.setdefault(name, len(known))
        numbers.append(dict(known))
    return numbers


def seal(folder: Path, number: int, identity: ModelIdentity = IDENTITY, **changed: object) -> Path:
    folder.mkdir(parents=True)
    data = replace(sample(number), **changed)  # type: ignore[arg-type]
    seal_segment(folder, data, identity, number_origins(number)[-1])
    return folder


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and not file.name.startswith("lock")
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Memory.create(tmp_path / "memory", IDENTITY, created=MOMENT).path


def test_adopted_segments_are_the_appended_ones(path: Path, tmp_path: Path) -> None:
    other = Memory.create(tmp_path / "other", IDENTITY, created=MOMENT).path
    with Memory.open(other).edit() as edit:
        for number in (1, 2, 3):
            edit.append_segment(sample(number))
            edit.commit(MOMENT)
    for number in (1, 2, 3):
        sealed = seal(tmp_path / "work" / str(number), number)
        with Memory.open(path).edit() as edit:
            edit.adopt_segment(sealed)
            memory = edit.commit(MOMENT)
    assert files(path) == files(other)
    assert memory.verify() == []
    assert len(list((tmp_path / "work").iterdir())) == 3  # the caller deletes them
    shutil.rmtree(tmp_path / "work")
    assert Memory.open(path).verify() == []


def test_an_adoption_that_is_not_committed_can_be_repeated(path: Path, tmp_path: Path) -> None:
    sealed = seal(tmp_path / "sealed", 1)
    with Memory.open(path).edit() as edit:
        edit.adopt_segment(sealed)
    assert Memory.open(path).pairs == 0
    assert not list((path / "segments").iterdir())
    with Memory.open(path).edit() as edit:
        edit.adopt_segment(sealed)
        assert edit.commit().pairs == 3


@pytest.mark.parametrize("name", ["keys", "values", "sources", "source_vectors", "log_probs"])
def test_a_changed_byte_is_refused(path: Path, tmp_path: Path, name: str) -> None:
    sealed = seal(tmp_path / "sealed", 1)
    file = sealed / "segment" / f"{name}.bin"
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    with Memory.open(path).edit() as edit, pytest.raises(DamagedMemoryError, match=f"{name}.bin is damaged"):
        edit.adopt_segment(sealed)
    file.unlink()
    with Memory.open(path).edit() as edit, pytest.raises(DamagedMemoryError, match="the file is missing"):
        edit.adopt_segment(sealed)


def test_a_changed_seal_is_refused(path: Path, tmp_path: Path) -> None:
    sealed = seal(tmp_path / "sealed", 1)
    file = sealed / "sealed.json"
    file.write_bytes(file.read_bytes().replace(b"model-a", b"model-b"))
    with pytest.raises(DamagedMemoryError, match="its checksum does not match"):
        open_sealed(sealed)
    file.unlink()
    with Memory.open(path).edit() as edit, pytest.raises(DamagedMemoryError, match="the file is missing"):
        edit.adopt_segment(sealed)


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("model", {"model_fingerprint": "model-b"}),
        ("tokenizer", {"tokenizer_fingerprint": "tokenizer-b"}),
    ],
)
def test_a_segment_of_another_model_is_refused(path: Path, tmp_path: Path, what: str, changed: dict[str, str]) -> None:
    sealed = seal(tmp_path / "sealed", 1, replace(IDENTITY, **changed))
    with Memory.open(path).edit() as edit, pytest.raises(MismatchError, match=f"its {what} is .*-b"):
        edit.adopt_segment(sealed)


def test_segments_of_other_arrays_or_compactors_are_refused(path: Path, tmp_path: Path) -> None:
    entries = sample(2).entries
    compact = np.zeros((entries, 2), np.int8)
    with Memory.open(path).edit() as edit:
        edit.append_segment(sample(1))
        edit.commit()
    folder = tmp_path / "compact"
    folder.mkdir()
    data: SegmentData = replace(sample(2), keys=None, compact=compact)
    seal_segment(folder, data, IDENTITY, number_origins(2)[-1], compactor="0" * 64)
    with Memory.open(path).edit() as edit, pytest.raises(MismatchError, match="its compactor is 0000"):
        edit.adopt_segment(folder)
    with Memory.open(path).edit() as edit:
        edit.adopt_segment(seal(tmp_path / "plain", 2))
        assert edit.commit().pairs == 6


def test_origins_must_follow_in_order(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sealed"
    folder.mkdir()
    data = replace(sample(1), origins=["new.tsv"] * 3)
    seal_segment(folder, data, IDENTITY, {"new.tsv": 1})
    with Memory.open(path).edit() as edit, pytest.raises(MismatchError, match=r"'new.tsv' the number 1"):
        edit.adopt_segment(folder)
    seal(tmp_path / "other", 1)
    with Memory.open(path).edit() as edit:
        edit.append_segment(replace(sample(2), origins=["another.tsv"] * 3))
        edit.commit()
        with pytest.raises(MismatchError, match="the number 0"):
            edit.adopt_segment(tmp_path / "other")


def test_values_outside_the_vocabulary_are_refused(path: Path, tmp_path: Path) -> None:
    values = sample(1).values.copy()
    values[0] = 100
    sealed = seal(tmp_path / "sealed", 1, values=values)
    with Memory.open(path).edit() as edit, pytest.raises(DamagedMemoryError, match="outside 0 to 99"):
        edit.adopt_segment(sealed)


def test_temporary_names_are_unique_and_edits_leave_work_alone(path: Path) -> None:
    names = {unique_path(path / "work" / "part").name for _ in range(100)}
    assert len(names) == 100
    file = path / "work" / "extract-0" / next(iter(names))
    file.parent.mkdir(parents=True)
    file.write_bytes(b"what a worker writes")
    (path / "segments" / unique_path(path / "000001").name).mkdir()
    with Memory.open(path).edit() as edit:
        edit.set_complete(True)
        edit.commit()
    assert file.exists()
    assert not list((path / "segments").iterdir())
