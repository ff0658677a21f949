"""Training of the Compact Network on triplets of clustered keys (section 3.1), with the authors' optimiser."""

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

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.learn.cluster import centroids
from ibidem.learn.compact.key_source import open_source, run_ahead
from ibidem.learn.compact.trained import TrainedCompactor
from ibidem.learn.compact.training_run import CudaGraphUpdate, EagerUpdate, TrainingRun, batch_loss, start_run
from ibidem.learn.compact.triplets import (
    BatchLoader,
    Clusters,
    TripletBatch,
    TripletSampler,
    join_families,
    sample_entries,
)
from ibidem.progress import Progress, silent
from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.compact.settings import CompactSettings
    from ibidem.retrieve import Keys

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
