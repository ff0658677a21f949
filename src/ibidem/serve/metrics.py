"""Figures about the server, in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LINES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass
class Histogram:
    """How many observations were at most as large as each bound, their sum and their number."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.bounds)

    def observe(self, value: float) -> None:
        """Count a value."""
        place = bisect_left(self.bounds, value)
        if place < len(self.counts):
            self.counts[place] += 1
        self.total += value
        self.number += 1

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """The histogram as Prometheus reads it: counts are cumulative."""
        comma = "," if labels else ""
        seen = 0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound:g}"}} {seen}'
        braces = f"{{{labels}}}" if labels else ""
        yield f'{name}_bucket{{{labels}{comma}le="+Inf"}} {self.number}'
        yield f"{name}_sum{braces} {self.total:.6f}"
        yield f"{name}_count{braces} {self.number}"


class Metrics:
    """Counters of one server; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._seconds: dict[str, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._batches = Histogram(_LINES)
        self._decoding = 0.0
        self._characters = 0
        self._learnt = 0

    @property
    def characters(self) -> int:
        """Characters that were translated."""
        return self._characters

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; `path` is the route's own, so that clients cannot make up labels."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path].observe(seconds)

    def count_batch(self, lines: int, characters: int, seconds: float) -> None:
        """Count a batch that was decoded."""
        with self._lock:
            self._batches.observe(lines)
            self._characters += characters
            self._decoding += seconds

    def count_learnt(self, pairs: int) -> None:
        """Count pairs that a memory took."""
        with self._lock:
            self._learnt += pairs

    def render(self, gauges: Mapping[str, Mapping[str, float]]) -> str:
        """All figures; a gauge has a name and, by its labels, values of this moment."""
        with self._lock:
            lines = [*self._render_requests(), *self._render_work()]
        for name, values in gauges.items():
            lines.append(f"# TYPE {name} gauge")
            lines += [f"{name}{f'{{{labels}}}' if labels else ''} {value:g}" for labels, value in values.items()]
        return "\n".join([*lines, ""])

    def _render_requests(self) -> Iterator[str]:
        yield "# TYPE ibidem_requests_total counter"
        for (path, status), count in sorted(self._requests.items()):
            yield f'ibidem_requests_total{{path="{escape(path)}",code="{status}"}} {count}'
        yield "# TYPE ibidem_request_seconds histogram"
        for path, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("ibidem_request_seconds", f'path="{escape(path)}"')

    def _render_work(self) -> Iterator[str]:
        yield "# TYPE ibidem_batch_lines histogram"
        yield from self._batches.lines("ibidem_batch_lines")
        for name, value in (
            ("ibidem_characters_total", self._characters),
            ("ibidem_decoding_seconds_total", self._decoding),
            ("ibidem_learnt_pairs_total", self._learnt),
        ):
            yield f"# TYPE {name} counter"
            yield f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def escape(text: str) -> str:
    """A label's value."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
