"""Batches: which lines are decoded together, results, cancellation and time limits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.serve.batcher import PADDING_COST, STEP_COST, Batcher, BatchSettings, choose_group, decoding_cost
from ibidem.serve.http_error import BusyError, ClosingError, RequestTimeoutError

from .conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Decoder:
    """Returns the options and the line in upper case; `hold` makes it wait."""

    def __init__(self) -> None:
        self.batches: list[tuple[Any, list[str]]] = []
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()

    def __call__(self, options: Any, lines: list[str], check: Callable[[], None]) -> list[str]:
        check()
        self.begun.set()
        self.free.wait(10)
        self.batches.append((options, lines))
        if "poison" in lines:
            raise ValueError("poison")
        return [f"{options} {line.upper()}" for line in lines]

    def hold(self) -> None:
        self.begun.clear()
        self.free.clear()


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


@pytest.fixture
def batcher(decoder: Decoder) -> Iterator[Batcher[str]]:
    made = Batcher(decoder, BatchSettings(size=4, queue_characters=1000, min_line_characters=10, wait_seconds=30))
    yield made
    decoder.free.set()
    made.close()


def keep_busy(batcher: Batcher[str], decoder: Decoder) -> None:
    """Occupy the decoder, so that further requests wait."""
    decoder.hold()
    batcher.submit("busy", ["x"])
    assert decoder.begun.wait(10)


def test_results_are_in_the_order_of_the_lines(batcher: Batcher[str]) -> None:
    assert batcher.submit("a", ["one", "two", "three", "four", "five"]).result(10) == [
        f"a {word}" for word in ("ONE", "TWO", "THREE", "FOUR", "FIVE")
    ]
    assert batcher.submit("a", []).result(10) == []


def test_waiting_requests_share_a_batch(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    futures = [batcher.submit("a", [str(number)]) for number in range(4)]
    decoder.free.set()
    assert [future.result(10) for future in futures] == [[f"a {number}"] for number in range(4)]
    assert decoder.batches[1:] == [("a", ["0", "1", "2", "3"])]


def test_a_long_request_does_not_delay_a_short_one(batcher: Batcher[str], decoder: Decoder) -> None:
    """The short request is decoded first, because it takes a fraction of the time."""
    keep_busy(batcher, decoder)
    long = batcher.submit("a", ["as long as this"] * 60)
    short = batcher.submit("a", ["short"])
    decoder.free.set()
    assert short.result(10) == ["a SHORT"]
    assert len(long.result(10)) == 60
    batches = [lines for _, lines in decoder.batches[1:]]
    assert batches[0] == ["short"]
    assert len(batches) == 16


def test_a_request_is_skipped_three_times_at_most(batcher: Batcher[str], decoder: Decoder) -> None:
    """Lines of other lengths would make cheaper batches."""
    keep_busy(batcher, decoder)
    many = batcher.submit("a", ["as long as this"] * 60)
    one = batcher.submit("a", ["x" * 40])
    decoder.free.set()
    assert one.result(10) == ["a " + "X" * 40]
    assert len(many.result(10)) == 60
    batches = [lines for _, lines in decoder.batches[1:]]
    assert "x" * 40 in batches[3]


def test_lines_of_similar_length_share_a_batch(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    lengths = [1, 90, 2, 80, 3, 70, 4, 75]
    futures = [batcher.submit("a", ["x" * length]) for length in lengths]
    decoder.free.set()
    for future in futures:
        future.result(10)
    assert {frozenset(map(len, lines)) for _, lines in decoder.batches[1:]} == {
        frozenset({1, 2, 3, 4}),
        frozenset({70, 75, 80, 90}),
    }


def test_requests_of_different_options_alternate(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    first = batcher.submit("a", [f"a{number}" for number in range(8)])
    second = batcher.submit("b", ["b0"])
    decoder.free.set()
    assert (len(first.result(10)), second.result(10)) == (8, ["b B0"])
    assert [options for options, _ in decoder.batches[1:]] == ["a", "b", "a"]


def test_a_cancelled_request_is_not_decoded(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    cancelled, stays = batcher.submit("a", ["drop"] * 6), batcher.submit("a", ["stays"])
    assert cancelled.cancel()
    decoder.free.set()
    assert stays.result(10) == ["a STAYS"]
    with pytest.raises(CancelledError):
        cancelled.result(0)
    assert not any("drop" in lines for _, lines in decoder.batches)
    assert batcher.waiting_characters == 0


def test_cancelling_a_running_request_does_not_affect_the_next(batcher: Batcher[str], decoder: Decoder) -> None:
    decoder.hold()
    cancelled = batcher.submit("a", ["drop"])
    assert decoder.begun.wait(10)
    cancelled.cancel()
    decoder.free.set()
    assert batcher.submit("a", ["next"]).result(10) == ["a NEXT"]


class Stepping:
    """Takes up to `last` steps, or until its check stops it; each step waits for the semaphore `go`."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.steps = 0
        self.batches: list[list[str]] = []
        self.begun = threading.Event()
        self.last = 10**9

    def __call__(self, options: Any, lines: list[str], check: Callable[[], None]) -> list[str]:
        self.batches.append(lines)
        self.begun.set()
        for _ in range(self.last):
            check()
            self.steps += 1
            self.go.acquire(timeout=10)
        return [f"{options} {line}" for line in lines]


def test_cancelled_work_stops_at_the_next_step() -> None:
    decoder = Stepping()
    batcher = Batcher(decoder, BatchSettings(size=4))
    cancelled = batcher.submit("a", ["drop"] * 9)
    assert decoder.begun.wait(10)
    cancelled.cancel()
    decoder.last = 1
    decoder.go.release(100)
    assert batcher.submit("a", ["next"]).result(10) == ["a next"]
    batcher.close()
    assert decoder.batches == [["drop"] * 4, ["next"]], "the waiting lines of the cancelled request were not decoded"
    assert decoder.steps <= 3


def test_cancelling_one_request_does_not_stop_a_shared_batch() -> None:
    decoder = Stepping()
    batcher = Batcher(decoder, BatchSettings(size=4, pause=0, max_pause=0))
    started = batcher.submit("b", ["first"])
    assert decoder.begun.wait(10)
    cancelled, stays = batcher.submit("a", ["drop"]), batcher.submit("a", ["stay"])
    decoder.last = 5
    started.cancel()
    decoder.begun.clear()
    decoder.go.release(2)
    assert decoder.begun.wait(10)
    cancelled.cancel()
    decoder.go.release(100)
    assert stays.result(10) == ["a stay"]
    batcher.close()
    assert decoder.batches == [["first"], ["drop", "stay"]]


def test_a_request_over_its_time_limit_fails_and_stops() -> None:
    decoder = Stepping()
    batcher = Batcher(decoder, BatchSettings(size=1, request_seconds=0.05))
    slow = batcher.submit("a", ["slow", "later"])
    assert decoder.begun.wait(10)
    time.sleep(0.1)
    decoder.go.release(100)
    with pytest.raises(RequestTimeoutError, match=r"longer than 0\.05 seconds"):
        slow.result(10)
    batcher.close()
    assert len(decoder.batches) == 1
    assert decoder.steps <= 3


def test_a_batch_stays_within_its_budget() -> None:
    decoder = Decoder()
    batcher = Batcher(decoder, BatchSettings(size=32, budget=1_000))
    keep_busy(batcher, decoder)
    long = batcher.submit("a", ["long"] * 20, [128] * 20)
    huge = batcher.submit("a", ["huge"], [10_000])
    short = batcher.submit("a", ["short"] * 40, [10] * 40)
    decoder.free.set()
    for future in (long, huge, short):
        future.result(10)
    batcher.close()
    sizes = {"long": 128, "huge": 10_000, "short": 10}
    for _, lines in decoder.batches[1:]:
        assert len(lines) == 1 or sum(decoding_cost(sizes[line]) for line in lines) <= 1_000
    assert max(len(lines) for _, lines in decoder.batches) == 32, "short lines fill a batch"


def test_cancelled_requests_free_the_queue(batcher: Batcher[str], decoder: Decoder) -> None:
    """Also while the decoder is busy."""
    keep_busy(batcher, decoder)
    cancelled = batcher.submit("a", ["w" * 900])
    cancelled.cancel()
    stays = batcher.submit("a", ["w" * 200])
    decoder.free.set()
    assert stays.result(10)


def test_closing_stops_work_over_the_time_limit() -> None:
    decoder = Stepping()
    batcher = Batcher(decoder, BatchSettings(size=1))
    running = batcher.submit("a", ["runs"])
    assert decoder.begun.wait(10)
    waiting = batcher.submit("a", ["waits"])
    decoder.go.release(2)
    threading.Timer(0.2, decoder.go.release, (10,)).start()
    batcher.close(0.05)
    assert not batcher.alive
    for future in (running, waiting):
        with pytest.raises(ClosingError):
            future.result(0)
    assert decoder.batches == [["runs"]]


def test_seconds_since_the_last_step() -> None:
    stepping = Stepping()
    batcher = Batcher(stepping, BatchSettings(size=1))
    assert batcher.seconds_since_step == 0
    stepping.last = 3
    future = batcher.submit("a", ["x"])
    assert stepping.begun.wait(10)
    time.sleep(0.1)
    assert batcher.seconds_since_step >= 0.1
    stepping.go.release()
    wait_until(lambda: stepping.steps == 2 and batcher.seconds_since_step < 0.1)
    stepping.go.release(100)
    future.result(10)
    wait_until(lambda: batcher.seconds_since_step == 0)
    batcher.close()


def test_a_full_queue_refuses_at_once_with_retry_after(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    waiting = batcher.submit("a", ["w" * 900])
    began = time.monotonic()
    with pytest.raises(BusyError) as refused:
        batcher.submit("a", ["w" * 200])
    assert time.monotonic() - began < 1
    assert refused.value.status == 503
    assert 1 <= (refused.value.retry_after or 0) <= 60
    decoder.free.set()
    assert waiting.result(10)
    assert batcher.submit("a", ["w" * 2000]).result(10), "an empty queue accepts one request of any size"


def test_one_client_fills_half_of_the_queue(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    batcher.submit("a", ["w" * 400], client="one")
    with pytest.raises(BusyError):
        batcher.submit("a", ["w" * 200], client="one")
    batcher.submit("a", ["w" * 100], client="one")
    batcher.submit("a", ["w" * 500], client="another")
    with pytest.raises(BusyError):
        batcher.submit("a", ["w"], client="third")


def test_many_requests_of_one_client_do_not_delay_another(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    many = [batcher.submit("a", ["equal"], client="one") for _ in range(40)]
    other = batcher.submit("a", ["other"], client="another")
    decoder.free.set()
    assert other.result(10) == ["a OTHER"]
    assert [future.result(10) for future in many] == [["a EQUAL"]] * 40
    assert "other" in [line for _, lines in decoder.batches[:5] for line in lines]


def test_short_lines_count_for_the_minimum(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    batcher.submit("a", ["w"] * 60)
    assert batcher.waiting_characters == 600
    decoder.free.set()


def test_a_request_that_waits_too_long_fails(decoder: Decoder) -> None:
    batcher = Batcher(decoder, BatchSettings(size=1, wait_seconds=0.01))
    keep_busy(batcher, decoder)
    late = batcher.submit("a", ["late"])
    time.sleep(0.05)
    decoder.free.set()
    with pytest.raises(BusyError):
        late.result(10)
    batcher.close()
    assert decoder.batches == [("busy", ["x"])]


def test_a_failing_request_does_not_fail_its_batch(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    good, bad, fine = (batcher.submit("a", [word]) for word in ("good", "poison", "fine"))
    decoder.free.set()
    assert good.result(10) == ["a GOOD"]
    assert fine.result(10) == ["a FINE"]
    with pytest.raises(ValueError, match="poison"):
        bad.result(10)
    assert batcher.submit("a", ["after"]).result(10) == ["a AFTER"]


def test_closing_finishes_accepted_requests_and_refuses_new_ones(decoder: Decoder) -> None:
    batcher = Batcher(decoder, BatchSettings(size=2))
    keep_busy(batcher, decoder)
    accepted = batcher.submit("a", ["1", "2", "3"])
    closing = threading.Thread(target=batcher.close)
    closing.start()
    decoder.free.set()
    closing.join(10)
    assert accepted.result(0) == ["a 1", "a 2", "a 3"]
    with pytest.raises(ClosingError):
        batcher.submit("a", ["4"])
    batcher.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.text("xyz", min_size=1, max_size=5), max_size=9), st.booleans()),
        max_size=12,
    )
)
def test_every_request_gets_its_own_results(requests: Sequence[tuple[str, list[str], bool]]) -> None:
    """For any requests in any order, some of them cancelled."""
    decoder = Decoder()
    batcher = Batcher(decoder, BatchSettings(size=3, queue_characters=10**9, pause=0.0, max_pause=0.0))
    decoder.hold()
    futures = [(batcher.submit(options, lines), options, lines, cancels) for options, lines, cancels in requests]
    for future, _, _, cancels in futures:
        if cancels:
            future.cancel()
    decoder.free.set()
    for future, options, lines, _ in futures:
        if not future.cancelled():
            assert future.result(10) == [f"{options} {line.upper()}" for line in lines]
    batcher.close()
    assert batcher.waiting_characters == 0
    assert all(len(lines) <= 3 for _, lines in decoder.batches)


def efficiency(lengths: list[int]) -> float:
    return sum(lengths) / (sum(lengths) + max(*lengths, 1) * (STEP_COST + PADDING_COST * len(lengths)))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(1, 8), st.data())
def test_no_other_group_is_more_efficient(lengths: list[int], size: int, data: st.DataObject) -> None:
    lengths.sort()
    wanted = data.draw(st.none() | st.integers(0, len(lengths) - 1))
    chosen = choose_group(lengths, size, wanted)
    assert 1 <= len(chosen) <= size
    assert wanted is None or wanted in chosen
    groups = [
        range(start, end)
        for start in range(len(lengths))
        for end in range(start + 1, len(lengths) + 1)
        if end - start <= size and (wanted is None or wanted in range(start, end))
    ]
    assert efficiency([lengths[i] for i in chosen]) == max(efficiency([lengths[i] for i in group]) for group in groups)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.floats(1, 5_000), st.data())
def test_a_group_stays_within_its_budget(lengths: list[int], budget: float, data: st.DataObject) -> None:
    lengths.sort()
    wanted = data.draw(st.none() | st.integers(0, len(lengths) - 1))
    chosen = choose_group(lengths, 8, wanted, budget)
    assert len(chosen) >= 1
    assert wanted is None or wanted in chosen
    assert len(chosen) == 1 or sum(decoding_cost(lengths[i]) for i in chosen) <= budget


def test_groups_of_similar_lines() -> None:
    assert choose_group([40] * 10, 8) == range(0, 8)
    assert choose_group([20, 20, 20, 20, 400], 8) == range(0, 4)
    assert choose_group([20, 20, 20, 20, 400], 8, required=4) == range(0, 5)
    assert choose_group([5], 8) == range(0, 1)
