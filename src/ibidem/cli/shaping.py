"""cluster, compact, prune, restore: the memory itself changed, between extraction and tuning or after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, shown_progress, use_threads
from ibidem.cli.memories import print_summary

if TYPE_CHECKING:
    from ibidem.learn import ClusterSettings, CompactSettings, PruneSettings

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
    float | None, typer.Option("--threshold", help="BIRCH's radius; else half of eps.", show_default=False)
]
FamilyBound = Annotated[
    int, typer.Option("--family-bound", min=2, help="Most keys of one word that are clustered; others are left out.")
]
Dimension = Annotated[int, typer.Option("--dimension", min=1, help="Dimensions of the compact space.")]
Activation = Annotated[
    str, typer.Option("--activation", help="Of the network: sigmoid (paper) or tanh (authors' code).")
]
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
        "--strategy", help="cost-clusters (the paper's), random, spatial, low-probability or high-probability."
    ),
]
CostN = Annotated[int, typer.Option("--cost-n", min=1, help="Longest n-gram of the translation cost.")]
Groups = Annotated[str, typer.Option("--groups", help="Compare entries of one token (paper) or one ngram (code).")]
GroupN = Annotated[int, typer.Option("--group-n", min=1, help="Length of those n-grams.")]
Epsilon = Annotated[float, typer.Option("--epsilon", help="Costs this near are alike, on the log scale.")]
CostMethod = Annotated[str, typer.Option("--cost-method", help="Clustering of costs: greedy, dbscan or birch.")]
Rule = Annotated[str, typer.Option("--rule", help="exact removes the share asked for; floor rounds as the authors do.")]
Final = Annotated[bool, typer.Option("--final", help="Keep no way back to the unpruned memory, to save disk.")]


def cluster(
    memory: options.MemoryPath,
    cluster_method: ClusterMethod = "auto",
    eps: Eps = None,
    eps_quantile: EpsQuantile = 0.9,
    min_samples: MinSamples = 4,
    threshold: Threshold = None,
    family_bound: FamilyBound = 20_000,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Cluster the keys of each word, for the Compact Network and for spatial pruning. Interrupted, it goes on."""
    from ibidem.learn import cluster_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = cluster_settings(cluster_method, eps, eps_quantile, min_samples, threshold, family_bound, seed)
    use_threads(threads)
    with shown_progress() as progress:
        opened = cluster_memory(Memory.open(memory), settings, device=resolve_device(device), progress=progress)
    print_summary(opened, json=json)


def compact(
    memory: options.MemoryPath,
    method: Annotated[str, typer.Argument(help="network, pca or svd.")] = "network",
    dimension: Dimension = 64,
    compactor: Compactor = None,
    objectives: Objectives = "nce",
    nce: Nce = "in_batch",
    ranking: Ranking = "paper",
    activation: Activation = "sigmoid",
    clusters: Clusters = True,
    pivots: Pivots = "static",
    negatives: Negatives = "family",
    share: Share = 1.0,
    batch: Batch = 1024,
    learning_rate: LearningRate = 3e-4,
    compact_updates: CompactUpdates = 30_000,
    keep_keys: KeepKeys = True,
    model: options.Model = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Search in fewer dimensions: train a compactor, or apply a given one. Tune the memory anew afterwards."""
    from ibidem.learn import compact_memory
    from ibidem.memory import Memory
    from ibidem.model import load_model, resolve_device

    settings = compact_settings(
        method=method,
        dimension=dimension,
        objectives=objectives,
        nce=nce,
        ranking=ranking,
        activation=activation,
        clusters=clusters,
        pivots=pivots,
        negatives=negatives,
        share=share,
        batch=batch,
        learning_rate=learning_rate,
        updates=compact_updates,
        seed=seed,
    )
    use_threads(threads)
    opened = Memory.open(memory)
    place = resolve_device(device)
    base = None
    if settings.method == "svd" and compactor is None:
        identity = opened.identity
        base = load_model(
            model or identity.name,
            device=str(place),
            source_language=identity.source_language,
            target_language=identity.target_language,
        )
    with shown_progress() as progress:
        opened = compact_memory(
            opened,
            settings,
            model=base,
            compactor=compactor,
            keep_keys=keep_keys,
            device=place,
            progress=progress,
        )
    print_summary(opened, json=json)
    note(f"The combiners belonged to the former space: run `ibidem tune -m {memory}`, and `ibidem index` for a CPU.")


def prune(
    memory: options.MemoryPath,
    rate: Annotated[float, typer.Option("--rate", help="Share of the entries to remove.")] = 0.1,
    strategy: Strategy = "cost-clusters",
    cost_n: CostN = 2,
    groups: Groups = "token",
    group_n: GroupN = 2,
    epsilon: Epsilon = 1.5,
    cost_method: CostMethod = "greedy",
    rule: Rule = "exact",
    final: Final = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Leave entries out that say what others say. `ibidem restore` brings them back, unless --final is given."""
    from ibidem.learn import prune_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = prune_settings(rate, strategy, cost_n, groups, group_n, epsilon, cost_method, rule, seed)
    use_threads(threads)
    with shown_progress() as progress:
        opened = prune_memory(
            Memory.open(memory),
            settings,
            keep_unpruned=not final,
            device=resolve_device(device),
            progress=progress,
        )
    stage = opened.manifest.stages["prune"]
    note(f"{stage['entries']:,} of {stage['entries_before']:,} entries kept: {stage['achieved']:.2%} removed.")
    print_summary(opened, json=json)


def restore(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Bring back what pruning removed."""
    from ibidem.learn import restore_memory
    from ibidem.memory import Memory

    print_summary(restore_memory(Memory.open(memory)), json=json)


def cluster_settings(
    method: str,
    eps: float | None,
    eps_quantile: float,
    min_samples: int,
    threshold: float | None,
    family_bound: int,
    seed: int,
) -> ClusterSettings:
    """The clustering that the options ask for."""
    from ibidem.learn import ClusterSettings

    return ClusterSettings(
        method=method,
        eps=eps,
        eps_quantile=eps_quantile,
        min_samples=min_samples,
        threshold=threshold,
        family_bound=family_bound,
        seed=seed,
    )


def compact_settings(
    *,
    method: str,
    dimension: int,
    objectives: str,
    nce: str,
    ranking: str,
    activation: str,
    clusters: bool,
    pivots: str,
    negatives: str,
    share: float,
    batch: int,
    learning_rate: float,
    updates: int,
    seed: int,
) -> CompactSettings:
    """The compactor that the options ask for."""
    from ibidem.learn import CompactSettings
    from ibidem.learn.compact import parse_objectives

    return CompactSettings(
        method=method,
        dimension=dimension,
        objectives=parse_objectives(objectives),
        nce=nce,
        ranking=ranking,
        activation=activation,
        clusters=clusters,
        pivots=pivots,
        negatives=negatives,
        share=share,
        batch=batch,
        learning_rate=learning_rate,
        updates=updates,
        seed=seed,
    )


def prune_settings(
    rate: float,
    strategy: str,
    cost_n: int,
    groups: str,
    group_n: int,
    epsilon: float,
    method: str,
    rule: str,
    seed: int,
) -> PruneSettings:
    """The pruning that the options ask for."""
    from ibidem.learn import PruneSettings

    return PruneSettings(
        strategy=strategy,
        rate=rate,
        n=cost_n,
        groups=groups,
        group_n=group_n,
        epsilon=epsilon,
        method=method,
        rule=rule,
        seed=seed,
    )
