"""Training of the Compact Network on triplets of clustered keys (section 3.1), with the authors' optimiser.

A run can be resumed from its checkpoint. On a GPU an update is captured as a CUDA graph, because launching its kernels
from Python takes many times longer than the device needs to run them.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ibidem.compact import Compactor, NetworkCompactor
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.cluster import centroids
from ibidem.learn.compact.key_source import open_source, run_ahead
from ibidem.learn.compact.losses import CompactTriplets, build_loss
from ibidem.learn.compact.triplets import (
    BatchLoader,
    Clusters,
    TripletBatch,
    TripletSampler,
    join_families,
    sample_entries,
)
from ibidem.memory import make_directory, replace_file
from ibidem.progress import Progress, silent
from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.compact.compaction import CompactSettings
    from ibidem.retrieve import Keys


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


@dataclass(frozen=True)
class TrainedCompactor:
    """Hold the result of training.

    Attributes:
        compactor: The compactor, on the CPU.
        report: Figures of the training, as JSON.
    """

    compactor: Compactor
    report: dict[str, object]


@dataclass
class TrainingRun:
    """Hold all that changes from one update to the next.

    Attributes:
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
        """Record a validation loss, and copy the weights if it is the lowest.

        Args:
            loss: The mean loss of the held-out triplets after `update` updates.
        """
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

        Args:
            workspace: Folder of the checkpoint; it need not exist.
            identity: Digest of the data and settings of the run.

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
    """Compute the loss of a batch, a scalar; all rows pass through the network in one call.

    Args:
        run: The run whose network and objective are used.
        batch: The keys of the triplets, on the device of the network.
    """
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


# Keys that the first weights are scaled to.
_SAMPLE = 4096
_VALIDATION_BATCHES = 4
_REPORT_EVERY = 20
# Validations of the history that the report keeps.
_HISTORY = 50
# Streams of the seed.
_SAMPLE_STREAM, _TRAINING_STREAM, _VALIDATION_STREAM = 3, 4, 5


def train_network(
    keys: Keys,
    values: NDArray[np.int32],
    labels: NDArray[np.int32] | None,
    vocabulary_size: int,
    settings: CompactSettings,
    *,
    device: torch.device | str = "cpu",
    workspace: Path | None = None,
    resident_bytes: int | None = None,
    progress: Progress = silent,
) -> TrainedCompactor:
    """Train the Compact Network f_alpha, and return the weights with the lowest validation loss.

    Validation uses the held-out members of the clusters; f_theta is discarded. The same arguments give the same
    weights for every `resident_bytes`.

    Args:
        keys: The keys of the memory, [entries, d].
        values: [entries], the token id of each entry.
        labels: [entries], the cluster of each entry, negative for none; without `settings.clusters` only EXCLUDED is
            used, and None is allowed.
        vocabulary_size: Number of target tokens.
        settings: The settings of training.
        device: Device of the training.
        workspace: Folder for a checkpoint; an interrupted run that resumes from it gives the same weights.
        resident_bytes: Bytes for keys on the device, see `open_source`.
        progress: Progress callback.

    Returns:
        The compactor on the CPU, and a report.

    Raises:
        UsageError: The labels are missing or give no triplets, or the loss becomes infinite or NaN.
        MemoryFolderError: Some keys are not finite.
    """
    device = torch.device(device)
    if labels is None and settings.clusters:
        raise UsageError(
            "Training on clusters needs their labels: cluster the memory first, or train without clusters."
        )
    grouped = labels if labels is not None and settings.clusters else join_families(values, labels)
    clusters = Clusters.of(
        values, sample_entries(grouped, settings.share, settings.seed), held_out=settings.held_out, seed=settings.seed
    )
    sampler = partial(
        TripletSampler, clusters, batch=settings.batch, pivots=settings.pivots, negatives=settings.negatives
    )
    training_triplets = sampler(seed=(settings.seed, _TRAINING_STREAM))
    validation_triplets = sampler(seed=(settings.seed, _VALIDATION_STREAM), held=_has_held_triplets(clusters))
    sample = _sample_keys(keys, clusters, settings.seed)
    run = start_run(sample, vocabulary_size, settings, device)
    identity = _identify(values, grouped, sample, vocabulary_size, settings)
    resumed = workspace is not None and run.restore(workspace, identity)

    source = open_source(keys, clusters.clustered(), device, resident_bytes)
    pivots = source
    if settings.pivots == "static":
        means = centroids(keys, clusters.training_labels(), device, count=len(clusters), progress=progress)
        table = ArrayKeys(means.astype(np.float16))  # rounded as the keys are
        pivots = open_source(table, np.ones(len(clusters), bool), device, resident_bytes)
    loader, validation_loader = (
        BatchLoader(triplets, source, pivots, device) for triplets in (training_triplets, validation_triplets)
    )
    validation = [validation_loader.place(validation_loader.prepare(number)) for number in range(_VALIDATION_BATCHES)]
    if not resumed:
        run.record(_validate(run, validation))
    _train(run, loader, validation, settings, device, workspace, identity, progress)

    compactor = run.network.cpu()
    compactor.load_state_dict(run.best)
    compactor.eval().requires_grad_(False)
    largest = max(float(compactor(batch.others.cpu()).abs().max()) for batch in validation)
    return TrainedCompactor(compactor, _report(run, clusters, training_triplets.batch, largest))


def _train(
    run: TrainingRun,
    loader: BatchLoader,
    validation: list[TripletBatch],
    settings: CompactSettings,
    device: torch.device,
    workspace: Path | None,
    identity: str,
    progress: Progress,
) -> None:
    """Continue a run to its last update, or until `patience` validations have not lowered the loss."""
    apply = (CudaGraphUpdate if device.type == "cuda" else EagerUpdate)(run, settings.clip)
    before, start = run.seconds, time.perf_counter()
    if run.stale >= settings.patience:
        return
    for batch in run_ahead(loader.prepare, range(run.update + 1, settings.updates + 1)):
        run.update += 1
        apply(loader.place(batch))
        if run.update % _REPORT_EVERY == 0:
            progress("Training the compactor", run.update / settings.updates, run.update, "updates")
        if run.update % settings.validate_every and run.update != settings.updates:
            continue
        loss = _validate(run, validation)
        run.scheduler.step(loss)
        run.record(loss)
        run.seconds = before + time.perf_counter() - start
        if workspace is not None:
            run.save(workspace, identity)
        if run.stale >= settings.patience:
            break


def _validate(run: TrainingRun, validation: list[TripletBatch]) -> float:
    with torch.no_grad():
        loss = float(torch.stack([batch_loss(run, batch) for batch in validation]).mean())
    if not np.isfinite(loss):
        raise UsageError(
            f"Training the compactor diverged: at update {run.update} its loss is {loss}. "
            "Lower the learning rate, or choose another objective or activation."
        )
    return loss


def _has_held_triplets(clusters: Clusters) -> bool:
    """Return whether held-out members give triplets; else validation draws training members, as the authors' does."""
    return len(np.unique(clusters.tokens[clusters.held.sizes > 0])) > 1


def _sample_keys(keys: Keys, clusters: Clusters, seed: int) -> Tensor:
    """Read some of the keys to train on: [at most 4096, d]."""
    entries = clusters.training_entries()
    random = np.random.default_rng([seed, _SAMPLE_STREAM])
    chosen = random.choice(entries, min(_SAMPLE, len(entries)), replace=False)
    sample = torch.from_numpy(keys.gather(np.sort(chosen)))
    if not bool(torch.isfinite(sample).all()):
        raise MemoryFolderError("Some keys are not finite numbers. Check the memory with `ibidem verify`.")
    return sample


def _identify(
    values: NDArray[np.int32],
    labels: NDArray[np.int32],
    sample: Tensor,
    vocabulary_size: int,
    settings: CompactSettings,
) -> str:
    """Compute the digest of all that a run depends on; only a checkpoint of the same digest is resumed."""
    arrays = (np.ascontiguousarray(array) for array in (values, labels, sample.numpy()))
    sums = [[list(array.shape), zlib.crc32(array.data)] for array in arrays]
    facts = [settings.summary(), vocabulary_size, sums]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _report(run: TrainingRun, clusters: Clusters, batch: int, largest: float) -> dict[str, object]:
    return {
        "updates": run.update,
        "best_update": run.best_update,
        "loss": run.best_loss,
        "history": [list(point) for point in run.history[:: -(-len(run.history) // _HISTORY)]],
        "entries": len(clusters.members),
        "entries_held_out": int(clusters.held.sizes.sum()),
        "clusters": len(clusters),
        "families": clusters.families,
        "batch": batch,
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        "parameters": sum(parameter.numel() for parameter in run.network.parameters()),
        "largest": largest,
        "seconds": run.seconds,
    }
