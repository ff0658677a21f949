"""Where the time of a translation goes: encoder, decoder, search, combiner, mixture, and the rest."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from ibidem.combine import best_candidates
from ibidem.decode import MemoryScorer, SearchSettings, beam_search

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.model import BaseModel


class Stopwatch:
    """Seconds by name; on a GPU every part waits for the device, which the undivided whole does not."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, its time taken."""

        def measured(*given: Any, **named: Any) -> Any:
            self._wait()
            began = time.perf_counter()
            answer = call(*given, **named)
            self._wait()
            self.seconds[name] += time.perf_counter() - began
            return answer

        return measured

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class Watched:
    """An object some of whose methods are timed; all else is its own."""

    def __init__(self, watched: Any, methods: dict[str, Callable[..., Any]]) -> None:
        self._watched = watched
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._watched, name)


def measure_shares(
    model: BaseModel, scorer: MemoryScorer, batches: Sequence[Sequence[Sequence[int]]], beam: int
) -> dict[str, float]:
    """The share of the time that each part takes; they sum to 1."""
    watch = Stopwatch(model.device)

    def start(*given: Any) -> Any:
        decoding = model.start(*given)
        return Watched(decoding, {"step": watch.timed("decoder", decoding.step)})

    watched_model: Any = Watched(model, {"start": watch.timed("encoder", start)})
    index: Any = Watched(scorer.index, {"search": watch.timed("search", scorer.index.search)})
    combiner: Any = Watched(scorer.combiner, {"weigh": watch.timed("combiner", scorer.combiner.weigh)})
    watched_scorer = MemoryScorer(index, scorer.values, combiner)
    best = watch.timed("mixture", best_candidates)
    whole = watch.timed("whole", lambda batch: beam_search(watched_model, batch, settings, watched_scorer, best=best))
    settings = SearchSettings(beam=beam)
    for batch in batches:
        whole(batch)
    total = watch.seconds.pop("whole")
    shares = {name: seconds / total for name, seconds in watch.seconds.items()}
    return {**shares, "beams and the rest": 1 - sum(shares.values())}
