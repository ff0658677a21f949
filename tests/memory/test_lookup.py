"""Keys by entry, and pairs by number, text and origin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.errors import DamagedMemoryError, UsageError
from ibidem.memory import Memory, ModelIdentity

from .samples import IDENTITY, append, one, record, rows, sample

if TYPE_CHECKING:
    from pathlib import Path


def test_find_pairs_by_text_and_by_origin(path: Path) -> None:
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


def test_find_among_many_pairs_of_one_length(path: Path) -> None:
    names = [f"Satz {number:04d}" for number in range(500)]
    data = sample(3, pairs=500)
    with Memory.open(path).edit() as edit:
        edit.append_segment(replace(data, sources=names, targets=names[::-1]))
        memory = edit.commit()
    assert [memory.find(names[i], names[499 - i]) for i in range(0, 500, 37)] == [[i] for i in range(0, 500, 37)]
    assert memory.find(names[3], names[3]) == []


def test_long_memory_is_read_in_chunks(tmp_path: Path) -> None:
    data = sample(1, pairs=2500)
    with Memory.create(tmp_path / "m", IDENTITY).edit() as edit:
        edit.append_segment(data)
        memory = edit.commit()
    assert [pair.source for pair in memory.sentences()] == data.sources
    assert memory.sentence(2499).target == data.targets[2499]


def test_gather_rows_across_blocks(tmp_path: Path) -> None:
    # 3 * 2 ** 17 + 1 dimensions: a row fills three quarters of a block, so most rows lie in two.
    dimension = 3 * 2**17 + 1
    memory = Memory.create(tmp_path / "m", ModelIdentity("m", "a", "b", dimension, 100, None, None))
    data = sample(1, pairs=4, dimension=dimension)
    with memory.edit() as edit:
        edit.append_segment(data)
        memory = edit.commit()
    np.testing.assert_array_equal(memory.keys.gather(np.array([2, 0])), data.keys[[2, 0]])
    with (tmp_path / "m" / "segments" / "000001" / "keys.bin").open("r+b") as file:
        file.seek(2**20 + 5)  # row 1 begins in block 0 and ends in block 1
        file.write(bytes([file.read(1)[0] ^ 1]))
    memory = Memory.open(tmp_path / "m")
    memory.keys.gather(np.array([0]))
    with pytest.raises(DamagedMemoryError, match="block 1 "):
        memory.keys.gather(np.array([1]))


def test_out_of_range_is_a_usage_error(path: Path) -> None:
    memory = append(path, 1)
    assert [len(block) for block in memory.keys.blocks(1)] == [1] * memory.entries
    for use in (
        lambda: memory.sentence(3),
        lambda: memory.sentence(-1),
        lambda: memory.locate(memory.entries),
        lambda: memory.keys.gather(np.array([-1])),
        lambda: memory.keys.gather(np.array([memory.entries])),
        lambda: memory.keys.gather(np.array([0.5])),
        lambda: memory.keys.read(0, memory.entries + 1),
        lambda: memory.keys.blocks(0),
    ):
        with pytest.raises(UsageError):
            use()


def test_removed_pairs_have_no_number(path: Path) -> None:
    """Before and after the removal is sealed; entries keep the numbers of their tokens when others are pruned."""
    append(path, 1)
    record(path, removed=(1,))
    for _ in range(2):
        memory = Memory.open(path)
        assert [memory.number_of(id) for id in (0, 2)] == [0, 2] if memory.tail.removed else [0, 1]
        with pytest.raises(UsageError, match="it was removed"):
            memory.number_of(1)
        with pytest.raises(UsageError, match="the ids so far end at 2"):
            memory.number_of(3)
        memory.sealed()
    kept = np.arange(memory.entries) % 3 != 0
    with memory.edit() as edit:
        edit.keep_entries(kept)
        pruned = edit.commit()
    assert pruned.rows().tolist() == np.flatnonzero(kept).tolist()
