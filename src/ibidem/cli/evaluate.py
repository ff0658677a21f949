"""The command evaluate: BLEU, chrF, significance and speed of a memory compared with the base model."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options
from ibidem.cli.console import note, print_table
from ibidem.cli.options import TranslatorOptions
from ibidem.errors import TextError

if TYPE_CHECKING:
    from ibidem.decode import Scorer


def evaluate(
    test: Annotated[
        list[str],
        typer.Option(
            "--test",
            help="Test set: one TMX, XLIFF, TSV, JSONL, PO or MO file, or the option twice for two aligned files.",
        ),
    ],
    *,
    translator_options: TranslatorOptions,
    combiner: Annotated[
        list[str] | None,
        typer.Option("--combiner", help="adaptive, fixed; may be given twice to compare both.", show_default=False),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Bootstrap samples.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=1, help="Seed of the bootstrap.")] = 12345,
    save: Annotated[
        Path | None, typer.Option("--save", help="Folder for each system's translations.", show_default=False)
    ] = None,
    format: options.Format = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Score the base model and, with -m, the memory against it: BLEU, chrF, paired bootstrap, speed."""
    from ibidem.api import open_corpus
    from ibidem.decode import BaseScorer
    from ibidem.evaluate import describe_machine, evaluate_systems

    names = list(combiner or ())
    given = translator_options.fixed_combiner
    translator = translator_options.open(next(iter(names), None))
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
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    results = evaluate_systems(translator, scorers, sources, references, samples=samples, seed=seed)
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
        "bootstrap": {"samples": samples, "seed": seed},
        "signatures": {found.name: found.signature for found in results[0].scores},
        "machine": describe_machine(),
        "systems": {result.name: result.to_json() for result in results},
    }
    if json:
        print(json_module.dumps(report, indent=2, ensure_ascii=False))
    else:
        _print_report(report)


def _print_report(report: dict[str, Any]) -> None:
    base = report["systems"]["base"]["scores"]
    rows = []
    for name, system in report["systems"].items():
        cells = [name]
        for metric, value in system["scores"].items():
            gain = "" if name == "base" else f" ({value - base[metric]:+.2f})"
            cells.append(f"{value:.2f}{gain}")
        p_values = system["p_value_against_base"]
        cells.append(f"{p_values['BLEU']:.4f}" if p_values else "")
        cells.append(f"{system['sentences_per_second']:.1f}")
        cells.append(f"{system['tokens_per_second']:.0f}")
        rows.append(tuple(cells))
    header = ("system", "BLEU", "chrF", "p (BLEU)", "sentences/s", "tokens/s")
    print_table(
        f"{report['test']}: {report['sentences']:,} sentences, beam {report['beam']}",
        rows,
        header,
        figures=True,
    )
    for metric, signature in report["signatures"].items():
        note(f"{metric} {signature}")
