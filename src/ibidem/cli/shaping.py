"""cluster, compact, prune, restore: the memory itself changed, between extraction and tuning or after it."""

from __future__ import annotations

from typing import Annotated

import typer

from ibidem.cli import options, shaping_options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, shown_progress, use_threads
from ibidem.cli.memories import note_done, print_summary
from ibidem.cli.opening import ModelOptions
from ibidem.cli.overrides import override


def cluster(
    memory: options.MemoryPath,
    *,
    clustering: shaping_options.ClusterOptions,
    again: shaping_options.Again = False,
    assignments: shaping_options.Assignments = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Cluster the keys of each word, for the Compact Network and for spatial pruning. Interrupted, it goes on."""
    from ibidem.learn import cluster_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = clustering.settings(seed)
    settings = override(settings, assignments or ())
    use_threads(threads)
    with shown_progress() as progress:
        before = Memory.open(memory)
        opened = cluster_memory(before, settings, again=again, device=resolve_device(device), progress=progress)
    note_done(before, opened, "cluster")
    print_summary(opened, json=json)


def compact(
    memory: options.MemoryPath,
    method: Annotated[str, typer.Argument(help="network, pca or svd.")] = "network",
    *,
    compactor: shaping_options.Compactor = None,
    compacting: shaping_options.CompactOptions,
    keep_keys: shaping_options.KeepKeys = True,
    model: options.Model = None,
    again: shaping_options.Again = False,
    assignments: shaping_options.Assignments = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Search in fewer dimensions: train a compactor, or apply a given one. Tune the memory anew afterwards."""
    from ibidem.learn import compact_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = compacting.settings(method, seed)
    settings = override(settings, assignments or ())
    use_threads(threads)
    before = Memory.open(memory)
    place = resolve_device(device)
    base = None
    if settings.method == "svd" and compactor is None:
        base = ModelOptions(model=model, device=str(place), threads=threads).load(before.identity)
    with shown_progress() as progress:
        opened = compact_memory(
            before,
            settings,
            model=base,
            compactor=compactor,
            keep_keys=keep_keys,
            again=again,
            device=place,
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
    pruning: shaping_options.PruneOptions,
    final: shaping_options.Final = False,
    again: shaping_options.Again = False,
    assignments: shaping_options.Assignments = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Leave entries out that say what others say. `ibidem restore` brings them back, unless --final is given.

    The rate is meant of the memory as it was: the same command a second time does nothing, so that it can be repeated
    after an error. --again prunes what is left once more, and what was added since.
    """
    from ibidem.learn import prune_memory
    from ibidem.memory import Memory
    from ibidem.model import resolve_device

    settings = pruning.settings(rate, seed)
    settings = override(settings, assignments or ())
    use_threads(threads)
    with shown_progress() as progress:
        before = Memory.open(memory)
        opened = prune_memory(
            before,
            settings,
            keep_unpruned=not final,
            again=again,
            device=resolve_device(device),
            progress=progress,
        )
    stage = opened.manifest.stages["prune"]
    note_done(before, opened, "prune")
    note(f"{stage['entries']:,} of {stage['entries_before']:,} entries kept: {stage['achieved']:.2%} removed.")
    print_summary(opened, json=json)


def restore(memory: options.MemoryPath, json: options.Json = False) -> None:
    """Bring back what pruning removed."""
    from ibidem.learn import restore_memory
    from ibidem.memory import Memory

    print_summary(restore_memory(Memory.open(memory)), json=json)
