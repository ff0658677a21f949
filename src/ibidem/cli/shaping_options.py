"""Options of clustering, compacting and pruning, which `learn` shares with the verbs of these stages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ibidem.learn import ClusterSettings, CompactSettings, PruneSettings

_ClusterMethod = Annotated[
    str, typer.Option("--cluster-method", help="auto (dbscan, above 100M entries birch), dbscan, birch or none.")
]
_Eps = Annotated[
    float | None,
    typer.Option("--eps", help="DBSCAN's distance between keys; else derived from them.", show_default=False),
]
_EpsQuantile = Annotated[
    float, typer.Option("--eps-quantile", help="The share of entries that a derived eps makes core points.")
]
_MinSamples = Annotated[int, typer.Option("--min-samples", min=1, help="DBSCAN's keys within eps that make a core.")]
_Threshold = Annotated[
    float | None, typer.Option("--threshold", help="BIRCH's radius; else derived from eps.", show_default=False)
]
_FamilyBound = Annotated[
    int,
    typer.Option(
        "--family-bound",
        min=2,
        max=(1 << 31) - 1,
        help="Most keys of one word that are clustered; others are left out.",
    ),
]
_Dimension = Annotated[int, typer.Option("--dimension", min=1, help="Dimensions of the compact space.")]
_Activation = Annotated[str, typer.Option("--activation", help="sigmoid (paper) or tanh (authors' code).")]
_Objectives = Annotated[
    str, typer.Option("--objectives", help="nce, ranking, prediction, or a sum such as nce+ranking, nce:1,ranking:0.5.")
]
_Nce = Annotated[str, typer.Option("--nce", help="in_batch (authors' code) or binary (the paper's formula).")]
_Ranking = Annotated[str, typer.Option("--ranking", help="paper (its formula) or clipped (authors' code).")]
_Clusters = Annotated[
    bool, typer.Option("--clusters/--no-clusters", help="Draw triplets from clusters, or from whole families.")
]
_Pivots = Annotated[str, typer.Option("--pivots", help="static (centroids) or dynamic.")]
_Negatives = Annotated[str, typer.Option("--negatives", help="Of another family (paper) or any other cluster (code).")]
_Share = Annotated[float, typer.Option("--share", help="Share of the entries to train on, drawn at random.")]
_Batch = Annotated[int, typer.Option("--batch", min=2, help="Triplets in an update.")]
_LearningRate = Annotated[float, typer.Option("--learning-rate", help="Of the Compact Network.")]
_CompactUpdates = Annotated[int, typer.Option("--compact-updates", min=1, help="Most updates of the Compact Network.")]
Compactor = Annotated[
    Path | None,
    typer.Option(
        "--compactor",
        help="A compactor's file, trained on another memory of the same base model, instead of training one.",
        show_default=False,
    ),
]
KeepKeys = Annotated[
    bool, typer.Option("--keep-keys/--drop-keys", help="Keep the model's own keys beside the compact ones.")
]
_Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="cost-clusters (the paper's), covered (by the rest of a tuned memory), random, spatial, low-probability, "
        "high-probability.",
    ),
]
_CostN = Annotated[int, typer.Option("--cost-n", min=1, help="Longest n-gram of the translation cost.")]
_Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="Compare entries of one token (paper), one ngram (code), or agreeing ones, with none of another token "
        "between them; by itself ngram for cost-clusters, else token.",
        show_default=False,
    ),
]
_GroupN = Annotated[int, typer.Option("--group-n", min=1, help="Length of those n-grams.")]
_Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="Costs this near are alike; by itself as small as the rate allows (1.5: the authors').",
        show_default=False,
    ),
]
_CostScale = Annotated[str, typer.Option("--cost-scale", help="Compare costs as log (code) or perplexity (paper).")]
_CostMethod = Annotated[str, typer.Option("--cost-method", help="Clustering of costs: greedy, dbscan or birch.")]
_Rule = Annotated[
    str,
    typer.Option("--rule", help="exact removes the share asked for; floor rounds as the authors do."),
]
Final = Annotated[bool, typer.Option("--final", help="Keep no way back to the unpruned memory, to save disk.")]
Again = Annotated[bool, typer.Option("--again", help="Do it even if it was done with these settings already.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="NAME=VALUE of a setting that has no option, such as patience=5; may be repeated.",
        show_default=False,
    ),
]
LearnAssignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="STAGE.NAME=VALUE of a setting that has no option, such as compact.patience=5; may be repeated.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """How the keys of each word are clustered."""

    cluster_method: _ClusterMethod = "auto"
    eps: _Eps = None
    eps_quantile: _EpsQuantile = 0.9
    min_samples: _MinSamples = 4
    threshold: _Threshold = None
    family_bound: _FamilyBound = 20_000

    def settings(self, seed: int) -> ClusterSettings:
        """The same for the stage."""
        from ibidem.learn import ClusterSettings

        return ClusterSettings(
            method=self.cluster_method,
            eps=self.eps,
            eps_quantile=self.eps_quantile,
            min_samples=self.min_samples,
            threshold=self.threshold,
            family_bound=self.family_bound,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """What a compactor is trained to do, and how."""

    dimension: _Dimension = 64
    objectives: _Objectives = "nce"
    nce: _Nce = "in_batch"
    ranking: _Ranking = "paper"
    activation: _Activation = "sigmoid"
    clusters: _Clusters = True
    pivots: _Pivots = "static"
    negatives: _Negatives = "family"
    share: _Share = 1.0
    batch: _Batch = 1024
    learning_rate: _LearningRate = 3e-4
    compact_updates: _CompactUpdates = 30_000

    def settings(self, method: str, seed: int) -> CompactSettings:
        """The same for the stage, with the method of reduction."""
        from ibidem.learn import CompactSettings, parse_objectives

        return CompactSettings(
            method=method,
            dimension=self.dimension,
            objectives=parse_objectives(self.objectives),
            nce=self.nce,
            ranking=self.ranking,
            activation=self.activation,
            clusters=self.clusters,
            pivots=self.pivots,
            negatives=self.negatives,
            share=self.share,
            batch=self.batch,
            learning_rate=self.learning_rate,
            updates=self.compact_updates,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    """Which entries are left out."""

    strategy: _Strategy = "cost-clusters"
    cost_n: _CostN = 1
    groups: _Groups = None
    group_n: _GroupN = 3
    epsilon: _Epsilon = None
    cost_scale: _CostScale = "perplexity"
    cost_method: _CostMethod = "greedy"
    rule: _Rule = "exact"

    def settings(self, rate: float, seed: int) -> PruneSettings:
        """The same for the stage, with the share to remove."""
        from ibidem.learn import PruneSettings

        return PruneSettings(
            strategy=self.strategy,
            rate=rate,
            n=self.cost_n,
            groups=self.groups,
            group_n=self.group_n,
            epsilon=self.epsilon,
            scale=self.cost_scale,
            method=self.cost_method,
            rule=self.rule,
            seed=seed,
        )
