"""learn, extract, index, tune: from text to a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options, shaping_options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, shown_progress, use_threads
from ibidem.cli.memories import note_done, print_summary
from ibidem.cli.opening import ModelOptions  # noqa: TC001 - typer reads the annotations
from ibidem.cli.overrides import override

if TYPE_CHECKING:
    from ibidem.learn import TuneSettings
    from ibidem.memory import Memory

K = Annotated[int, typer.Option("--k", min=1, help="Most neighbours to consult (1, 2, 4, 8, …).")]
Objective = Annotated[
    str,
    typer.Option("--objective", help="Choose the fixed combiner by dev set likelihood, or by bleu of translating it."),
]
Validation = Annotated[
    str, typer.Option("--validation", help="Meta-k: split holds dev sentences out; same is the paper's way.")
]

Updates = Annotated[int, typer.Option("--updates", min=1, help="Meta-k: most updates of its training.")]


def learn(
    train: options.Train,
    output: options.Output,
    *,
    dev: options.Dev = None,
    opening: ModelOptions,
    k: K = 8,
    objective: Objective = "likelihood",
    validation: Validation = "split",
    updates: Updates = 5000,
    compact: Annotated[
        str,
        typer.Option("--compact", help="Search in fewer dimensions: network (the paper's), pca or svd; or none."),
    ] = "none",
    compactor: shaping_options.Compactor = None,
    compacting: shaping_options.CompactOptions,
    keep_keys: shaping_options.KeepKeys = False,
    clustering: shaping_options.ClusterOptions,
    prune: Annotated[float, typer.Option("--prune", help="Share of the entries to remove after tuning.")] = 0.0,
    pruning: shaping_options.PruneOptions,
    final: shaping_options.Final = False,
    tuned_on: Annotated[
        str, typer.Option("--tuned-on", help="Tune the combiners on the unpruned memory (paper) or on the pruned one.")
    ] = "unpruned",
    index: options.IndexSetting = None,
    assignments: shaping_options.LearnAssignments = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    format: options.Format = None,
    dev_format: options.DevFormat = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Learn a memory from parallel text: extract, cluster, compact, tune, prune, index. Interrupted, it goes on."""
    from ibidem.facade import open_corpus
    from ibidem.learn import ExtractSettings, LearnSettings
    from ibidem.learn import learn as run

    settings = LearnSettings(
        extract=ExtractSettings(batch_tokens=batch_tokens),
        cluster=clustering.settings(seed),
        compact=compacting.settings(compact, seed),
        compactor=compactor,
        keep_keys=keep_keys,
        tune=_tune_settings(k, objective, validation, updates, seed),
        tuned_on=tuned_on,
        prune=pruning.settings(prune, seed),
        keep_unpruned=not final,
        index=index,
        threads=opening.threads,
    )
    settings = override(settings, assignments or ())
    base = opening.load()
    corpus = open_corpus(train, base, format=format, catalogue_language=catalogue_language)
    dev_corpus = open_corpus(dev, base, format=dev_format, catalogue_language=catalogue_language) if dev else None
    with shown_progress() as progress:
        memory = run(base, corpus, output, dev=dev_corpus, seed=seed, settings=settings, progress=progress)
    note(corpus.counts.describe())
    _note_index(memory)
    print_summary(memory, json=json)


def extract(
    train: options.Train,
    output: options.Output,
    *,
    opening: ModelOptions,
    compactor: shaping_options.Compactor = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """First stage of learn: store every target token with its decoder state, or with that of a compactor's space.

    Interrupted, it goes on.
    """
    from ibidem.facade import open_corpus
    from ibidem.learn import ExtractSettings
    from ibidem.learn import extract as run

    base = opening.load()
    corpus = open_corpus(train, base, format=format, catalogue_language=catalogue_language)
    settings = ExtractSettings(batch_tokens=batch_tokens)
    with shown_progress() as progress:
        memory = run(base, corpus, output, seed=seed, settings=settings, compactor=compactor, progress=progress)
    note(corpus.counts.describe())
    print_summary(memory, json=json)


def index(
    memory: options.MemoryPath,
    setting: Annotated[str, typer.Argument(help="auto, exact, native, paper, or a faiss factory string.")] = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Build the memory's search index anew."""
    from ibidem.learn import index_memory
    from ibidem.memory import Memory

    use_threads(threads)
    with shown_progress() as progress:
        opened, _ = index_memory(Memory.open(memory), setting, threads=threads, progress=progress)
    _note_index(opened)
    print_summary(opened, json=json)


def tune(
    memory: options.MemoryPath,
    *,
    dev: options.Dev = None,
    opening: ModelOptions,
    k: K = 8,
    objective: Objective = "likelihood",
    validation: Validation = "split",
    updates: Updates = 5000,
    index: options.IndexSetting = None,
    again: shaping_options.Again = False,
    seed: options.Seed = 0,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Tune the memory's combiners on a dev set: k, weight and temperature of the fixed one, and Meta-k."""
    from ibidem.facade import open_corpus
    from ibidem.learn import tune as run
    from ibidem.memory import Memory

    settings = _tune_settings(k, objective, validation, updates, seed)
    before = Memory.open(memory)
    base = opening.load(before.identity)
    corpus = open_corpus(dev, base, format=format, catalogue_language=catalogue_language) if dev else None
    with shown_progress() as progress:
        opened = run(before, base, corpus, settings=settings, setting=index, again=again, progress=progress)
    note_done(before, opened, "tune")
    print_summary(opened, json=json)


def _tune_settings(k: int, objective: str, validation: str, updates: int, seed: int) -> TuneSettings:
    from ibidem.learn import MetaKSettings, TuneSettings

    metak = MetaKSettings(validation=validation, updates=updates, seed=seed)
    return TuneSettings(k=k, objective=objective, metak=metak)


def _note_index(memory: Memory) -> None:
    """Tell what the index could not do as it was asked."""
    stored = memory.manifest.artefacts.get("index")
    for message in stored.info["notes"] if stored is not None else ():
        note(message)
