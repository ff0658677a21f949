"""The commands learn, extract, tune and index: from parallel text to a memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, note_counts, shown_progress, use_threads
from ibidem.cli.distribution import opened_distribution
from ibidem.cli.memories import note_done, print_summary
from ibidem.cli.options import ModelOptions
from ibidem.cli.settings import Assignments, ModelSettings, TextSettings, override, override_parts
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from ibidem.memory import Memory

_K = Annotated[int, typer.Option("--k", min=1, help="Largest number of neighbours (1, 2, 4, 8, …).")]


def learn(
    train: options.Train,
    output: options.Output,
    *,
    dev: options.Dev = None,
    model: options.Model = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    compact: Annotated[
        str,
        typer.Option(
            "--compact",
            help="Fewer dimensions: general (the model's own), network (the paper's, trained here), pca, svd; or none.",
        ),
    ] = "general",
    prune: Annotated[float, typer.Option("--prune", help="Share of the entries to remove after tuning.")] = 0.0,
    format: options.Format = None,
    bad_pairs: options.BadPairs = "stop",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    on: options.On = None,
    workers: options.Workers = None,
    assignments: Assignments = None,
    json: options.Json = False,
) -> None:
    """Learn a memory from parallel text. Run the same command again to resume after an interruption.

    The stages are extract, cluster, compact, tune, prune and index. All other settings: `ibidem settings learn`.
    """
    from ibidem.api import open_corpus
    from ibidem.check import check_policy, guard
    from ibidem.cli.check import note_findings
    from ibidem.learn import LearnSettings
    from ibidem.learn import learn as run

    check_policy(bad_pairs)
    defaults = LearnSettings()
    settings = replace(
        defaults,
        cluster=replace(defaults.cluster, seed=seed),
        compact=replace(defaults.compact, method=compact, seed=seed),
        tune=replace(
            defaults.tune,
            metak=replace(defaults.tune.metak, seed=seed),
            contextual=replace(defaults.tune.contextual, seed=seed),
        ),
        prune=replace(defaults.prune, rate=prune, seed=seed),
        threads=threads,
    )
    text, machine, settings = override_parts(
        {"text": TextSettings(format=format), "model": ModelSettings(), "": settings}, assignments or ()
    )
    base = ModelOptions(
        model=model,
        device=device,
        dtype=machine.dtype,
        threads=threads,
        source_language=source_language,
        target_language=target_language,
        source_prefix=machine.source_prefix,
    ).load()
    language = text.catalogue_language
    known = {"catalogue_language": language, "encoding": text.encoding}
    corpus = open_corpus(train, base, format=text.format, **known)
    dev_corpus = open_corpus(dev, base, format=text.dev_format, **known) if dev else None
    with shown_progress() as progress:
        checked = guard(corpus, bad_pairs, held_out=dev_corpus or (), progress=progress)
    note_findings(checked, bad_pairs)
    with (
        opened_distribution(on, workers, output, threads, str(base.device)) as distribution,
        shown_progress() as progress,
    ):
        memory = run(
            base,
            corpus,
            output,
            dev=dev_corpus,
            seed=seed,
            settings=settings,
            distribution=distribution,
            progress=progress,
        )
    note_counts(corpus)
    _note_index(memory)
    print_summary(memory, json=json)


def extract(
    train: options.Train,
    output: options.Output,
    *,
    model_options: ModelOptions,
    compactor: options.Compactor = None,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=16, help="Padded tokens in a forward pass.")
    ] = 4096,
    seed: options.Seed = 0,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    on: options.On = None,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Run the first stage of learn: store every target token with its decoder state.

    Run the same command again to resume after an interruption.
    """
    from ibidem.api import open_corpus
    from ibidem.learn import ExtractSettings
    from ibidem.learn import extract as run

    base = model_options.load()
    corpus = open_corpus(train, base, format=format, catalogue_language=catalogue_language)
    settings = ExtractSettings(batch_tokens=batch_tokens)
    with (
        opened_distribution(on, workers, output, model_options.threads, str(base.device)) as distribution,
        shown_progress() as progress,
    ):
        memory = run(
            base,
            corpus,
            output,
            seed=seed,
            settings=settings,
            compactor=compactor,
            distribution=distribution,
            progress=progress,
        )
    note_counts(corpus)
    print_summary(memory, json=json)


def index(
    memory: options.MemoryPath,
    setting: Annotated[str, typer.Argument(help="auto, exact, native, paper, or a faiss factory string.")] = "auto",
    shards: Annotated[
        int,
        typer.Option(
            "--shards",
            min=1,
            help="Divide the index into this many parts, which `ibidem shard` serves on one or several machines.",
        ),
    ] = 1,
    threads: options.Threads = None,
    on: options.On = None,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Build the search index of a memory again, whole or divided into shards; with --on, each shard in a task."""
    from ibidem.learn import index_memory
    from ibidem.memory import Memory

    if on is not None and shards == 1:
        raise UsageError("--on builds the shards of an index in tasks: give --shards too, or leave --on out.")
    use_threads(threads)
    with (
        opened_distribution(on, workers, memory, threads, "cpu") as distribution,
        shown_progress() as progress,
    ):
        opened, _ = index_memory(
            Memory.open(memory), setting, shards=shards, threads=threads, distribution=distribution, progress=progress
        )
    _note_index(opened)
    print_summary(opened, json=json)


def tune(
    memory: options.MemoryPath,
    *,
    dev: options.Dev = None,
    model_options: ModelOptions,
    k: _K = 8,
    index: options.IndexSetting = None,
    again: options.Again = False,
    seed: options.Seed = 0,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    assignments: Assignments = None,
    json: options.Json = False,
) -> None:
    """Tune the combiners of a memory on a dev set: the fixed, the adaptive (Meta-k) and the contextual one."""
    from ibidem.api import open_corpus
    from ibidem.learn import ContextualSettings, MetaKSettings, TuneSettings
    from ibidem.learn import tune as run
    from ibidem.memory import Memory

    seeded = TuneSettings(k=k, metak=MetaKSettings(seed=seed), contextual=ContextualSettings(seed=seed))
    settings = override(seeded, assignments or ())
    before = Memory.open(memory)
    base = model_options.load(before.identity)
    corpus = open_corpus(dev, base, format=format, catalogue_language=catalogue_language) if dev else None
    with shown_progress() as progress:
        opened = run(before, base, corpus, settings=settings, setting=index, again=again, progress=progress)
    note_done(before, opened, "tune")
    print_summary(opened, json=json)


def _note_index(memory: Memory) -> None:
    """Print the notes of the index, such as a setting that it could not use."""
    stored = [record.info for name, record in memory.manifest.artefacts.items() if name.startswith("index")]
    for message in dict.fromkeys(message for info in stored for message in info.get("notes", ())):
        note(message)
