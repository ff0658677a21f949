"""Options of clustering, compacting and pruning, which `learn` shares with the verbs of these stages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ClusterMethod = Annotated[
    str, typer.Option("--cluster-method", help="auto (dbscan, above 100M entries birch), dbscan, birch or none.")
]
Eps = Annotated[
    float | None,
    typer.Option("--eps", help="DBSCAN's distance between keys; else derived from them.", show_default=False),
]
EpsQuantile = Annotated[
    float, typer.Option("--eps-quantile", help="The share of entries that a derived eps makes core points.")
]
MinSamples = Annotated[int, typer.Option("--min-samples", min=1, help="DBSCAN's keys within eps that make a core.")]
Threshold = Annotated[
    float | None, typer.Option("--threshold", help="BIRCH's radius; else derived from eps.", show_default=False)
]
FamilyBound = Annotated[
    int,
    typer.Option(
        "--family-bound",
        min=2,
        max=(1 << 31) - 1,
        help="Most keys of one word that are clustered; others are left out.",
    ),
]
Dimension = Annotated[int, typer.Option("--dimension", min=1, help="Dimensions of the compact space.")]
Activation = Annotated[str, typer.Option("--activation", help="sigmoid (paper) or tanh (authors' code).")]
Objectives = Annotated[
    str, typer.Option("--objectives", help="nce, ranking, prediction, or a sum such as nce+ranking, nce:1,ranking:0.5.")
]
Nce = Annotated[str, typer.Option("--nce", help="in_batch (authors' code) or binary (the paper's formula).")]
Ranking = Annotated[str, typer.Option("--ranking", help="paper (its formula) or clipped (authors' code).")]
Clusters = Annotated[
    bool, typer.Option("--clusters/--no-clusters", help="Draw triplets from clusters, or from whole families.")
]
Pivots = Annotated[str, typer.Option("--pivots", help="static (centroids) or dynamic.")]
Negatives = Annotated[str, typer.Option("--negatives", help="Of another family (paper) or any other cluster (code).")]
Share = Annotated[float, typer.Option("--share", help="Share of the entries to train on, drawn at random.")]
Batch = Annotated[int, typer.Option("--batch", min=2, help="Triplets in an update.")]
LearningRate = Annotated[float, typer.Option("--learning-rate", help="Of the Compact Network.")]
CompactUpdates = Annotated[int, typer.Option("--compact-updates", min=1, help="Most updates of the Compact Network.")]
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
Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="cost-clusters (the paper's), covered (by the rest of a tuned memory), random, spatial, low-probability, "
        "high-probability.",
    ),
]
CostN = Annotated[int, typer.Option("--cost-n", min=1, help="Longest n-gram of the translation cost.")]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="Compare entries of one token (paper) or one ngram (code); by itself ngram for cost-clusters, else token.",
        show_default=False,
    ),
]
GroupN = Annotated[int, typer.Option("--group-n", min=1, help="Length of those n-grams.")]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="Costs this near are alike; by itself as small as the rate allows (1.5: the authors').",
        show_default=False,
    ),
]
CostScale = Annotated[str, typer.Option("--cost-scale", help="Compare costs as log (code) or perplexity (paper).")]
CostMethod = Annotated[str, typer.Option("--cost-method", help="Clustering of costs: greedy, dbscan or birch.")]
Rule = Annotated[
    str,
    typer.Option("--rule", help="exact removes the share asked for; floor rounds as the authors do."),
]
Final = Annotated[bool, typer.Option("--final", help="Keep no way back to the unpruned memory, to save disk.")]
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
