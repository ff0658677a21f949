"""The state of a training run: its start, its checkpoint, and one update of it.

On a GPU an update is captured as a CUDA graph, because launching its kernels from Python takes many times longer than
the device needs to run them.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ibidem.compact import NetworkCompactor
from ibidem.learn.compact.losses import CompactTriplets, build_loss
from ibidem.learn.compact.triplets import TripletBatch
from ibidem.memory import make_directory, replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.learn.compact.settings import CompactSettings

FILE = "compactor.pt"
# Root mean square of the compact components at the start: dot products and distances of a few units at 64 dimensions.
OUTPUT_SIZE = 0.25
_HIDDEN_SIZE = 1.0
_TINY = 1e-6
# Updates before the capture, in which libraries initialise and the optimiser allocates its state.
_EAGER_UPDATES = 3

_MODULES = ("network", "objective", "optimizer", "scheduler")
_FIELDS = ("update", "best", "best_loss", "best_update", "stale", "history", "seconds")
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass
class TrainingRun:
    """Hold all that changes from one update to the next.

    Args:
        network: The network that is trained.
        objective: The loss with its parameters.
        optimizer: The optimiser of both.
        scheduler: The schedule of the learning rate.
        update: Number of updates so far.
        best: A copy of the weights with the lowest validation loss.
        best_loss: That loss.
        best_update: Its update.
        stale: Number of validations since then.
        history: The update and loss of each validation.
        seconds: Training time, over all interrupted runs.
    """

    network: NetworkCompactor
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.ReduceLROnPlateau
    update: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    best_loss: float = float("inf")
    best_update: int = 0
    stale: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    def record(self, loss: float) -> None:
        """Record a validation loss, and copy the weights if it is the lowest."""
        self.history.append((self.update, loss))
        self.stale += 1
        if loss < self.best_loss:
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.network.state_dict().items()}
            self.best_loss, self.best_update, self.stale = loss, self.update, 0

    def save(self, workspace: Path, identity: str) -> None:
        """Write a checkpoint of the run, replacing the previous one atomically.

        Args:
            workspace: Folder of the checkpoint.
            identity: Digest of the data and settings of the run.
        """
        state: dict[str, Any] = {name: getattr(self, name).state_dict() for name in _MODULES}
        state |= {name: getattr(self, name) for name in _FIELDS}
        content = io.BytesIO()
        torch.save(state, content)
        make_directory(workspace)
        replace_file(workspace / FILE, _digest(content.getvalue(), identity) + content.getvalue())

    def restore(self, workspace: Path, identity: str) -> bool:
        """Load the checkpoint of this identity; the checkpoint of another run and a damaged one are ignored.

        Returns:
            Whether a checkpoint was loaded.
        """
        try:
            stored = (workspace / FILE).read_bytes()
        except OSError:
            return False
        digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if digest != _digest(content, identity):
            return False
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for name in _MODULES:
            getattr(self, name).load_state_dict(state[name])
        for name in _FIELDS:
            setattr(self, name, state[name])
        return True


def _digest(content: bytes, identity: str) -> bytes:
    return hashlib.sha256(identity.encode() + content).digest()


def start_run(sample: Tensor, vocabulary_size: int, settings: CompactSettings, device: torch.device) -> TrainingRun:
    """Create a network, its loss and its optimiser at update 0.

    The same seed gives the same weights on every device.

    Args:
        sample: [n, d], keys that the first weights are scaled to.
        vocabulary_size: Number of target tokens.
        settings: The settings of training.
        device: Device of the run.

    Returns:
        The run.
    """
    dimension = sample.shape[1]
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        network = NetworkCompactor(dimension, settings.hidden_size(dimension), settings.dimension, settings.activation)
        objective = build_loss(settings, vocabulary_size)
    initialise(network, sample, torch.Generator().manual_seed(settings.seed))
    network, objective = network.to(device), objective.to(device)
    optimizer = torch.optim.Adam(
        [*network.parameters(), *objective.parameters()],
        lr=settings.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-8,
        capturable=device.type == "cuda",
    )
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=5, min_lr=settings.final_learning_rate
    )
    return TrainingRun(network, objective, optimizer, scheduler)


@torch.no_grad()
def initialise(network: NetworkCompactor, sample: Tensor, generator: torch.Generator) -> None:
    """Draw normal weights, and scale and shift each layer so that its outputs for a sample are centred.

    The authors' Xavier weights of gain 0.01 and 0.1 do not depend on the scale of the keys: with a sigmoid the output
    is then the same for all keys, and training has to leave that plateau first.

    Args:
        network: The network; its weights are replaced.
        sample: [n, d] keys.
        generator: Source of the weights.
    """
    states = sample.to(network.inner.weight.dtype)
    _fit_layer(network.inner, states, _HIDDEN_SIZE, generator)
    _fit_layer(network.outer, network.activate(states), OUTPUT_SIZE, generator)


def _fit_layer(layer: nn.Linear, inputs: Tensor, size: float, generator: torch.Generator) -> None:
    """Draw weights with which the outputs for the inputs [n, in] have the mean 0 and the root mean square `size`."""
    mean = inputs.mean(dim=0)
    layer.weight.normal_(generator=generator)
    outputs = (inputs - mean) @ layer.weight.T
    layer.weight.mul_(size / outputs.square().mean().sqrt().clamp_min(_TINY))
    layer.bias.copy_(-(layer.weight @ mean))


def batch_loss(run: TrainingRun, batch: TripletBatch) -> Tensor:
    """Compute the loss of a batch, a scalar; all rows pass through the network in one call."""
    pivot, positive, negative = run.network(torch.cat([batch.pivots, batch.others])).chunk(3)
    loss: Tensor = run.objective(CompactTriplets(pivot, positive, negative, batch.tokens[0], batch.tokens[1]))
    return loss


class EagerUpdate:
    """Apply one update of a run.

    Args:
        run: The run.
        clip: Largest norm of the gradient.
    """

    def __init__(self, run: TrainingRun, clip: float) -> None:
        self.run = run
        self._clip = clip
        self._parameters = [parameter for group in run.optimizer.param_groups for parameter in group["params"]]

    def __call__(self, batch: TripletBatch) -> None:
        loss = batch_loss(self.run, batch)
        self.run.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self.run.optimizer.step()


class CudaGraphUpdate:
    """Apply one update of a run on a GPU, captured as a CUDA graph after a few eager updates.

    The update is captured again whenever the learning rate changes.

    Args:
        run: The run.
        clip: Largest norm of the gradient.
    """

    def __init__(self, run: TrainingRun, clip: float) -> None:
        self._eager = EagerUpdate(run, clip)
        self._done = 0
        self._buffers: TripletBatch | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured_rate: float | None = None

    def __call__(self, batch: TripletBatch) -> None:
        if self._buffers is None:
            self._buffers = TripletBatch(*(part.clone() for part in batch))
        for buffer, new in zip(self._buffers, batch, strict=True):
            buffer.copy_(new)
        self._done += 1
        if self._done <= _EAGER_UPDATES:
            self._warm_up(self._buffers)
            return
        rate = self._eager.run.optimizer.param_groups[0]["lr"]
        if self._graph is None or rate != self._captured_rate:
            self._graph, self._captured_rate = self._capture(self._buffers), rate
        self._graph.replay()

    def _warm_up(self, batch: TripletBatch) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._eager(batch)
        torch.cuda.current_stream().wait_stream(side)

    def _capture(self, batch: TripletBatch) -> torch.cuda.CUDAGraph:
        self._eager.run.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        # Another thread prepares batches meanwhile, so errors are captured for this thread only.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._eager(batch)
        return graph
