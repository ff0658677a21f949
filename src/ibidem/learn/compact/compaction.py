"""Compaction of a memory: the settings, the choice of the training method or a given file, and the compact keys."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.compact import (
    ACTIVATIONS,
    GENERAL_COMPACTOR,
    Compactor,
    compact_keys,
    load_compactor,
    read_notes,
    restore_compactor,
    store_compactor,
)
from ibidem.errors import MismatchError, UsageError
from ibidem.learn.compact.pca_svd import train_pca, train_svd
from ibidem.learn.compact.trainer import TrainedCompactor, train_network
from ibidem.learn.limits import check_room
from ibidem.learn.provenance import UNPRUNED, contents, digest, extracted, given_digest, is_done, stored, write_card
from ibidem.memory import (
    ADAPTIVE_COMBINER_ARTEFACT,
    COMPACTOR_ARTEFACT,
    CONFIDENCE_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
    FIXED_COMBINER_ARTEFACT,
    KeyCoding,
    check_complete,
    check_identity,
)
from ibidem.model import GENERAL_FOLDER
from ibidem.progress import Progress, silent
from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ibidem.learn.jobs import Distribution
    from ibidem.memory import Edit, Memory
    from ibidem.model import BaseModel
    from ibidem.retrieve import Keys


STAGE = "compact"
# The work folder of the tasks; the one of the stage holds the checkpoint of the training.
TASKS = "reconstruct"
# Keys that are compacted together: a matrix product of other sizes may round differently.
BLOCK_ROWS = 65536
# Results that are valid in one key space only.
_DEPENDENT_STAGES = ("index", "tune", "prune")
_DEPENDENT_ARTEFACTS = (
    FIXED_COMBINER_ARTEFACT,
    ADAPTIVE_COMBINER_ARTEFACT,
    CONFIDENCE_ARTEFACT,
    CONTEXTUAL_COMBINER_ARTEFACT,
)
METHODS = ("general", "network", "pca", "svd", "none")
# Entries to which the codes of compact keys are fitted.
_CODING_SAMPLE = 1 << 16
OBJECTIVES = ("nce", "ranking", "prediction")
HIDDEN = ("4x-output", "quarter-input")

_CHOICES = {
    "method": METHODS,
    "activation": tuple(ACTIVATIONS),
    "nce": ("in_batch", "binary"),
    "ranking": ("paper", "clipped"),
    "pivots": ("static", "dynamic"),
    "negatives": ("family", "cluster"),
}


@dataclass(frozen=True)
class CompactSettings:
    """Hold the settings of all methods.

    PCA uses `dimension`, `share` and `seed`, and SVD uses `dimension` and `svd_rows`; all others belong to the network.
    "paper" and "code" name the readings of the paper and of the authors' code.

    Attributes:
        method: "general" (the compactor that comes with the base model), "network" (the Compact Network,
            section 3.1), "pca" or "svd" (the baselines, section 4.5.1), or "none".
        dimension: Dimension c of the compact space (64 in section 4.3).
        activation: "sigmoid" (paper, section 3.1) or "tanh" (code).
        hidden: Hidden units: "4x-output" (paper, appendix A), "quarter-input" (code), or a number. Both readings agree
            where 4 c = d / 4.
        objectives: (name, weight) of "nce", "ranking" and "prediction" (section 3.1); the weighted losses are summed.
        nce: "binary" (paper) or "in_batch" (code). The paper's has no useful minimum with a linear f_theta: see
            `BinaryNceLoss`.
        ranking: "paper" or "clipped" (code).
        clusters: Draw triplets from clusters (CL in table 3); otherwise a whole family is one cluster.
        pivots: "static" (the centroid, ST in table 3) or "dynamic" (another member, DY).
        negatives: From another "family" (paper) or from any other "cluster" (code), which may have the same token.
        share: Share of the entries, drawn at random, to train on.
        batch: Triplets of an update.
        learning_rate: Learning rate of Adam at the start.
        final_learning_rate: Lowest learning rate; it is halved while the validation loss does not fall.
        updates: Largest number of updates.
        validate_every: Updates between two validations.
        patience: Training ends after this many validations without a lower loss.
        held_out: Share of each cluster's members to validate on; 0 draws fresh triplets of the training members (code).
        clip: Largest norm of the gradient.
        label_smoothing: Label smoothing of "in_batch" and "prediction" (code: 0.002).
        svd_rows: Leading rows of the output matrix that the SVD uses (code: 10,000); None for all.
        seed: Seed of all random draws.

    Raises:
        UsageError: A setting is unknown or out of its range.

    Examples:
        >>> CompactSettings(dimension=64).hidden_size(input_dimension=512)
        256
    """

    method: str = "network"
    dimension: int = 64
    activation: str = "sigmoid"
    hidden: int | str = "4x-output"
    objectives: tuple[tuple[str, float], ...] = (("nce", 1.0),)
    nce: str = "in_batch"
    ranking: str = "paper"
    clusters: bool = True
    pivots: str = "static"
    negatives: str = "family"
    share: float = 1.0
    batch: int = 1024
    learning_rate: float = 3e-4
    final_learning_rate: float = 3e-5
    updates: int = 30_000
    validate_every: int = 1000
    patience: int = 10
    held_out: float = 0.05
    clip: float = 1.0
    label_smoothing: float = 0.002
    svd_rows: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, options in _CHOICES.items():
            if getattr(self, name) not in options:
                raise UsageError(f"Unknown {name} '{getattr(self, name)}': use one of {', '.join(options)}.")
        if isinstance(self.hidden, str) and self.hidden not in HIDDEN:
            raise UsageError(f"Unknown hidden size '{self.hidden}': use {', '.join(HIDDEN)}, or a number.")
        for name in ("dimension", "updates", "validate_every", "patience"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        self._check("hidden", isinstance(self.hidden, str) or self.hidden >= 1, "at least 1")
        self._check("batch", self.batch >= 2, "at least 2")
        self._check("share", 0 < self.share <= 1, "above 0 and at most 1")
        self._check("held_out", 0 <= self.held_out < 1, "at least 0 and below 1")
        self._check("label_smoothing", 0 <= self.label_smoothing < 1, "at least 0 and below 1")
        for name in ("learning_rate", "final_learning_rate", "clip"):
            self._check(name, 0 < getattr(self, name) < math.inf, "above 0")
        self._check("seed", self.seed >= 0, "at least 0")
        self._check("svd_rows", self.svd_rows is None or self.svd_rows >= 1, "at least 1, or none for all")
        check_objectives(self.objectives)

    def _check(self, name: str, good: bool, wanted: str) -> None:
        if not good:
            raise UsageError(f"Invalid {name} {getattr(self, name)}: it must be {wanted}.")

    @property
    def needs_clusters(self) -> bool:
        """Whether training needs clusters of the keys."""
        return self.method == "network" and self.clusters

    def hidden_size(self, input_dimension: int) -> int:
        """Return the number of hidden units for keys of `input_dimension` dimensions.

        Args:
            input_dimension: The dimension of the model's own keys.
        """
        if isinstance(self.hidden, int):
            return self.hidden
        return 4 * self.dimension if self.hidden == "4x-output" else max(1, input_dimension // 4)

    def relevant(self) -> dict[str, object]:
        """Return the settings that the chosen method uses."""
        summary = self.summary()
        if self.method == "network":
            return {name: value for name, value in summary.items() if name != "svd_rows"}
        used = ("method", "dimension", *(("svd_rows",) if self.method == "svd" else ("share", "seed")))
        return {name: summary[name] for name in used}

    def summary(self) -> dict[str, object]:
        """Return all settings as JSON, to be stored and compared."""
        summary: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return summary


def check_objectives(objectives: tuple[tuple[str, float], ...]) -> None:
    """Check the names and weights of objectives.

    Args:
        objectives: Name and weight of each objective.

    Raises:
        UsageError: An objective is unknown or named twice, or its weight is not above 0.
    """
    names = [name for name, _ in objectives]
    for name, weight in objectives:
        if name not in OBJECTIVES:
            raise UsageError(f"Unknown objective '{name}': use {', '.join(OBJECTIVES)}, joined by +.")
        if not 0 < weight < math.inf:
            raise UsageError(
                f"Invalid weight {weight} of the objective {name}: give a weight above 0, or leave it out."
            )
    if not names or len(set(names)) < len(names):
        raise UsageError(f"Invalid objectives {names}: name each once, as in nce+ranking.")


def parse_objectives(text: str) -> tuple[tuple[str, float], ...]:
    """Parse objectives such as "nce", "nce+ranking" or "nce:1,prediction:0.5"; the default weight is 1.

    Args:
        text: Names separated by "+" or ",", each with an optional weight after ":".

    Returns:
        Name and weight of each objective, in the given order.

    Raises:
        UsageError: An objective is unknown or named twice, or a weight is invalid.

    Examples:
        >>> parse_objectives("nce+ranking:0.5")
        (('nce', 1.0), ('ranking', 0.5))
    """
    found = []
    for part in text.replace("+", ",").split(","):
        name, _, weight = part.partition(":")
        try:
            found.append((name.strip(), float(weight) if weight.strip() else 1.0))
        except ValueError as error:
            raise UsageError(
                f"The weight of the objective '{part.strip()}' is not a number: write it as in nce:1,prediction:0.5."
            ) from error
    check_objectives(tuple(found))
    return tuple(found)


@dataclass(frozen=True)
class GivenCompactor:
    """Hold a compactor that was read from a file.

    Attributes:
        compactor: The compactor.
        coding: The codes of its compact keys.
        name: Name of the file; "general" for the general compactor of the base model.
        payload: The bytes that a memory stores.
        sha256: Digest of the file.
    """

    compactor: Compactor
    coding: KeyCoding
    name: str
    payload: bytes
    sha256: str

    def notes(self) -> dict[str, Any]:
        """Return the notes of the compaction stage."""
        return {**self.compactor.summary(), "given": self.name}


def read_given(path: Path, model: str, fingerprint: str) -> GivenCompactor:
    """Read a compactor's file for a base model.

    Args:
        path: The file.
        model: Name of the base model.
        fingerprint: Fingerprint of the base model.

    Raises:
        MismatchError: The compactor was trained for another base model.
    """
    compactor = load_compactor(path)
    content = path.read_bytes()
    notes = read_notes(content)
    if notes.get("model_fingerprint") != fingerprint:
        raise MismatchError(
            f"{path} was trained for another base model ('{notes.get('model')}', or another version of it): give a "
            "compactor that was trained for the memory's own base model, or train one."
        )
    coding = KeyCoding.read(content)
    payload = store_compactor(compactor, {"model": model, "model_fingerprint": fingerprint}, coding)
    name = GENERAL_FOLDER if (path.parent.name, path.name) == (GENERAL_FOLDER, GENERAL_COMPACTOR) else path.name
    return GivenCompactor(compactor, coding, name, payload, hashlib.sha256(content).hexdigest())


def read_stored(payload: bytes) -> tuple[Compactor, KeyCoding]:
    """Read the compactor that a memory stores, with the codes of its compact keys.

    Args:
        payload: The bytes of its file.
    """
    return restore_compactor(payload), KeyCoding.read(payload)


@dataclass(frozen=True)
class TrainingData:
    """Hold the data that compactors are trained on; each method uses a part of it.

    Attributes:
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


def fit_key_coding(compactor: Compactor, keys: Keys, device: torch.device | str = "cpu") -> KeyCoding:
    """Fit the int8 codes of compact keys to a sample of a memory's keys.

    Args:
        compactor: The compactor.
        keys: The keys of the memory, in the model's own space; at least one.
        device: Device of the compactor.
    """
    entries = np.linspace(0, keys.size - 1, min(keys.size, _CODING_SAMPLE)).astype(np.int64)
    sample = compact_keys(compactor, ArrayKeys(keys.gather(entries)), device=device)
    return KeyCoding.fit(np.concatenate(list(sample)))


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
    distribution: Distribution | None = None,
    progress: Progress = silent,
) -> Memory:
    """Train a compactor, or read one from a file, and store the compact keys of a memory.

    The combiners and the index belong to the previous space and are removed.

    Args:
        memory: An unpruned memory that holds the model's own keys.
        settings: The settings of training.
        model: The base model; only the methods "svd", for its output matrix, and "general" need it.
        compactor: File of a compactor to use instead of training.
        keep_keys: Keep the model's own keys as well, for another compactor later.
        again: Train again even if the stored compact keys have these settings and the memory has not changed since.
        device: Device of the training.
        distribution: Computes the compact keys in tasks; None computes them in this process, with the same result.
            Training is done in this process.
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
    if compactor is None and settings.method == "general":
        if model is None or model.general is None:
            raise UsageError(f"The model {memory.identity.name} has no general compactor: choose network, pca or svd.")
        compactor = model.general / GENERAL_COMPACTOR
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
            check_room("compact network" if settings.method == "network" else "compact", memory.entries, memory.path)
            trained = _train(memory, settings, model, device, edit.workspace(STAGE, wanted), progress)
            coding = fit_key_coding(trained.compactor, memory.keys, device)
        else:
            given = read_given(compactor, memory.identity.name, memory.identity.model_fingerprint)
            trained, coding = TrainedCompactor(given.compactor, {"given": given.name}), given.coding
        chosen = trained.compactor
        if trained.report.get("best_update") == 0:
            warnings.warn(
                "Training did not improve the compactor: try other settings, or the method pca.", stacklevel=2
            )
        identity = memory.identity
        notes = {"model": identity.name, "model_fingerprint": identity.model_fingerprint}
        payload = store_compactor(chosen, notes, coding)
        if distribution is None:
            plain = compact_keys(chosen, memory.keys, rows=BLOCK_ROWS, device=device, progress=progress)
            blocks: Iterator[NDArray[np.int8]] = (coding.encode(block) for block in plain)
        else:
            from ibidem.learn.compact.compaction_tasks import compact_in_tasks

            folder = edit.workspace(TASKS, digest(wanted, hashlib.sha256(payload).hexdigest(), contents(memory)))
            blocks = compact_in_tasks(memory, payload, folder, device, distribution, progress)
        edit.put_array("compact", _rechunk(blocks))
        edit.put_artefact(COMPACTOR_ARTEFACT, "safetensors", payload, chosen.summary())
        _remove_dependents(edit)
        if not keep_keys:
            edit.drop_array("keys")
        settled = {} if compactor is not None else {"settings": settings.summary()}
        made = {"digest": wanted, "contents": contents(memory)}
        edit.set_stage(STAGE, {**made, **chosen.summary(), **trained.report, **settled})
        memory = edit.commit()
        for name in (STAGE, TASKS):
            edit.clear_workspace(name)
    write_card(memory)
    return memory


def drop_keys(memory: Memory) -> Memory:
    """Drop the model's own keys from a compacted memory; it cannot be clustered or compacted again afterwards.

    Args:
        memory: A compacted memory that still holds the model's own keys.

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

    Args:
        memory: An unpruned, compacted memory that still holds the model's own keys.

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


def _rechunk(blocks: Iterator[NDArray[np.int8]]) -> Callable[[int, int], NDArray[np.int8]]:
    """Return a function that returns the rows of the blocks in consecutive parts of any size."""
    rest = np.empty((0, 0), np.int8)

    def part(start: int, stop: int) -> NDArray[np.int8]:
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
    edit.remove_index()
    if UNPRUNED in edit.memory.snapshots():
        edit.forget_snapshot(UNPRUNED)


def _payload_digest(path: Path) -> str:
    load_compactor(path)  # raises if the file is not a compactor
    return hashlib.sha256(path.read_bytes()).hexdigest()
