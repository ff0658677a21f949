"""How often somebody may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_MOST_REMEMBERED = 10_000


class Rates:
    """A bucket of tokens for each client: `burst` at first, `rate` more a second; a request takes one.

    Of the clients, those seen last are remembered; a forgotten one begins with a full bucket.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, client: Hashable) -> float:
        """Take a token; 0, or the seconds until there is one."""
        now = self._clock()
        tokens, since = self._buckets.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._buckets[client] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MOST_REMEMBERED:
            self._buckets.popitem(last=False)
        return wait

    def give_back(self, client: Hashable) -> None:
        """Return a token that was taken for a request which turned out to be another client's."""
        if client in self._buckets:
            tokens, since = self._buckets[client]
            self._buckets[client] = (min(self._burst, tokens + 1), since)
