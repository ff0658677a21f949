"""learn, extract, index, tune: from text to a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options, shaping_options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, shown_progress, use_threads
from ibidem.cli.memories import print_summary
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
    dev: options.Dev = None,
    model: options.Model = None,
    k: K = 8,
    objective: Objective = "likelihood",
    validation: Validation = "split",
    updates: Updates = 5000,
    compact: Annotated[
        str,
        typer.Option("--compact", help="Search in fewer dimensions: network (the paper's), pca or svd; or none."),
    ] = "none",
    dimension: shaping_options.Dimension = 64,
    compactor: shaping_options.Compactor = None,
    objectives: shaping_options.Objectives = "nce",
    nce: shaping_options.Nce = "in_batch",
    ranking: shaping_options.Ranking = "paper",
    activation: shaping_options.Activation = "sigmoid",
    clusters: shaping_options.Clusters = True,
    pivots: shaping_options.Pivots = "static",
    negatives: shaping_options.Negatives = "family",
    share: shaping_options.Share = 1.0,
    batch: shaping_options.Batch = 1024,
    learning_rate: shaping_options.LearningRate = 3e-4,
    compact_updates: shaping_options.CompactUpdates = 30_000,
    keep_keys: shaping_options.KeepKeys = False,
    cluster_method: shaping_options.ClusterMethod = "auto",
    eps: shaping_options.Eps = None,
    eps_quantile: shaping_options.EpsQuantile = 0.9,
    min_samples: shaping_options.MinSamples = 4,
    threshold: shaping_options.Threshold = None,
    family_bound: shaping_options.FamilyBound = 20_000,
    prune: Annotated[float, typer.Option("--prune", help="Share of the entries to remove after tuning.")] = 0.0,
    strategy: shaping_options.Strategy = "cost-clusters",
    cost_n: shaping_options.CostN = 1,
    groups: shaping_options.Groups = None,
    group_n: shaping_options.GroupN = 3,
    epsilon: shaping_options.Epsilon = None,
    cost_scale: shaping_options.CostScale = "perplexity",
    cost_method: shaping_options.CostMethod = "greedy",
    rule: shaping_options.Rule = "exact",
    final: shaping_options.Final = False,
    tuned_on: Annotated[
        str, typer.Option("--tuned-on", help="Tune the combiners on the unpruned memory (paper) or on the pruned one.")
    ] = "unpruned",
    index: options.IndexSetting = None,
    assignments: shaping_options.LearnAssignments = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    source_prefix: options.SourcePrefix = "",
    format: options.Format = None,
    dev_format: options.DevFormat = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Learn a memory from parallel text: extract, cluster, compact, tune, prune, index. Interrupted, it goes on."""
    from ibidem.facade import open_corpus
    from ibidem.learn import ClusterSettings, CompactSettings, ExtractSettings, LearnSettings, PruneSettings
    from ibidem.learn import learn as run
    from ibidem.learn.compact import parse_objectives
    from ibidem.model import load_model

    settings = LearnSettings(
        extract=ExtractSettings(batch_tokens=batch_tokens),
        cluster=ClusterSettings(
            method=cluster_method,
            eps=eps,
            eps_quantile=eps_quantile,
            min_samples=min_samples,
            threshold=threshold,
            family_bound=family_bound,
            seed=seed,
        ),
        compact=CompactSettings(
            method=compact,
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
            updates=compact_updates,
            seed=seed,
        ),
        compactor=compactor,
        keep_keys=keep_keys,
        tune=_tune_settings(k, objective, validation, updates, seed),
        tuned_on=tuned_on,
        prune=PruneSettings(
            strategy=strategy,
            rate=prune,
            n=cost_n,
            groups=groups,
            group_n=group_n,
            epsilon=epsilon,
            scale=cost_scale,
            method=cost_method,
            rule=rule,
            seed=seed,
        ),
        keep_unpruned=not final,
        index=index,
        threads=threads,
    )
    settings = override(settings, assignments or ())
    use_threads(threads)
    base = load_model(
        model,
        device=device,
        dtype=dtype,
        source_language=source_language,
        target_language=target_language,
        source_prefix=source_prefix,
    )
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
    model: options.Model = None,
    compactor: shaping_options.Compactor = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    source_prefix: options.SourcePrefix = "",
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
    from ibidem.model import load_model

    use_threads(threads)
    base = load_model(
        model,
        device=device,
        dtype=dtype,
        source_language=source_language,
        target_language=target_language,
        source_prefix=source_prefix,
    )
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
    dev: options.Dev = None,
    model: options.Model = None,
    k: K = 8,
    objective: Objective = "likelihood",
    validation: Validation = "split",
    updates: Updates = 5000,
    index: options.IndexSetting = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    source_prefix: options.SourcePrefix = "",
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Tune the memory's combiners on a dev set: k, weight and temperature of the fixed one, and Meta-k."""
    from ibidem.facade import open_corpus
    from ibidem.learn import tune as run
    from ibidem.memory import Memory
    from ibidem.model import load_model

    settings = _tune_settings(k, objective, validation, updates, seed)
    use_threads(threads)
    opened = Memory.open(memory)
    identity = opened.identity
    base = load_model(
        model or identity.name,
        device=device,
        dtype=dtype,
        source_language=identity.source_language,
        target_language=identity.target_language,
        source_prefix=source_prefix or identity.source_prefix,
    )
    corpus = open_corpus(dev, base, format=format, catalogue_language=catalogue_language) if dev else None
    with shown_progress() as progress:
        opened = run(opened, base, corpus, settings=settings, setting=index, progress=progress)
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
