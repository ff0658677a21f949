"""Requests share batches, get their own answers, and nobody waits for what is not theirs."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.serve.batcher import Batcher, BatchSettings
from ibidem.serve.refusal import BusyError, ClosingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Decoder:
    """Answers a line with its choice and itself, in upper case; can be held back."""

    def __init__(self) -> None:
        self.batches: list[tuple[Any, list[str]]] = []
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()

    def __call__(self, choice: Any, lines: list[str]) -> list[str]:
        self.begun.set()
        self.free.wait(10)
        self.batches.append((choice, lines))
        if "poison" in lines:
            raise ValueError("poison")
        return [f"{choice} {line.upper()}" for line in lines]

    def hold(self) -> None:
        self.begun.clear()
        self.free.clear()


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


@pytest.fixture
def batcher(decoder: Decoder) -> Iterator[Batcher[str]]:
    made = Batcher(decoder, BatchSettings(size=4, waiting=1000, least=10, wait_seconds=30))
    yield made
    decoder.free.set()
    made.close()


def keep_busy(batcher: Batcher[str], decoder: Decoder) -> None:
    """Let the decoder work on something, so that what comes next waits."""
    decoder.hold()
    batcher.submit("busy", ["x"])
    assert decoder.begun.wait(10)


def test_an_answer_has_the_order_of_its_lines(batcher: Batcher[str]) -> None:
    assert batcher.submit("a", ["one", "two", "three", "four", "five"]).result(10) == [
        f"a {word}" for word in ("ONE", "TWO", "THREE", "FOUR", "FIVE")
    ]
    assert batcher.submit("a", []).result(10) == []


def test_those_that_wait_share_a_batch(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    futures = [batcher.submit("a", [str(number)]) for number in range(4)]
    decoder.free.set()
    assert [future.result(10) for future in futures] == [[f"a {number}"] for number in range(4)]
    assert decoder.batches[1:] == [("a", ["0", "1", "2", "3"])]


def test_a_long_request_does_not_keep_a_short_one_waiting(batcher: Batcher[str], decoder: Decoder) -> None:
    """Lines of other lengths would make cheaper batches, but a request is left out three times and not more."""
    keep_busy(batcher, decoder)
    long = batcher.submit("a", ["as long as this"] * 60)
    short = batcher.submit("a", ["short"])
    decoder.free.set()
    assert short.result(10) == ["a SHORT"]
    assert len(long.result(10)) == 60
    batches = [lines for _, lines in decoder.batches[1:]]
    assert "short" in batches[3]
    assert len(batches) == 16


def test_lines_of_like_length_go_together(batcher: Batcher[str], decoder: Decoder) -> None:
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


def test_choices_are_decoded_apart_and_in_turn(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    first = batcher.submit("a", [f"a{number}" for number in range(8)])
    second = batcher.submit("b", ["b0"])
    decoder.free.set()
    assert (len(first.result(10)), second.result(10)) == (8, ["b B0"])
    assert [choice for choice, _ in decoder.batches[1:]] == ["a", "b", "a"]


def test_who_is_gone_is_not_decoded(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    gone, stays = batcher.submit("a", ["gone"] * 6), batcher.submit("a", ["stays"])
    assert gone.cancel()
    decoder.free.set()
    assert stays.result(10) == ["a STAYS"]
    with pytest.raises(CancelledError):
        gone.result(0)
    assert not any("gone" in lines for _, lines in decoder.batches)
    assert batcher.waiting == 0


def test_who_goes_while_being_decoded_disturbs_nobody(batcher: Batcher[str], decoder: Decoder) -> None:
    decoder.hold()
    gone = batcher.submit("a", ["gone"])
    assert decoder.begun.wait(10)
    gone.cancel()
    decoder.free.set()
    assert batcher.submit("a", ["next"]).result(10) == ["a NEXT"]


def test_a_full_queue_refuses_at_once_and_says_for_how_long(batcher: Batcher[str], decoder: Decoder) -> None:
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
    assert batcher.submit("a", ["w" * 2000]).result(10), "an empty queue takes one request of any size"


def test_short_lines_count_for_the_least(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    batcher.submit("a", ["w"] * 60)
    assert batcher.waiting == 600
    decoder.free.set()


def test_who_waited_too_long_is_told_so(decoder: Decoder) -> None:
    batcher = Batcher(decoder, BatchSettings(size=1, wait_seconds=0.01))
    keep_busy(batcher, decoder)
    late = batcher.submit("a", ["late"])
    time.sleep(0.05)
    decoder.free.set()
    with pytest.raises(BusyError):
        late.result(10)
    batcher.close()
    assert decoder.batches == [("busy", ["x"])]


def test_one_bad_request_spoils_no_other(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    good, bad, fine = (batcher.submit("a", [word]) for word in ("good", "poison", "fine"))
    decoder.free.set()
    assert good.result(10) == ["a GOOD"]
    assert fine.result(10) == ["a FINE"]
    with pytest.raises(ValueError, match="poison"):
        bad.result(10)
    assert batcher.submit("a", ["after"]).result(10) == ["a AFTER"]


def test_errands_run_in_the_decoding_thread_before_the_next_batch(batcher: Batcher[str], decoder: Decoder) -> None:
    keep_busy(batcher, decoder)
    waits = batcher.submit("a", ["waits"])
    done: list[int] = []
    errand = batcher.run(lambda: done.append(len(decoder.batches)) or threading.current_thread().name)
    failing = batcher.run(lambda: 1 / 0)
    decoder.free.set()
    assert errand.result(10) == "ibidem-decoder"
    with pytest.raises(ZeroDivisionError):
        failing.result(10)
    assert waits.result(10) == ["a WAITS"]
    assert done == [1], "after the batch that ran, before the one that waited"


def test_closing_finishes_what_was_accepted_and_takes_no_more(decoder: Decoder) -> None:
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
    with pytest.raises(ClosingError):
        batcher.run(lambda: None)
    batcher.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.text("xyz", min_size=1, max_size=5), max_size=9), st.booleans()),
        max_size=12,
    )
)
def test_everybody_gets_their_own(requests: Sequence[tuple[str, list[str], bool]]) -> None:
    """Whatever comes in whatever order, and whoever goes away."""
    decoder = Decoder()
    batcher = Batcher(decoder, BatchSettings(size=3, waiting=10**9, pause=0.0, longest_pause=0.0))
    decoder.hold()
    futures = [(batcher.submit(choice, lines), choice, lines, leaves) for choice, lines, leaves in requests]
    for future, _, _, leaves in futures:
        if leaves:
            future.cancel()
    decoder.free.set()
    for future, choice, lines, _ in futures:
        if not future.cancelled():
            assert future.result(10) == [f"{choice} {line.upper()}" for line in lines]
    batcher.close()
    assert batcher.waiting == 0
    assert all(len(lines) <= 3 for _, lines in decoder.batches)
