"""Training of the Compact Network on triplets of clustered keys (the paper's 3.1), with the authors' optimiser."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ibidem.compact import NetworkCompactor
from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.cluster.centres import centroids
from ibidem.learn.compact.batches import Batch, Batches
from ibidem.learn.compact.checkpoint import Run
from ibidem.learn.compact.clusters import Clusters, join_families, thin
from ibidem.learn.compact.initialisation import initialise
from ibidem.learn.compact.objective import Objective
from ibidem.learn.compact.source import open_source, run_ahead
from ibidem.learn.compact.trained import TrainedCompactor
from ibidem.learn.compact.triplets import Triplets
from ibidem.learn.compact.updating import PlainUpdate, RecordedUpdate, measure
from ibidem.progress import Progress, silent
from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.compact.settings import CompactSettings
    from ibidem.retrieve import Keys

_SAMPLE = 4096
_VALIDATION_BATCHES = 4
_REPORT_EVERY = 20
_HISTORY = 50
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
    """Train f_alpha; a copy of the best weights by the loss of held-out members is kept, f_theta is dropped.

    values, labels: [entries]; a label >= 0 is a cluster's, and without clusters only the excluded (-3) are heeded.
    workspace: a folder where a killed run left off; with it, the result is that of an uninterrupted one.
    resident_bytes: see `open_source`. The same arguments give the same weights, whatever resident_bytes.
    """
    device = torch.device(device)
    if labels is None and settings.clusters:
        raise UsageError(
            "Training on clusters needs their labels: cluster the memory first, or train without clusters."
        )
    grouped = labels if labels is not None and settings.clusters else join_families(values, labels)
    clusters = Clusters.of(
        values, thin(grouped, settings.share, settings.seed), held_out=settings.held_out, seed=settings.seed
    )
    draw = partial(Triplets, clusters, batch=settings.batch, pivots=settings.pivots, negatives=settings.negatives)
    drawing = draw(seed=(settings.seed, _TRAINING_STREAM))
    judging = draw(seed=(settings.seed, _VALIDATION_STREAM), held=_enough_held(clusters))
    sample = _sample(keys, clusters, settings.seed)
    run = start_run(sample, vocabulary_size, settings, device)
    identity = _identity(values, grouped, sample, vocabulary_size, settings)
    resumed = workspace is not None and run.restore(workspace, identity)

    source = open_source(keys, clusters.taking_part(), device, resident_bytes)
    pivots = source
    if settings.pivots == "static":
        means = centroids(keys, clusters.numbers(), device, count=len(clusters), progress=progress)
        table = ArrayKeys(means.astype(np.float16))  # rounded like the keys
        pivots = open_source(table, np.ones(len(clusters), bool), device, resident_bytes)
    batches, judges = (Batches(triplets, source, pivots, device) for triplets in (drawing, judging))
    judged = [judges.place(judges.prepare(number)) for number in range(_VALIDATION_BATCHES)]
    if not resumed:
        run.note(_judge(run, judged))
    _train(run, batches, judged, settings, device, workspace, identity, progress)

    compactor = run.network.cpu()
    compactor.load_state_dict(run.best)
    compactor.eval().requires_grad_(False)
    largest = max(float(compactor(batch.others.cpu()).abs().max()) for batch in judged)
    return TrainedCompactor(compactor, _report(run, clusters, drawing.batch, largest))


def _report(run: Run, clusters: Clusters, batch: int, largest: float) -> dict[str, object]:
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


def start_run(sample: Tensor, vocabulary_size: int, settings: CompactSettings, device: torch.device) -> Run:
    """A network, its objective and their optimiser at update 0, the same for the same seed on every device."""
    dimension = sample.shape[1]
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        network = NetworkCompactor(dimension, settings.hidden_size(dimension), settings.dimension, settings.activation)
        objective = Objective.of(settings, vocabulary_size)
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
    return Run(network, objective, optimizer, scheduler)


def _train(
    run: Run,
    batches: Batches,
    judged: list[Batch],
    settings: CompactSettings,
    device: torch.device,
    workspace: Path | None,
    identity: str,
    progress: Progress,
) -> None:
    """Go on from where the run stands to its end, or until its validation loss has long not fallen."""
    apply = (RecordedUpdate if device.type == "cuda" else PlainUpdate)(run, settings.clip)
    before, start = run.seconds, time.perf_counter()
    if run.stale >= settings.patience:
        return
    for batch in run_ahead(batches.prepare, range(run.update + 1, settings.updates + 1)):
        run.update += 1
        apply(batches.place(batch))
        if run.update % _REPORT_EVERY == 0:
            progress("Training the compactor", run.update / settings.updates, run.update, "updates")
        if run.update % settings.validate_every and run.update != settings.updates:
            continue
        current = _judge(run, judged)
        run.scheduler.step(current)
        run.note(current)
        run.seconds = before + time.perf_counter() - start
        if workspace is not None:
            run.save(workspace, identity)
        if run.stale >= settings.patience:
            break


def _enough_held(clusters: Clusters) -> bool:
    """Whether held-out members make triplets; else fresh ones of the training members judge, as the authors' do."""
    return len(np.unique(clusters.words[clusters.held.sizes > 0])) > 1


def _judge(run: Run, judged: list[Batch]) -> float:
    with torch.no_grad():
        loss = float(torch.stack([measure(run, batch) for batch in judged]).mean())
    if not np.isfinite(loss):
        raise UsageError(
            f"Training the compactor went astray: at update {run.update} its loss is {loss}. "
            "Lower the learning rate, or choose another objective or activation."
        )
    return loss


def _sample(keys: Keys, clusters: Clusters, seed: int) -> Tensor:
    """Some keys to train on, [at most 4096, d]."""
    entries = clusters.list_training()
    random = np.random.default_rng([seed, _SAMPLE_STREAM])
    chosen = random.choice(entries, min(_SAMPLE, len(entries)), replace=False)
    sample = torch.from_numpy(keys.gather(np.sort(chosen)))
    if not bool(torch.isfinite(sample).all()):
        raise MemoryFolderError("Some keys are not finite numbers. Check the memory with `ibidem verify`.")
    return sample


def _identity(
    values: NDArray[np.int32],
    labels: NDArray[np.int32],
    sample: Tensor,
    vocabulary_size: int,
    settings: CompactSettings,
) -> str:
    """What a saved run must have been trained on, and with which settings, to be taken up."""
    arrays = (np.ascontiguousarray(array) for array in (values, labels, sample.numpy()))
    sums = [[list(array.shape), zlib.crc32(array.data)] for array in arrays]
    facts = [settings.summary(), vocabulary_size, sums]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
