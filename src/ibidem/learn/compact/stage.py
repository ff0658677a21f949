"""The learning stage that trains a compactor by one of the methods, and stores the compact keys of a memory."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.compact import compact_keys, load_compactor, store_compactor
from ibidem.errors import UsageError
from ibidem.learn.card import write_card
from ibidem.learn.compact.pca_svd import train_pca, train_svd
from ibidem.learn.compact.trained import TrainedCompactor, read_given
from ibidem.learn.compact.trainer import train_network
from ibidem.learn.digests import UNPRUNED, contents, digest, extracted, given_digest, is_done, stored
from ibidem.memory import (
    ADAPTIVE_COMBINER_ARTEFACT,
    COMPACTOR_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
    INDEX_ARTEFACT,
    check_complete,
    check_identity,
)
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.compact.settings import CompactSettings
    from ibidem.memory import Edit, Memory
    from ibidem.model import BaseModel
    from ibidem.retrieve import Keys

STAGE = "compact"
# Results that are valid in one key space only.
_DEPENDENT_STAGES = ("index", "tune", "prune")
_DEPENDENT_ARTEFACTS = (INDEX_ARTEFACT, FIXED_COMBINER_ARTEFACT, ADAPTIVE_COMBINER_ARTEFACT)


@dataclass(frozen=True)
class TrainingData:
    """Hold the data that compactors are trained on; each method uses a part of it.

    Args:
        keys: The keys of the memory, [entries, d].
        values: [entries], the token id of each entry; for the network.
        labels: [entries], the cluster of each entry; for the network. None if the memory is not clustered.
        vocabulary_size: Number of target tokens; for the network.
        output_matrix: [V, d], the output matrix of the base model; for the SVD.
    """

    keys: Keys
    values: NDArray[np.int32]
    labels: NDArray[np.int32] | None
    vocabulary_size: int
    output_matrix: torch.Tensor | None = None


def train_compactor(
    data: TrainingData,
    settings: CompactSettings,
    *,
    device: torch.device | str = "cpu",
    workspace: Path | None = None,
    progress: Progress = silent,
) -> TrainedCompactor | None:
    """Train a compactor by the method of the settings.

    Args:
        data: The keys and what the method needs with them.
        settings: The settings of training.
        device: Device of the training.
        workspace: Folder for a checkpoint of the network's training.
        progress: Progress callback.

    Returns:
        The compactor and a report; None for the method "none".

    Raises:
        UsageError: The data lacks what the method needs, or a setting does not fit the data.
    """
    device = torch.device(device)
    if settings.method == "network":
        return train_network(
            data.keys,
            data.values,
            data.labels,
            data.vocabulary_size,
            settings,
            device=device,
            workspace=workspace,
            progress=progress,
        )
    if settings.method == "pca":
        return train_pca(
            data.keys, settings.dimension, share=settings.share, seed=settings.seed, device=device, progress=progress
        )
    if settings.method == "svd":
        if data.output_matrix is None:
            raise UsageError("The method svd needs the base model's output matrix: give the model, or choose pca.")
        return train_svd(data.output_matrix.to(device), settings.dimension, settings.svd_rows)
    return None


def compact_digest(settings: CompactSettings, compactor: Path | None, clusters: str | None, base: str) -> str:
    """Compute the digest of all that the compact keys depend on.

    Args:
        settings: The settings of training.
        compactor: File of a compactor to use instead of training; None trains one.
        clusters: Digest of the clusters.
        base: Digest of the extraction.
    """
    if compactor is not None:
        return given_digest(_payload_digest(compactor), base)
    return digest(settings.relevant(), clusters if settings.needs_clusters else None, base)


def compact_memory(
    memory: Memory,
    settings: CompactSettings,
    *,
    model: BaseModel | None = None,
    compactor: Path | None = None,
    keep_keys: bool = False,
    again: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
) -> Memory:
    """Train a compactor, or read one from a file, and store the compact keys of a memory.

    The combiners and the index belong to the previous space and are removed.

    Args:
        memory: An unpruned memory that holds the model's own keys.
        settings: The settings of training.
        model: The base model; only the method "svd" needs it, for its output matrix.
        compactor: File of a compactor to use instead of training.
        keep_keys: Keep the model's own keys as well, for another compactor later.
        again: Train again even if the stored compact keys have these settings and the memory has not changed since.
        device: Device of the training.
        progress: Progress callback.

    Returns:
        The memory, in its new generation.

    Raises:
        UsageError: The memory is pruned, not clustered, or without its own keys, or a setting does not fit it.
        MismatchError: The given compactor was trained for another base model.

    Examples:
        >>> compact_memory(Memory.open("memories/it"), CompactSettings(dimension=64))    # doctest: +SKIP
    """
    check_complete(memory)
    device = torch.device(device)
    with memory.edit() as edit:
        memory = edit.memory
        if memory.entries < memory.tokens:
            raise UsageError(f"{memory.path} is pruned: run `ibidem restore` first, and prune it again afterwards.")
        if compactor is None and settings.method == "none":
            raise UsageError(
                "The method none trains no compactor: choose network, pca or svd, or give a compactor's file."
            )
        if compactor is None and settings.needs_clusters and memory.clusters() is None:
            raise UsageError(f"{memory.path} is not clustered: run `ibidem cluster` first, or give --no-clusters.")
        if compactor is None and settings.dimension > memory.identity.dimension:
            raise UsageError(
                f"{settings.dimension} dimensions are more than the {memory.identity.dimension} of the model's keys: "
                "give fewer."
            )
        wanted = compact_digest(settings, compactor, stored(memory, "cluster"), extracted(memory))
        if not again and is_done(memory, STAGE, wanted, COMPACTOR_ARTEFACT):
            if memory.layout.keys and not keep_keys:
                edit.drop_array("keys")
                memory = edit.commit()
            edit.clear_workspace(STAGE)
            write_card(memory)
            return memory
        if compactor is None:
            trained = _train(memory, settings, model, device, edit.workspace(STAGE, wanted), progress)
        else:
            given = read_given(compactor, memory.identity.name, memory.identity.model_fingerprint)
            trained = TrainedCompactor(given.compactor, {"given": given.name})
        chosen = trained.compactor
        if trained.report.get("best_update") == 0:
            warnings.warn(
                "Training did not improve the compactor: try other settings, or the method pca.", stacklevel=2
            )
        edit.put_array("compact", _rechunk(compact_keys(chosen, memory.keys, device=device, progress=progress)))
        identity = memory.identity
        payload = store_compactor(chosen, {"model": identity.name, "model_fingerprint": identity.model_fingerprint})
        edit.put_artefact(COMPACTOR_ARTEFACT, "safetensors", payload, chosen.summary())
        _remove_dependents(edit)
        if not keep_keys:
            edit.drop_array("keys")
        settled = {} if compactor is not None else {"settings": settings.summary()}
        made = {"digest": wanted, "contents": contents(memory)}
        edit.set_stage(STAGE, {**made, **chosen.summary(), **trained.report, **settled})
        memory = edit.commit()
        edit.clear_workspace(STAGE)
    write_card(memory)
    return memory


def drop_keys(memory: Memory) -> Memory:
    """Drop the model's own keys from a compacted memory; it cannot be clustered or compacted again afterwards.

    Returns:
        The memory, in its new generation.
    """
    with memory.edit() as edit:
        edit.drop_array("keys")
        memory = edit.commit()
    write_card(memory)
    return memory


def uncompact_memory(memory: Memory) -> Memory:
    """Remove the compact keys and the compactor, so that searches use the model's own keys again.

    Returns:
        The memory, in its new generation.

    Raises:
        UsageError: The memory is pruned, or its own keys were dropped.
    """
    with memory.edit() as edit:
        _ = edit.memory.keys
        if edit.memory.entries < edit.memory.tokens:
            raise UsageError(f"{memory.path} is pruned: run `ibidem restore` first, and prune it again afterwards.")
        edit.drop_array("compact")
        edit.remove_artefact(COMPACTOR_ARTEFACT)
        edit.remove_stage(STAGE)
        _remove_dependents(edit)
        return edit.commit()


def _train(
    memory: Memory,
    settings: CompactSettings,
    model: BaseModel | None,
    device: torch.device,
    workspace: Path,
    progress: Progress,
) -> TrainedCompactor:
    if model is not None:
        check_identity(memory, model)
    data = TrainingData(
        memory.keys,
        memory.values(),
        memory.clusters(),
        memory.identity.vocabulary_size,
        None if model is None else model.projection.weight.detach().float(),
    )
    trained = train_compactor(data, settings, device=device, workspace=workspace, progress=progress)
    assert trained is not None  # since the method is not "none"
    return trained


def _rechunk(blocks: Iterator[NDArray[np.float16]]) -> Callable[[int, int], NDArray[np.float16]]:
    """Return a function that returns the rows of the blocks in consecutive parts of any size."""
    rest = np.empty((0, 0), np.float16)

    def part(start: int, stop: int) -> NDArray[np.float16]:
        nonlocal rest
        found = [rest] if len(rest) else []
        while sum(map(len, found)) < stop - start:
            found.append(next(blocks))
        joined = np.concatenate(found) if found else rest
        rest = joined[stop - start :]
        return joined[: stop - start]

    return part


def _remove_dependents(edit: Edit) -> None:
    for stage in _DEPENDENT_STAGES:
        edit.remove_stage(stage)
    for artefact in _DEPENDENT_ARTEFACTS:
        edit.remove_artefact(artefact)
    if UNPRUNED in edit.memory.snapshots():
        edit.forget_snapshot(UNPRUNED)


def _payload_digest(path: Path) -> str:
    load_compactor(path)  # raises if the file is not a compactor
    return hashlib.sha256(path.read_bytes()).hexdigest()
