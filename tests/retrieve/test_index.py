"""What all indexes share: query checks and index files."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve import ArrayKeys
from ibidem.retrieve.index import check_search, check_shape, clean_queries, no_neighbours, write_file

if TYPE_CHECKING:
    from pathlib import Path


def test_invalid_queries_are_rejected() -> None:
    check_search(torch.zeros(0, 4), 1, 4)
    for queries, k, message in [
        (torch.zeros(2, 5), 1, "4 dimensions"),
        (torch.zeros(4), 1, r"shape \[4\]"),
        (torch.zeros(2, 4), 0, "k = 0"),
    ]:
        with pytest.raises(UsageError, match=message):
            check_search(queries, k, 4)


def test_unusable_queries_become_zeros() -> None:
    queries = torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [torch.inf, 0.0], [1e30, 0.0]], dtype=torch.float64)
    clean, usable = clean_queries(queries)
    assert usable.tolist() == [True, False, False, False]
    assert clean.tolist() == [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    found = no_neighbours(queries, 3)
    assert found.distances.dtype == torch.float32
    assert found.entries.tolist() == [[-1] * 3] * 4


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "index"
    write_file(target, lambda path: path.write_text("first") and None)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space left")

    with pytest.raises(MemoryFolderError, match=r"no space left.*ibidem index"):
        write_file(target, fail)
    assert target.read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_system_that_cannot_sync_a_folder_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync
    synced: list[bool] = []

    def refuse_folders(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        if synced[-1]:
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_file(tmp_path / "index", lambda path: path.write_text("first") and None)
    assert synced == [False, True]
    assert (tmp_path / "index").read_text() == "first"


def test_an_index_of_another_shape_is_rejected() -> None:
    keys = ArrayKeys(np.zeros((3, 2), np.float16))
    check_shape("index x", 3, 2, keys)
    with pytest.raises(MemoryFolderError, match=r"index x has 4 keys of 2 dimensions.*3 of 2.*ibidem index"):
        check_shape("index x", 4, 2, keys)
