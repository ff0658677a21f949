"""Settings of the training of a compactor; where the paper and the authors' code differ, both readings are settings."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from ibidem.compact import ACTIVATIONS
from ibidem.errors import UsageError

METHODS = ("network", "pca", "svd", "none")
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

    Args:
        method: "network" (the Compact Network, section 3.1), "pca" or "svd" (the baselines, section 4.5.1), or "none".
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
        """Return the number of hidden units for keys of `input_dimension` dimensions."""
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
    """Raise UsageError for objectives that are unknown, named twice, or without a weight above 0."""
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
