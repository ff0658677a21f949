"""One update of a training run.

On a GPU it is recorded as a CUDA graph: to launch it from Python takes many times longer than the device needs for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ibidem.learn.compact.batches import Batch
from ibidem.learn.compact.triplet import Triplet

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.learn.compact.checkpoint import Run

# Updates before the recording, in which libraries settle and the optimiser makes its state.
_PLAIN = 3


def measure(run: Run, batch: Batch) -> Tensor:
    """The loss of a batch, a scalar; all of its rows pass the network together."""
    pivot, positive, negative = run.network(torch.cat([batch.pivots, batch.others])).chunk(3)
    loss: Tensor = run.objective(Triplet(pivot, positive, negative, batch.words[0], batch.words[1]))
    return loss


class PlainUpdate:
    """An update as Python says it."""

    def __init__(self, run: Run, clip: float) -> None:
        self.run = run
        self._clip = clip
        self._parameters = [parameter for group in run.optimizer.param_groups for parameter in group["params"]]

    def __call__(self, batch: Batch) -> None:
        loss = measure(self.run, batch)
        self.run.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self.run.optimizer.step()


class RecordedUpdate:
    """The same on a GPU, recorded after a few updates and again whenever the learning rate has changed."""

    def __init__(self, run: Run, clip: float) -> None:
        self._plain = PlainUpdate(run, clip)
        self._done = 0
        self._held: Batch | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._recorded_rate: float | None = None

    def __call__(self, batch: Batch) -> None:
        if self._held is None:
            self._held = Batch(*(part.clone() for part in batch))
        for held, new in zip(self._held, batch, strict=True):
            held.copy_(new)
        self._done += 1
        if self._done <= _PLAIN:
            self._settle(self._held)
            return
        rate = self._plain.run.optimizer.param_groups[0]["lr"]
        if self._graph is None or rate != self._recorded_rate:
            self._graph, self._recorded_rate = self._record(self._held), rate
        self._graph.replay()

    def _settle(self, batch: Batch) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._plain(batch)
        torch.cuda.current_stream().wait_stream(side)

    def _record(self, batch: Batch) -> torch.cuda.CUDAGraph:
        self._plain.run.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # batches are prepared in another thread
            self._plain(batch)
        return graph
