"""The commands cluster, compact, prune and restore: change the entries of a memory."""

from __future__ import annotations

from typing import Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, shown_progress, use_threads
from ibidem.cli.distribution import opened_distribution
from ibidem.cli.memories import note_done, print_summary
from ibidem.cli.options import ModelOptions
from ibidem.cli.settings import Assignments, override


def cluster(
    memory: options.MemoryPath,
    *,
    method: Annotated[
        str, typer.Option("--method", help="auto (dbscan, above 100M entries birch), dbscan, birch or none.")
    ] = "auto",
    again: options.Again = False,
    assignments: Assignments = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    on: options.On = None,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Cluster the keys of each token, for the Compact Network and for spatial pruning.

    Run the same command again to resume after an interruption.
    """
    from ibidem.learn import ClusterSettings, cluster_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = override(ClusterSettings(method=method, seed=seed), assignments or ())
    use_threads(threads)
    place = resolve_device(device)
    with (
        opened_distribution(on, workers, memory, threads, str(place)) as distribution,
        shown_progress() as progress,
    ):
        before = Memory.open(memory)
        opened = cluster_memory(
            before, settings, again=again, device=place, distribution=distribution, progress=progress
        )
    note_done(before, opened, "cluster")
    print_summary(opened, json=json)


def compact(
    memory: options.MemoryPath,
    method: Annotated[str, typer.Argument(help="general, network, pca or svd.")] = "network",
    *,
    dimension: Annotated[int, typer.Option("--dimension", min=1, help="Dimensions of the compact space.")] = 64,
    compactor: options.Compactor = None,
    keep_keys: Annotated[
        bool, typer.Option("--keep-keys/--drop-keys", help="Keep the keys of the full space with the compact ones.")
    ] = True,
    model: options.Model = None,
    again: options.Again = False,
    assignments: Assignments = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    on: options.On = None,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Search in fewer dimensions: train a compactor, or apply a given one. Tune the memory again afterwards."""
    from ibidem.learn import CompactSettings, compact_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = override(CompactSettings(method=method, dimension=dimension, seed=seed), assignments or ())
    use_threads(threads)
    before = Memory.open(memory)
    place = resolve_device(device)
    base = None
    if settings.method in ("general", "svd") and compactor is None:
        base = ModelOptions(model=model, device=str(place), threads=threads).load(before.identity)
    with (
        opened_distribution(on, workers, memory, threads, str(place)) as distribution,
        shown_progress() as progress,
    ):
        opened = compact_memory(
            before,
            settings,
            model=base,
            compactor=compactor,
            keep_keys=keep_keys,
            again=again,
            device=place,
            distribution=distribution,
            progress=progress,
        )
    print_summary(opened, json=json)
    if not note_done(before, opened, "compact"):
        note(
            f"The combiners belonged to the former space: run `ibidem tune -m {memory}`, and `ibidem index` for a CPU."
        )


def prune(
    memory: options.MemoryPath,
    rate: Annotated[float, typer.Option("--rate", help="Share of the entries to remove.")] = 0.1,
    *,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="redundant, cost-clusters (the paper's), random, spatial, low-probability or high-probability. "
            "Default: redundant, and cost-clusters for a memory that is not tuned.",
        ),
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Save disk: keep no copy of the unpruned memory for restore.")
    ] = False,
    again: options.Again = False,
    assignments: Assignments = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    on: options.On = None,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Remove redundant entries. `ibidem restore` brings them back, unless --final is given.

    The rate refers to the unpruned memory, so the same command a second time changes nothing and can be repeated after
    an error. --again prunes the remaining entries once more, and those that were added since.
    """
    from ibidem.learn import PruneSettings, default_strategy, prune_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    strategy = strategy or default_strategy(Memory.open(memory))
    settings = override(PruneSettings(strategy, rate, seed=seed), assignments or ())
    use_threads(threads)
    place = resolve_device(device)
    with (
        opened_distribution(on, workers, memory, threads, str(place)) as distribution,
        shown_progress() as progress,
    ):
        before = Memory.open(memory)
        opened = prune_memory(
            before,
            settings,
            keep_unpruned=not final,
            again=again,
            device=place,
            distribution=distribution,
            progress=progress,
        )
    stage = opened.manifest.stages["prune"]
    note_done(before, opened, "prune")
    note(f"{stage['entries']:,} of {stage['entries_before']:,} entries kept: {stage['achieved']:.2%} removed.")
    print_summary(opened, json=json)


def restore(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Bring back the entries that pruning removed."""
    from ibidem.learn import restore_memory
    from ibidem.memory import Memory

    print_summary(restore_memory(Memory.open(memory)), json=json)
