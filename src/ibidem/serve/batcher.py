"""A queue of requests and one thread that decodes their lines in batches.

A request is a list of lines with options. A batch has lines of equal options and similar length, taken from the waiting
requests in turn, so that a long request does not block the others. A request that was skipped a few times is part of
the next batch. After a batch of several requests the thread pauses for a few milliseconds, in which clients that were
just answered can send their next request.

The decoder calls a check before every decoding step. The check fails requests that exceed their time limit and stops a
batch when all its requests are done or cancelled. Lines of a cancelled request stay in a batch that other requests
share: removing them would save little, since the cost of a batch is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import Counter, deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice, zip_longest
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ibidem.serve.http_error import BusyError, ClosingError, RequestTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from ibidem.serve.metrics import Metrics

Result = TypeVar("Result")

# Cost of a batch in tokens: STEP_COST times the longest line, and for each line its length and PADDING_COST times the
# longest.
STEP_COST = 4.0
PADDING_COST = 0.2
# A line of this many tokens costs twice its length, because attention grows with the length.
_DOUBLE_COST_TOKENS = 64
# Characters a second: a lower bound of the decoding rate, for the estimate of `Retry-After`.
_MIN_RATE = 20.0
_RATE_SMOOTHING = 0.8
_CANDIDATE_BATCHES = 2
_MAX_SKIPS = 3
_SHORT_BATCH_FRACTION = 0.25
# Seconds that `close` waits for the decoder to reach the step at which it stops.
_STOP_SECONDS = 10.0

logger = logging.getLogger("ibidem.serve")


@dataclass(frozen=True)
class BatchSettings:
    """Settings of a batcher.

    Attributes:
        size: Largest number of lines of a batch.
        queue_characters: Characters of all lines that may wait.
        min_line_characters: Characters that a shorter line counts for in `queue_characters`.
        wait_seconds: Seconds in which the decoding of a request must start.
        pause: After a batch of several requests, the thread waits until no request arrived for this many seconds.
        max_pause: Largest total of these pauses in seconds.
        budget: Largest cost of a batch, see `decoding_cost`.
        request_seconds: Seconds from the submission of a request to its result.
    """

    size: int = 32
    queue_characters: int = 200_000
    min_line_characters: int = 40
    wait_seconds: float = 60.0
    pause: float = 0.002
    max_pause: float = 0.008
    budget: float = math.inf
    request_seconds: float = math.inf


class BatchStoppedError(Exception):
    """Raised by the check of a batch whose requests are all done or cancelled."""


@dataclass(eq=False)
class PendingRequest(Generic[Result]):
    """A request that waits or is being decoded.

    Attributes:
        options: Requests with equal options share batches.
        lines: The lines to decode.
        sizes: Tokens of each line.
        future: Receives the results in the order of the lines.
        start_deadline: Time by which decoding must start, by the monotonic clock.
        deadline: Time by which all lines must be decoded.
        waiting: Numbers of the lines that are not part of a batch yet.
        client: Identifies the client; None if its share of the queue is not limited.
        results: Results by line number.
        skipped: Batches in a row that have no line of this request.
    """

    options: Hashable
    lines: Sequence[str]
    sizes: Sequence[int]
    future: Future[list[Result]]
    start_deadline: float
    deadline: float
    waiting: list[int]
    client: Hashable = None
    results: dict[int, Result] = field(default_factory=dict)
    skipped: int = 0

    def put(self, number: int, result: Result) -> None:
        """Store the result of a line; the last one completes the request.

        Args:
            number: The number of the line, from 0.
            result: Its result.
        """
        self.results[number] = result
        if len(self.results) == len(self.lines):
            with contextlib.suppress(InvalidStateError):  # the request was cancelled
                self.future.set_result([self.results[i] for i in range(len(self.lines))])

    def fail(self, error: BaseException) -> None:
        """Complete the request with an error.

        Args:
            error: The exception that the future raises; ignored if the request is complete or cancelled.
        """
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


class _Line(NamedTuple):
    """A line of a request."""

    request: PendingRequest[Any]
    number: int

    @property
    def text(self) -> str:
        return self.request.lines[self.number]

    @property
    def size(self) -> int:
        return self.request.sizes[self.number]


def decoding_cost(tokens: int) -> float:
    """Estimate the time to decode a line, in units of a token of a short line.

    Args:
        tokens: Tokens of the line.

    Examples:
        >>> decoding_cost(64)
        128.0
    """
    return tokens + tokens * tokens / _DOUBLE_COST_TOKENS


def choose_group(sizes: Sequence[int], most: int, required: int | None = None, budget: float = math.inf) -> range:
    """Choose the lines whose joint decoding wastes least.

    A batch takes as many steps as its longest line has tokens, and all lines are padded to that length. The group
    maximises the sum of the sizes divided by the cost of the batch.

    Args:
        sizes: Tokens of the lines in ascending order, [lines].
        most: Largest number of lines of the group.
        required: Index of a line that the group must contain.
        budget: Largest sum of `decoding_cost` of a group of more than one line.

    Returns:
        The indices of the group, which are contiguous.

    Examples:
        >>> choose_group([20, 20, 20, 20, 400], 8)
        range(0, 4)
    """
    sums = [0, *accumulate(sizes)]
    costs = [0.0, *accumulate(map(decoding_cost, sizes))]
    first, last = (0, len(sizes) - 1) if required is None else (required, min(required + most, len(sizes)) - 1)
    best, group = -1.0, range(0)
    for end in range(first, last + 1):
        latest = end if required is None else required
        longest = max(sizes[end], 1)
        for start in range(max(0, end + 1 - most), latest + 1):
            if start < end and costs[end + 1] - costs[start] > budget:
                continue
            total = sums[end + 1] - sums[start]
            efficiency = total / (total + longest * (STEP_COST + PADDING_COST * (end + 1 - start)))
            if efficiency > best:
                best, group = efficiency, range(start, end + 1)
    return group


class Batcher(Generic[Result]):
    """Decodes the lines of all requests in a thread of its own.

    Args:
        decode: Called with options, lines and a check; returns a result for each line. It must call the check before
            every step of its work, and the check raises BatchStoppedError to end it.
        settings: Sizes and time limits.
        metrics: Receives the size and the duration of each batch.
    """

    def __init__(
        self,
        decode: Callable[[Any, list[str], Callable[[], None]], Sequence[Result]],
        settings: BatchSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._decode = decode
        self._settings = settings or BatchSettings()
        self._metrics = metrics
        self._requests: deque[PendingRequest[Result]] = deque()
        self._changed = threading.Condition()
        self._waiting_characters = 0
        self._rate = 0.0
        self._shared_batch = False
        self._closing = False
        self._running: list[PendingRequest[Result]] = []
        self._last_step: float | None = None
        self._thread = threading.Thread(target=self._run_thread, name="ibidem-decoder", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the decoding thread is running."""
        return self._thread.is_alive()

    @property
    def waiting_characters(self) -> int:
        """Characters of the lines that are not part of a batch yet."""
        return self._waiting_characters

    @property
    def seconds_since_step(self) -> float:
        """Seconds since the last step of the current work, or 0 if the thread is idle."""
        last_step = self._last_step
        return 0.0 if last_step is None else time.monotonic() - last_step

    def submit(
        self,
        options: Hashable,
        lines: Sequence[str],
        sizes: Sequence[int] | None = None,
        deadline: float | None = None,
        client: Hashable = None,
    ) -> Future[list[Result]]:
        """Queue lines for decoding.

        Cancelling the future removes the lines from the queue, and stops the current batch if no other request has
        lines in it.

        Args:
            options: Passed to `decode`; requests with equal options share batches.
            lines: Lines to decode; without any, the future is complete.
            sizes: Tokens of each line, [lines]; its characters if None.
            deadline: Time by which the result is needed, by the monotonic clock; from `request_seconds` if None.
            client: Identifies the client, whose lines may fill half of the queue; None for no such limit.

        Returns:
            A future of the results in the order of the lines.

        Raises:
            BusyError: The queue, or the client's half of it, is full.
            ClosingError: `close` was called.
        """
        future: Future[list[Result]] = Future()
        if not lines:
            future.set_result([])
            return future
        now = time.monotonic()
        request = PendingRequest(
            options,
            lines,
            list(map(len, lines)) if sizes is None else sizes,
            future,
            start_deadline=now + self._settings.wait_seconds,
            deadline=now + self._settings.request_seconds if deadline is None else deadline,
            waiting=list(range(len(lines))),
            client=client,
        )
        characters = self._count_characters(lines)
        with self._changed:
            if self._closing:
                raise ClosingError
            if not self._has_room(characters, client):
                self._drop_finished()
                if not self._has_room(characters, client):
                    raise BusyError(self._estimate_wait())
            self._requests.append(request)
            self._waiting_characters += characters
            self._changed.notify_all()
        return future

    def close(self, seconds: float | None = None) -> None:
        """Finish all accepted requests and end the thread.

        Args:
            seconds: Requests that are unfinished after this time fail with ClosingError, and the decoder stops at its
                next step. None for no limit.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return
        with self._changed:
            for request in (*self._requests, *self._running):
                request.fail(ClosingError())
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            logger.error("The decoder has not stopped: its last step was %.0f seconds ago.", self.seconds_since_step)

    def _run_thread(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closing)
                if not self._requests:
                    return
            self._last_step = time.monotonic()
            if self._shared_batch:
                self._wait_for_more()
            batch = self._next_batch()
            if batch:
                self._decode_batch(batch)
                self._running = []
            self._last_step = None

    def _has_room(self, characters: int, client: Hashable) -> bool:
        """Check the size of the queue, and of its part that one client fills.

        An empty queue accepts one request of any size, and a client without waiting lines one that the queue has room
        for.
        """
        if not self._waiting_characters:
            return True
        most = self._settings.queue_characters
        if self._waiting_characters + characters > most:
            return False
        if client is None or self._waiting_characters + characters <= most // 2:
            return True
        own = sum(
            self._count_characters([request.lines[number] for number in request.waiting])
            for request in self._requests
            if request.client == client
        )
        return not own or own + characters <= most // 2

    def _wait_for_more(self) -> None:
        """Pause while further requests keep arriving."""
        latest = time.monotonic() + self._settings.max_pause
        with self._changed:
            before = -1
            while (
                before != self._waiting_characters
                and not self._closing
                and sum(len(request.waiting) for request in self._requests) < self._settings.size
            ):
                before = self._waiting_characters
                self._changed.wait(max(0.0, min(self._settings.pause, latest - time.monotonic())))

    def _next_batch(self) -> list[_Line]:
        """Take lines of similar length with the options of the oldest request."""
        with self._changed:
            self._drop_finished()
            if not self._requests:
                return []
            alike = [request for request in self._requests if request.options == self._requests[0].options]
            lines = sorted(self._candidates(alike), key=lambda line: line.size)
            most_skipped = max(alike, key=lambda request: request.skipped)
            required = None
            if most_skipped.skipped >= _MAX_SKIPS:
                required = next(index for index, line in enumerate(lines) if line.request is most_skipped)
            sizes = [line.size for line in lines]
            batch = [lines[i] for i in choose_group(sizes, self._settings.size, required, self._settings.budget)]
            if required is None:
                batch = self._choose_short_batch(lines, batch) or batch
            self._take(alike, batch)
            self._running = list(dict.fromkeys(line.request for line in batch))
            return batch

    def _candidates(self, requests: Sequence[PendingRequest[Result]]) -> Iterator[_Line]:
        """Yield waiting lines for some batches, one of each request in turn, the first request of each client first."""
        most = self._settings.size * _CANDIDATE_BATCHES
        counts: Counter[Hashable] = Counter()
        ranks: dict[PendingRequest[Result], int] = {}
        for request in requests:
            ranks[request] = counts[request.client]
            counts[request.client] += 1
        requests = sorted(requests, key=ranks.__getitem__)
        rounds = zip_longest(*([_Line(request, number) for number in request.waiting[:most]] for request in requests))
        return islice((line for lines in rounds for line in lines if line is not None), most)

    def _choose_short_batch(self, lines: Sequence[_Line], batch: Sequence[_Line]) -> list[_Line]:
        """Choose lines of requests outside a batch that take a fraction of its time, or none.

        Both are decoded in any case, and a short batch that goes first delays the other by little.
        """
        included = {line.request for line in batch}
        others = [line for line in lines if line.request not in included]
        if not others:
            return []
        budget = _SHORT_BATCH_FRACTION * sum(decoding_cost(line.size) for line in batch)
        group = choose_group([line.size for line in others], self._settings.size, None, budget)
        short = [others[index] for index in group]
        return short if sum(decoding_cost(line.size) for line in short) <= budget else []

    def _take(self, alike: Sequence[PendingRequest[Result]], batch: Sequence[_Line]) -> None:
        """Remove the lines of a batch from their requests, and move these to the end of the queue."""
        for line in batch:
            line.request.waiting.remove(line.number)
        included = dict.fromkeys(line.request for line in batch)
        for request in alike:
            request.skipped = 0 if request in included else request.skipped + 1
        rest = [request for request in self._requests if request not in included]
        self._requests = deque([*rest, *(request for request in included if request.waiting)])
        self._waiting_characters -= self._count_characters([line.text for line in batch])
        self._shared_batch = len(included) > 1

    def _drop_finished(self) -> None:
        """Remove requests that were cancelled, failed or exceeded a time limit."""
        now = time.monotonic()
        self._fail_late(self._requests, now)
        for request in self._requests:
            if request.start_deadline < now and len(request.waiting) == len(request.lines):
                request.fail(BusyError(self._estimate_wait()))
        finished = [request for request in self._requests if request.future.done()]
        self._waiting_characters -= sum(
            self._count_characters([request.lines[number] for number in request.waiting]) for request in finished
        )
        self._requests = deque(request for request in self._requests if not request.future.done())

    def _fail_late(self, requests: Iterable[PendingRequest[Result]], now: float) -> None:
        for request in requests:
            if request.deadline < now:
                request.fail(RequestTimeoutError(self._settings.request_seconds))

    def _check(self, requests: Sequence[PendingRequest[Result]]) -> None:
        """Record a decoding step; raise BatchStoppedError if all requests of the batch are done or cancelled."""
        self._last_step = now = time.monotonic()
        self._fail_late(requests, now)
        if all(request.future.done() for request in requests):
            raise BatchStoppedError

    def _decode_batch(self, batch: list[_Line]) -> None:
        began = time.monotonic()
        lines = [line.text for line in batch]
        requests = list(dict.fromkeys(line.request for line in batch))
        try:
            results = self._decode(requests[0].options, lines, partial(self._check, requests))
        except BatchStoppedError:
            return
        except BaseException as error:
            if len(requests) == 1:
                requests[0].fail(error)
                return
            # Decode each request alone, so that one does not fail the others.
            for request in requests:
                self._decode_batch([line for line in batch if line.request is request])
            return
        for line, result in zip(batch, results, strict=True):
            line.request.put(line.number, result)
        seconds = time.monotonic() - began
        rate = self._count_characters(lines) / max(seconds, 1e-6)
        self._rate = _RATE_SMOOTHING * self._rate + (1 - _RATE_SMOOTHING) * rate if self._rate else rate
        if self._metrics is not None:
            self._metrics.count_batch(len(lines), sum(map(len, lines)), seconds)

    def _count_characters(self, lines: Sequence[str]) -> int:
        return sum(max(len(line), self._settings.min_line_characters) for line in lines)

    def _estimate_wait(self) -> float:
        """Estimate the seconds until all waiting lines are decoded, at most 60."""
        return min(60.0, self._waiting_characters / max(self._rate, _MIN_RATE))
