"""One decoding thread for all requests: what waits is decoded together.

A request is a list of lines and a choice. Of the lines of equal choice, one of each waiting request in turn, those that
are of like length make a batch; a request that was left out a few times is in the next one. So a long request does not
keep the others waiting. There is no delay but a few milliseconds, in which clients that were just answered may ask
again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ibidem.serve.grouping import choose_group
from ibidem.serve.refusal import BusyError, ClosingError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ibidem.serve.metrics import Metrics

Result = TypeVar("Result")
Outcome = TypeVar("Outcome")

_SLOWEST_RATE = 20.0
_MEMORY = 0.8
_LOOKED_AT = 2
_PATIENCE = 3


@dataclass(frozen=True)
class BatchSettings:
    """Lines in a batch; characters that may wait, and the least that a line counts for; seconds a request may wait.

    pause, longest_pause: after a batch of several requests, the decoder waits until for `pause` seconds nobody came.
    """

    size: int = 32
    waiting: int = 200_000
    least: int = 40
    wait_seconds: float = 60.0
    pause: float = 0.002
    longest_pause: float = 0.008


@dataclass(eq=False)
class Order(Generic[Result]):
    """A request on its way: the numbers of the lines that wait, the results so far, how often it was left out."""

    choice: Hashable
    lines: Sequence[str]
    future: Future[list[Result]]
    deadline: float
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
    """Decodes lines in a thread of its own. `decode` is given a choice and lines, and answers line by line."""

    def __init__(
        self,
        decode: Callable[[Any, list[str]], Sequence[Result]],
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

    def submit(self, choice: Hashable, lines: Sequence[str]) -> Future[list[Result]]:
        """Let lines be decoded; raises BusyError where too much waits, ClosingError after `close`.

        A future that is cancelled takes its lines out of the queue.
        """
        future: Future[list[Result]] = Future()
        if not lines:
            future.set_result([])
            return future
        deadline = time.monotonic() + self._settings.wait_seconds
        order = Order(choice, lines, future, deadline, list(range(len(lines))))
        weight = self._weigh(lines)
        with self._changed:
            if self._closing:
                raise ClosingError
            if self._waiting and self._waiting + weight > self._settings.waiting:
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

    def close(self) -> None:
        """Finish what was accepted, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._orders or self._errands or self._closing)
                errands = list(self._errands)
                self._errands.clear()
                if not errands and not self._orders:
                    return
            for errand, future in errands:
                _fulfil(errand, future)
            if not errands:
                if self._crowded:
                    self._let_others_come()
                batch = self._next_batch()
                if batch:
                    self._answer(batch)

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
            places = sorted(self._look_at(alike), key=_length)
            late = max(alike, key=lambda order: order.left_out)
            wanted = None
            if late.left_out >= _PATIENCE:
                wanted = next(number for number, (order, _) in enumerate(places) if order is late)
            group = choose_group([_length(place) for place in places], self._settings.size, wanted)
            batch = [places[number] for number in group]
            self._take(alike, batch)
            return batch

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
        """Leave out requests whose client is gone, that failed, or that waited too long."""
        now = time.monotonic()
        for order in self._orders:
            if order.deadline < now and len(order.pending) == len(order.lines):
                order.fail(BusyError(self._seconds_left()))
        lost = [order for order in self._orders if order.future.done()]
        self._waiting -= sum(self._weigh([order.lines[i] for i in order.pending]) for order in lost)
        self._orders = deque(order for order in self._orders if not order.future.done())

    def _answer(self, batch: list[Place]) -> None:
        began = time.monotonic()
        lines = [order.lines[number] for order, number in batch]
        try:
            results = self._decode(batch[0][0].choice, lines)
        except BaseException as error:
            orders = list(dict.fromkeys(order for order, _ in batch))
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


def _length(place: Place) -> int:
    order, number = place
    return len(order.lines[number])


def _fulfil(errand: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(errand())
    except BaseException as error:
        future.set_exception(error)
