"""The stage of learning that trains a compactor and rebuilds the memory's keys in its space."""

from __future__ import annotations

import hashlib
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.compact import compact_keys, load_compactor, store_compactor
from ibidem.errors import UsageError
from ibidem.learn.card import write_card
from ibidem.learn.compact.given import read_given
from ibidem.learn.compact.reduction import TrainingData, train_compactor
from ibidem.learn.compact.trained import TrainedCompactor
from ibidem.learn.digests import UNPRUNED, contents, digest, extracted, given_digest, is_done, stored
from ibidem.memory import check_complete, check_identity
from ibidem.progress import Progress, silent
from ibidem.retrieve import INDEX_ARTEFACT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.compact.settings import CompactSettings
    from ibidem.memory import Edit, Memory
    from ibidem.model import BaseModel

STAGE = "compact"
# What is made for one space says nothing in another.
_DEPENDENT_STAGES = ("index", "tune", "prune")
_DEPENDENT_ARTEFACTS = ("index", "combiner_fixed", "combiner_adaptive")


def compact_digest(settings: CompactSettings, compactor: Path | None, clusters: str | None, base: str) -> str:
    """What the compact keys depend on; `clusters` and `base` are the digests of the clusters and the extraction."""
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
    """Train a compactor, or take the given one, and search in its space from now on.

    The base model is needed for the SVD of its output matrix only. Combiners and index belong to the space
    before and are removed. `keep_keys` keeps the model's own keys, for another compactor later. Where these settings
    were used last, and nothing was added or removed since, nothing is done, unless `again`.
    """
    check_complete(memory)
    device = torch.device(device)
    with memory.edit() as edit:
        memory = edit.memory
        if memory.entries < memory.tokens:
            raise UsageError(f"{memory.path} is pruned: run `ibidem restore` first, and prune it again afterwards.")
        if compactor is None and settings.method == "none":
            raise UsageError("The method none trains no compactor: choose network, pca or svd, or give a compactor.")
        if compactor is None and settings.needs_clusters and memory.clusters() is None:
            raise UsageError(f"{memory.path} is not clustered: run `ibidem cluster` first, or give --no-clusters.")
        if compactor is None and settings.dimension > memory.identity.dimension:
            raise UsageError(
                f"{settings.dimension} dimensions are more than the {memory.identity.dimension} of the model's keys: "
                "give fewer."
            )
        wanted = compact_digest(settings, compactor, stored(memory, "cluster"), extracted(memory))
        if not again and is_done(memory, STAGE, wanted, INDEX_ARTEFACT):
            if memory.layout.keys and not keep_keys:
                edit.drop_array("keys")
                memory = edit.commit()
            edit.clear_workspace(STAGE)
            write_card(memory)
            return memory
        if compactor is None:
            trained = _train(memory, settings, model, device, edit.workspace(STAGE, wanted), progress)
        else:
            trained = _take(compactor, memory)
        chosen = trained.compactor
        if trained.report.get("best_update") == 0:
            warnings.warn("Training did not make the compactor any better: try other settings, or pca.", stacklevel=2)
        edit.put_array("compact", _in_parts(compact_keys(chosen, memory.keys, device=device, progress=progress)))
        payload = store_compactor(chosen, {"model": memory.identity.name, "model_fingerprint": _model_of(memory)})
        edit.put_artefact(INDEX_ARTEFACT, "safetensors", payload, chosen.summary())
        _forget_dependents(edit)
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
    """Keep the compact keys alone; nothing that was made from the others can be made anew."""
    with memory.edit() as edit:
        edit.drop_array("keys")
        memory = edit.commit()
    write_card(memory)
    return memory


def uncompact_memory(memory: Memory) -> Memory:
    """Search in the model's own space again; raises UsageError where its keys were dropped."""
    with memory.edit() as edit:
        _ = edit.memory.keys
        if edit.memory.entries < edit.memory.tokens:
            raise UsageError(f"{memory.path} is pruned: run `ibidem restore` first, and prune it again afterwards.")
        edit.drop_array("compact")
        edit.remove_artefact(INDEX_ARTEFACT)
        edit.remove_stage(STAGE)
        _forget_dependents(edit)
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
    material = TrainingData(
        memory.keys,
        memory.values(),
        memory.clusters(),
        memory.identity.vocabulary_size,
        None if model is None else model.projection.weight.detach().float(),
    )
    trained = train_compactor(material, settings, device=device, workspace=workspace, progress=progress)
    assert trained is not None  # since the method is not "none"
    return trained


def _take(compactor: Path, memory: Memory) -> TrainedCompactor:
    given = read_given(compactor, memory.identity.name, _model_of(memory))
    return TrainedCompactor(given.compactor, {"given": given.name})


def _model_of(memory: Memory) -> str:
    return memory.identity.model_fingerprint


def _in_parts(blocks: Iterator[NDArray[np.float16]]) -> Callable[[int, int], NDArray[np.float16]]:
    """A function that gives the rows of the blocks in whatever parts it is asked for, in order."""
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


def _forget_dependents(edit: Edit) -> None:
    for stage in _DEPENDENT_STAGES:
        edit.remove_stage(stage)
    for artefact in _DEPENDENT_ARTEFACTS:
        edit.remove_artefact(artefact)
    if UNPRUNED in edit.memory.snapshots():
        edit.forget_snapshot(UNPRUNED)


def _payload_digest(path: Path) -> str:
    load_compactor(path)  # which says what is wrong with it
    return hashlib.sha256(path.read_bytes()).hexdigest()
