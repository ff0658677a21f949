"""One decoding thread for all requests: what waits is decoded together.

A request is a list of lines and a choice. Of the lines of equal choice, one of each waiting request in turn, those that
are of like length make a batch; a request that was left out a few times is in the next one. So a long request does not
keep the others waiting. There is no delay but a few milliseconds, in which clients that were just answered may ask
again.

Before every decoding step the decoder calls a check. It answers requests whose time is up, and ends a batch that no
request needs any more. Lines of a cancelled request stay in a batch that other requests share: dropping them would
save little, since the cost of a batch is bounded.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ibidem.serve.grouping import choose_group, cost
from ibidem.serve.refusal import BusyError, ClosingError, SlowError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from ibidem.serve.metrics import Metrics

Result = TypeVar("Result")
Outcome = TypeVar("Outcome")

_SLOWEST_RATE = 20.0
_MEMORY = 0.8
_LOOKED_AT = 2
_PATIENCE = 3
_BRIEF = 0.25
# Seconds that `close` waits for the decoder to take the step at which it stops.
_LAST_STEP = 10.0

logger = logging.getLogger("ibidem.serve")


@dataclass(frozen=True)
class BatchSettings:
    """Lines in a batch; characters that may wait, and the least that a line counts for; seconds a request may wait.

    pause, longest_pause: after a batch of several requests, the decoder waits until for `pause` seconds nobody came.
    budget: the most that the lines of a batch cost together (see `grouping.cost`); request_seconds: how long a request
    may take from its submission to its answer.
    """

    size: int = 32
    waiting: int = 200_000
    least: int = 40
    wait_seconds: float = 60.0
    pause: float = 0.002
    longest_pause: float = 0.008
    budget: float = math.inf
    request_seconds: float = math.inf


class StoppedError(Exception):
    """Raised in a decoder by its check: all requests of the batch were answered or cancelled."""


@dataclass(eq=False)
class Order(Generic[Result]):
    """A request on its way: the numbers of the lines that wait, the results so far, how often it was left out.

    sizes: of each line, by which it is grouped; deadline: by when decoding must begin; latest: by when it must end.
    """

    choice: Hashable
    lines: Sequence[str]
    sizes: Sequence[int]
    future: Future[list[Result]]
    deadline: float
    latest: float
    pending: list[int]
    results: dict[int, Result] = field(default_factory=dict)
    left_out: int = 0

    def put(self, number: int, result: Result) -> None:
        """Keep the result of a line; the last one is the answer."""
        self.results[number] = result
        if len(self.results) == len(self.lines):
            with contextlib.suppress(InvalidStateError):  # the client is gone
                self.future.set_result([self.results[i] for i in range(len(self.lines))])

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)


Place = tuple[Order[Any], int]


class Batcher(Generic[Result]):
    """Decodes lines in a thread of its own. `decode` is given a choice and lines, and answers line by line.

    It is also given a check, to be called before every step of its work, which raises StoppedError to end it.
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
        self._orders: deque[Order[Result]] = deque()
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._rate = 0.0
        self._crowded = False
        self._closing = False
        self._running: list[Order[Result]] = []
        self._stepped: float | None = None
        self._thread = threading.Thread(target=self._work, name="ibidem-decoder", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the decoding thread runs."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Characters that wait, lines that are being decoded left out."""
        return self._waiting

    @property
    def stalled(self) -> float:
        """Seconds since the last step of the work that runs; 0 while there is none."""
        stepped = self._stepped
        return 0.0 if stepped is None else time.monotonic() - stepped

    def submit(
        self,
        choice: Hashable,
        lines: Sequence[str],
        sizes: Sequence[int] | None = None,
        latest: float | None = None,
    ) -> Future[list[Result]]:
        """Let lines be decoded; raises BusyError where too much waits, ClosingError after `close`.

        sizes: tokens of each line, its characters where they are not given; latest: when the answer is needed, by the
        monotonic clock. A future that is cancelled takes its lines out of the queue, and ends its batch where no
        other request has lines in it.
        """
        future: Future[list[Result]] = Future()
        if not lines:
            future.set_result([])
            return future
        now = time.monotonic()
        order = Order(
            choice,
            lines,
            list(map(len, lines)) if sizes is None else sizes,
            future,
            deadline=now + self._settings.wait_seconds,
            latest=now + self._settings.request_seconds if latest is None else latest,
            pending=list(range(len(lines))),
        )
        weight = self._weigh(lines)
        with self._changed:
            if self._closing:
                raise ClosingError
            if not self._has_room(weight):
                self._drop_lost()
                if not self._has_room(weight):
                    raise BusyError(self._seconds_left())
            self._orders.append(order)
            self._waiting += weight
            self._changed.notify_all()
        return future

    def run(self, errand: Callable[[], Outcome]) -> Future[Outcome]:
        """Call something in the decoding thread, before the next batch; raises ClosingError after `close`."""
        future: Future[Outcome] = Future()
        with self._changed:
            if self._closing:
                raise ClosingError
            self._errands.append((errand, future))
            self._changed.notify_all()
        return future

    def close(self, seconds: float | None = None) -> None:
        """Finish what was accepted, and end the thread.

        What is not finished after so many seconds is answered with ClosingError; the decoder stops at its next step.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return
        with self._changed:
            for order in (*self._orders, *self._running):
                order.fail(ClosingError())
        self._thread.join(_LAST_STEP)
        if self._thread.is_alive():
            logger.error("The decoder has not stopped: its last step was %.0f seconds ago.", self.stalled)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._orders or self._errands or self._closing)
                errands = list(self._errands)
                self._errands.clear()
                if not errands and not self._orders:
                    return
            self._stepped = time.monotonic()
            for errand, future in errands:
                _fulfil(errand, future)
            if not errands:
                if self._crowded:
                    self._let_others_come()
                batch = self._next_batch()
                if batch:
                    self._answer(batch)
                    self._running = []
            self._stepped = None

    def _has_room(self, weight: int) -> bool:
        """Whether so much more may wait; an empty queue takes one request of any size."""
        return not self._waiting or self._waiting + weight <= self._settings.waiting

    def _let_others_come(self) -> None:
        """Wait a moment for those who were just answered, as long as they keep coming."""
        latest = time.monotonic() + self._settings.longest_pause
        with self._changed:
            seen = -1
            while seen != self._waiting and not self._closing and self._lines_waiting() < self._settings.size:
                seen = self._waiting
                self._changed.wait(max(0.0, min(self._settings.pause, latest - time.monotonic())))

    def _lines_waiting(self) -> int:
        return sum(len(order.pending) for order in self._orders)

    def _next_batch(self) -> list[Place]:
        """Lines of the choice that waits longest, of like length."""
        with self._changed:
            self._drop_lost()
            if not self._orders:
                return []
            alike = [order for order in self._orders if order.choice == self._orders[0].choice]
            places = sorted(self._look_at(alike), key=_size)
            late = max(alike, key=lambda order: order.left_out)
            wanted = None
            if late.left_out >= _PATIENCE:
                wanted = next(number for number, (order, _) in enumerate(places) if order is late)
            sizes = [_size(place) for place in places]
            group = choose_group(sizes, self._settings.size, wanted, self._settings.budget)
            batch = [places[number] for number in group]
            if wanted is None:
                batch = self._choose_brief(places, batch) or batch
            self._take(alike, batch)
            self._running = list(dict.fromkeys(order for order, _ in batch))
            return batch

    def _choose_brief(self, places: Sequence[Place], batch: Sequence[Place]) -> list[Place]:
        """Choose lines of requests that this batch leaves out, if they take a fraction of its time; else none.

        Both are decoded in any case, and a brief request that is decoded first delays the other by little.
        """
        served = {order for order, _ in batch}
        others = [place for place in places if place[0] not in served]
        if not others:
            return []
        most = _BRIEF * sum(cost(_size(place)) for place in batch)
        group = choose_group([_size(place) for place in others], self._settings.size, None, most)
        brief = [others[number] for number in group]
        return brief if sum(cost(_size(place)) for place in brief) <= most else []

    def _look_at(self, orders: Sequence[Order[Result]]) -> Iterator[Place]:
        """Some batches' worth of waiting lines, one of each request in turn."""
        most = self._settings.size * _LOOKED_AT
        turns = zip_longest(*([(order, number) for number in order.pending[:most]] for order in orders))
        return islice((place for turn in turns for place in turn if place is not None), most)

    def _take(self, alike: Sequence[Order[Result]], batch: Sequence[Place]) -> None:
        """Take the lines of a batch from their requests, and these to the end of the queue."""
        for order, number in batch:
            order.pending.remove(number)
        served = dict.fromkeys(order for order, _ in batch)
        for order in alike:
            order.left_out = 0 if order in served else order.left_out + 1
        rest = [order for order in self._orders if order not in served]
        self._orders = deque([*rest, *(order for order in served if order.pending)])
        self._waiting -= self._weigh([order.lines[number] for order, number in batch])
        self._crowded = len(served) > 1

    def _drop_lost(self) -> None:
        """Leave out requests whose client is gone, that failed, or that waited or took too long."""
        now = time.monotonic()
        self._end_late(self._orders, now)
        for order in self._orders:
            if order.deadline < now and len(order.pending) == len(order.lines):
                order.fail(BusyError(self._seconds_left()))
        lost = [order for order in self._orders if order.future.done()]
        self._waiting -= sum(self._weigh([order.lines[i] for i in order.pending]) for order in lost)
        self._orders = deque(order for order in self._orders if not order.future.done())

    def _end_late(self, orders: Iterable[Order[Result]], now: float) -> None:
        """Answer requests that have taken longer than they may."""
        for order in orders:
            if order.latest < now:
                order.fail(SlowError(self._settings.request_seconds))

    def _check(self, orders: Sequence[Order[Result]]) -> None:
        """Record a decoding step; raises StoppedError when all of these requests were answered or cancelled."""
        self._stepped = now = time.monotonic()
        self._end_late(orders, now)
        if all(order.future.done() for order in orders):
            raise StoppedError

    def _answer(self, batch: list[Place]) -> None:
        began = time.monotonic()
        lines = [order.lines[number] for order, number in batch]
        orders = list(dict.fromkeys(order for order, _ in batch))
        try:
            results = self._decode(batch[0][0].choice, lines, partial(self._check, orders))
        except StoppedError:
            return
        except BaseException as error:
            if len(orders) == 1:
                orders[0].fail(error)
                return
            # One request must not spoil those it shares a batch with.
            for alone in orders:
                self._answer([(order, number) for order, number in batch if order is alone])
            return
        for (order, number), result in zip(batch, results, strict=True):
            order.put(number, result)
        seconds = time.monotonic() - began
        rate = self._weigh(lines) / max(seconds, 1e-6)
        self._rate = rate if not self._rate else _MEMORY * self._rate + (1 - _MEMORY) * rate
        if self._metrics is not None:
            self._metrics.count_batch(len(lines), sum(map(len, lines)), seconds)

    def _weigh(self, lines: Sequence[str]) -> int:
        return sum(max(len(line), self._settings.least) for line in lines)

    def _seconds_left(self) -> float:
        """About how long what waits will take."""
        return min(60.0, self._waiting / max(self._rate, _SLOWEST_RATE))


def _size(place: Place) -> int:
    order, number = place
    return order.sizes[number]


def _fulfil(errand: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(errand())
    except BaseException as error:
        future.set_exception(error)
