"""How a compactor is trained: every reading of the paper is a setting, its default named and argued."""

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
    """Settings of all methods; those below `dimension` are the network's, except `share` (PCA's too) and `svd_rows`.

    activation: "sigmoid" (paper), which scored best on IT, or "tanh" (code), with which the loss falls faster.
    hidden: "4x-output" (paper) or "quarter-input" (code) or a number; equal where 4 c = d / 4.
    objectives: (name, weight) of "nce", "ranking" and "prediction", summed.
    nce: "binary" (paper) or "in_batch" (code). The paper's cannot learn with a linear f_theta: see `nce_binary`.
    ranking: "paper" or "clipped" (code).
    clusters: the paper's CL; without it a whole family is one cluster.
    pivots: "static" is the centroid (the paper's ST), "dynamic" another member (DY).
    negatives: from another "family" (paper) or from any other "cluster" (code), which may be of the same token.
    share: of the entries, drawn at random, to train on.
    held_out: of each cluster's members, to validate on; 0 is the authors' way, fresh triplets of the training members.
    Whole clusters held out were tried: their loss is lowest after 100 updates, long before retrieval is at its best.
    svd_rows: how many rows of the output matrix the SVD looks at (code: 10,000), None for all.
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
            raise UsageError(f"{name} = {getattr(self, name)} cannot be meant: it must be {wanted}.")

    @property
    def needs_clusters(self) -> bool:
        """Whether training asks for clusters of the keys."""
        return self.method == "network" and self.clusters

    def hidden_size(self, input_dimension: int) -> int:
        """The number of hidden units for keys of some dimensions."""
        if isinstance(self.hidden, int):
            return self.hidden
        return 4 * self.dimension if self.hidden == "4x-output" else max(1, input_dimension // 4)

    def relevant(self) -> dict[str, object]:
        """The settings that the chosen method looks at."""
        summary = self.summary()
        if self.method == "network":
            return {name: value for name, value in summary.items() if name != "svd_rows"}
        looked_at = ("method", "dimension", *(("svd_rows",) if self.method == "svd" else ("share", "seed")))
        return {name: summary[name] for name in looked_at}

    def summary(self) -> dict[str, object]:
        """All settings as JSON gives them back, to be stored and compared."""
        summary: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return summary


def check_objectives(objectives: tuple[tuple[str, float], ...]) -> None:
    """Refuse objectives that are unknown, named twice, or without a weight above 0."""
    names = [name for name, _ in objectives]
    for name, weight in objectives:
        if name not in OBJECTIVES:
            raise UsageError(f"Unknown objective '{name}': use {', '.join(OBJECTIVES)}, joined by +.")
        if not 0 < weight < math.inf:
            raise UsageError(f"The objective {name} has the weight {weight}: give it one above 0, or leave it out.")
    if not names or len(set(names)) < len(names):
        raise UsageError(f"Objectives {names} cannot be meant: name each once, as in nce+ranking.")


def parse_objectives(text: str) -> tuple[tuple[str, float], ...]:
    """Read objectives like "nce", "nce+ranking" or "nce:1,prediction:0.5"; a weight left out is 1."""
    found = []
    for part in text.replace("+", ",").split(","):
        name, _, weight = part.partition(":")
        try:
            found.append((name.strip(), float(weight) if weight.strip() else 1.0))
        except ValueError as error:
            raise UsageError(
                f"The objective '{part.strip()}' has no number for a weight: write it as in nce:1,prediction:0.5."
            ) from error
    check_objectives(tuple(found))
    return tuple(found)
