"""The commands evaluate and bench: quality and speed of a memory compared with the base model and other systems."""

from __future__ import annotations

import json as json_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import note, print_table, shown_progress
from ibidem.cli.options import ModelOptions, TranslatorOptions
from ibidem.errors import TextError
from ibidem.evaluate import SAMPLES, SEED, format_p_value

if TYPE_CHECKING:
    from ibidem.decode import Scorer
    from ibidem.memory import Memory


def evaluate(
    test: Annotated[
        list[str],
        typer.Option(
            "--test",
            help="Test set: one TMX, XLIFF, TSV, CSV, XLSX, JSONL, PO or MO file, or the option twice for two aligned "
            "files.",
        ),
    ],
    *,
    translator_options: TranslatorOptions,
    combiner: Annotated[
        list[str] | None,
        typer.Option(
            "--combiner", help="contextual, adaptive or fixed; several may be given, to compare.", show_default=False
        ),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Bootstrap samples.")] = SAMPLES,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")] = SEED,
    save: Annotated[
        Path | None, typer.Option("--save", help="Folder for each system's translations.", show_default=False)
    ] = None,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Score the base model and, with -m, the memory against it: BLEU, chrF, paired bootstrap, speed.

    With --glossary, the last system is scored once more with the glossary.
    """
    from ibidem.api import open_corpus
    from ibidem.decode import BaseScorer
    from ibidem.evaluate import describe_machine, evaluate_systems

    names = list(combiner or ())
    given = translator_options.fixed_combiner
    translator = translator_options.open(next(iter(names), None), with_glossary=False)
    glossary = translator_options.load_glossary(translator.model)
    corpus = open_corpus(test, translator.model, format=format, catalogue_language=catalogue_language)
    pairs = list(corpus)
    if not pairs:
        raise TextError(f"The test set ({corpus.description}) holds no pair: {corpus.counts.describe()}.")
    scorers: dict[str, Scorer] = {"base": BaseScorer()}
    if translator_options.memories:
        # One index serves all combiners.
        scorers["given" if given else next(iter(names), "memory")] = translator.scorer
        for name in names if given else names[1:]:
            scorers[name] = translator.scorer_with(name)
    if glossary is not None:
        scorers["glossary"] = list(scorers.values())[-1]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    glossaries = {} if glossary is None else {"glossary": glossary}
    results = evaluate_systems(
        translator, scorers, sources, references, samples=samples, seed=seed, glossaries=glossaries
    )
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        for result in results:
            text = "".join(f"{line}\n" for line in result.translations)
            (save / f"{result.name}.txt").write_text(text, encoding="utf-8")
    report = {
        "test": corpus.description,
        "sentences": len(pairs),
        "model": translator.model.name,
        "memory": ", ".join(translator_options.memory or ["none"]),
        "beam": translator_options.beam,
        "length_penalty": translator_options.length_penalty,
        "batch_size": translator_options.batch_size,
        "bootstrap": {"samples": samples, "seed": seed, "p": "two-sided", "interval": "95 %"},
        "signatures": {found.name: found.signature for found in results[0].scores},
        "machine": describe_machine(),
        "systems": {result.name: result.to_json() for result in results},
    }
    if json:
        print(json_module.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print_scores(report)


def _print_scores(report: dict[str, Any]) -> None:
    base = report["systems"]["base"]["scores"]
    rows = []
    for name, system in report["systems"].items():
        cells = [name]
        for metric, value in system["scores"].items():
            gain = "" if name == "base" else f" ({value - base[metric]:+.2f})"
            cells.append(f"{value:.2f}{gain}")
        p_values, intervals = system["p_value_against_base"], system["interval_against_base"]
        low, high = intervals.get("BLEU", (0.0, 0.0))
        cells += [f"{low:+.2f} to {high:+.2f}", format_p_value(p_values["BLEU"])] if p_values else ["", ""]
        cells.append(f"{system['sentences_per_second']:.1f}")
        cells.append(f"{system['tokens_per_second']:.0f}")
        rows.append(tuple(cells))
    header = ("system", "BLEU", "chrF", "BLEU gain, 95 %", "p (BLEU)", "sentences/s", "tokens/s")
    print_table(
        f"{report['test']}: {report['sentences']:,} sentences, beam {report['beam']}",
        rows,
        header,
        figures=True,
    )
    for metric, signature in report["signatures"].items():
        note(f"{metric} {signature}")


def bench(
    memory: options.MemoryPath,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", help="Sentences to translate, one a line; default: sentences of the memory.", show_default=False
        ),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option("--batch", min=1, help="Sentences in a batch; may be repeated. [default: 1, 8, 32, 64]"),
    ] = None,
    beam: Annotated[
        list[int] | None, typer.Option("--beam", min=1, help="Width of the beam; may be repeated. [default: 1, 5]")
    ] = None,
    sentences: Annotated[int, typer.Option("--sentences", min=1, help="Largest number of sentences.")] = 64,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Number of measurements.")] = 3,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            help="generate (transformers' own search), paper (its index and mixture), ctranslate2 (where it is "
            "installed; fair with --threads 1), none. [default: generate, paper]",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, help="Also time searches in a memory grown to this many keys; may be repeated."),
    ] = None,
    index: options.IndexSetting = None,
    save: Annotated[Path | None, typer.Option("--save", help="File for all figures, JSON.", show_default=False)] = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Compare the speed of a memory with the base model, transformers' generate() and the paper's settings."""
    from ibidem.evaluate.bench import BenchSettings, run_bench
    from ibidem.memory import Memory

    opened = Memory.open(memory)
    base = ModelOptions(model=model, device=device, dtype=dtype, threads=threads).load(opened.identity)
    settings = BenchSettings(
        batches=tuple(batch or (1, 8, 32, 64)),
        beams=tuple(beam or (1, 5)),
        rounds=rounds,
        sentences=sentences,
        against=BenchSettings.against if against is None else tuple(name for name in against if name != "none"),
        sizes=tuple(size or ()),
        seed=seed,
    )
    lines = _own_sentences(opened, sentences) if text is None else _lines_of(text)
    with shown_progress() as progress:
        report = {"dtype": dtype, **run_bench(base, opened, lines, settings, index=index, progress=progress)}
    if save is not None:
        save.write_text(json_module.dumps(report, indent=2) + "\n", encoding="utf-8")
    if json:
        print(json_module.dumps(report, indent=2))
    else:
        _print_speed(report)


def _own_sentences(memory: Memory, wanted: int) -> list[str]:
    """Return sources spread evenly over the memory; the speed does not depend on whether they are stored."""
    step = max(1, memory.pairs // (2 * wanted))
    return [pair.source for pair in islice(memory.sentences(), 0, None, step)]


def _lines_of(text: Path) -> list[str]:
    """Read the lines of a file, which may be compressed."""
    from ibidem.text import Stream

    with Stream(str(text)) as stream:
        return [line for _, line in stream.lines()]


def _print_speed(report: dict[str, Any]) -> None:
    rows = []
    for benchmark in report["benchmarks"]:
        for name, figures in benchmark["systems"].items():
            ratios = [figures["speed_over"].get(other) for other in ("base", "generate()")]
            rows.append(
                (
                    f"{benchmark['batch']} x {benchmark['beam']}",
                    name,
                    f"{figures['tokens_per_second']:,.0f}",
                    f"{figures['sentences_per_second']:,.1f}",
                    *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
                )
            )
    header = ("batch x beam", "", "tokens/s", "sentences/s", "over base", "over generate()")
    print_table(f"{report['entries']:,} entries, {report['index']}", rows, header, figures=True)
    for shape, shares in report["shares_of_time"].items():
        note(f"{shape}: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    for grown in report["growth"]:
        times = ", ".join(f"{size}: {time:.0f}" for size, time in grown["microseconds"].items())
        note(f"{grown['keys']:,} keys, {grown['description']}: µs per query in batches of {times}")
    if report["growth_exponents"]:
        fits = ", ".join(f"{size}: {exponent:.2f}" for size, exponent in report["growth_exponents"].items())
        note(f"The time grows as the number of keys to the power of, in batches of {fits}")
