"""All sources return the same rows, and work done ahead keeps its order, its bound and its errors."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from ibidem.learn.compact.key_source import ResidentSource, StreamedSource, open_source, run_ahead
from ibidem.retrieve import ArrayKeys

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_resident_and_streamed_rows_are_the_keys(dtype: type) -> None:
    array = np.random.default_rng(0).normal(size=(100, 6)).astype(dtype)
    keys = ArrayKeys(array)
    wanted = np.random.default_rng(1).random(100) < 0.5
    ids = np.random.default_rng(2).choice(np.flatnonzero(wanted), 40)
    for source in (ResidentSource(keys, wanted, CPU), StreamedSource(keys, CPU)):
        rows = source.place(source.prepare(ids))
        assert rows.dtype == torch.from_numpy(array).dtype
        assert np.array_equal(rows.numpy(), array[ids])


def test_keys_are_resident_if_the_wanted_rows_fit() -> None:
    keys = ArrayKeys(np.zeros((100, 6), np.float16))
    wanted = np.arange(100) < 10
    assert isinstance(open_source(keys, wanted, CPU, 10 * 6 * 2), ResidentSource)
    assert isinstance(open_source(keys, wanted, CPU, 10 * 6 * 2 - 1), StreamedSource)
    assert isinstance(open_source(keys, wanted, CPU), StreamedSource)


def test_work_runs_ahead_in_order_and_within_its_bound() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        made.append(number)
        return number * number

    results = run_ahead(make, range(20), ahead=3)
    assert next(results) == 0
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    # Three results are computed beyond the one that was consumed, and no more.
    time.sleep(0.02)
    assert made == [0, 1, 2, 3]
    assert list(results) == [number * number for number in range(1, 20)]
    assert list(run_ahead(make, range(0))) == []


def test_an_error_ahead_is_raised_when_its_result_is_consumed() -> None:
    def make(number: int) -> int:
        if number == 2:
            raise OSError("the disk is gone")
        return number

    results = run_ahead(make, range(10), ahead=4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(results)


def test_leaving_early_ends_the_thread() -> None:
    def ahead() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("ibidem-ahead")]

    before = len(ahead())
    for number in run_ahead(lambda number: number, range(10**9)):
        assert len(ahead()) == before + 1
        if number == 3:
            break
    assert len(ahead()) == before
