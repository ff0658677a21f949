"""translate and evaluate: lines and documents in and out, and how good they are."""

from __future__ import annotations

import json as json_module
import sys
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ibidem.cli import options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.console import note, print_table
from ibidem.cli.documents import check_document, choose_output, is_document, run_document
from ibidem.cli.lines import open_input, read_lines
from ibidem.cli.opening import TranslatorOptions  # noqa: TC001 - typer reads the annotations
from ibidem.errors import TextError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ibidem.decode import Scorer, Translator


def translate(
    input: Annotated[
        Path | None,
        typer.Option("-i", "--input", help="File to read, lines or a document; else stdin.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; else stdout.", show_default=False)
    ] = None,
    *,
    opening: TranslatorOptions,
    combiner: options.Combiner = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="With --json: this many translations a line.")] = 1,
    prefixes: Annotated[
        Path | None,
        typer.Option("--prefixes", help="File of beginnings of the translations, a line each.", show_default=False),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Translate a whole document, where its ending does not say so: xliff, po, tmx, tsv, jsonl or plain.",
            show_default=False,
        ),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write to the input file itself.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Documents: translate anew what has a translation.")
    ] = False,
    fuzzy: Annotated[bool, typer.Option("--fuzzy", help="PO: translate fuzzy entries anew too.")] = False,
    mark_fuzzy: Annotated[
        bool, typer.Option("--mark-fuzzy/--no-mark-fuzzy", help="PO: flag new translations as fuzzy.")
    ] = True,
    json: options.Json = False,
) -> None:
    """Translate line by line, or a whole document: XLIFF, PO, TMX, TSV or JSONL.

    Every line of plain text gives exactly one line. A document, known by its ending or --format, is written back as
    it was, with the translations it lacked; what could not be translated with all its placeholders is reported.
    """
    output = choose_output(input, output, in_place=in_place)
    document = is_document(input, format)
    if document:
        check_document(input, output, in_place=in_place, json=json)
        if n_best > 1 or prefixes is not None:
            raise UsageError("--n-best and --prefixes are for lines, not for documents.")
    elif overwrite or fuzzy or not mark_fuzzy:
        raise UsageError("--overwrite, --fuzzy and --no-mark-fuzzy are for documents: name its --format.")
    if n_best > 1 and not json:
        raise UsageError("--n-best needs --json, since plain output has one line for each input line.")
    from ibidem.text import FillSettings, open_output

    opening.check(combiner)
    with ExitStack() as stack:
        source = sys.stdin.buffer if input is None else stack.enter_context(open_input(input))  # before the long wait
        beginnings = None if prefixes is None else stack.enter_context(open_input(prefixes))
        translator = opening.open(combiner, beam=max(opening.beam, n_best))
        if document:
            run_document(
                translator,
                input,
                output,
                format=format,
                settings=FillSettings(overwrite=overwrite, fuzzy=fuzzy),
                mark_fuzzy=mark_fuzzy,
                json=json,
            )
            return
        target = sys.stdout.buffer if output is None else stack.enter_context(open_output(output))
        lines = read_lines(source, str(input or "stdin"))
        starts = None if beginnings is None else list(read_lines(beginnings, str(prefixes)))
        written: Iterable[str]
        if json:
            written = _results(translator, lines, n_best, starts)
        elif starts is not None:
            written = translator.translate(list(lines), prefixes=starts)
        else:
            written = translator.translate_stream(lines)
        for line in written:
            target.write(line.encode("utf-8") + b"\n")
            target.flush()


def evaluate(
    test: Annotated[
        list[str],
        typer.Option(
            "--test",
            help="Test set: one TMX, XLIFF, TSV, JSONL, PO or MO file, or the option twice for two aligned files.",
        ),
    ],
    *,
    opening: TranslatorOptions,
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
    from ibidem.decode import BaseScorer
    from ibidem.evaluate import describe_machine, evaluate_systems
    from ibidem.facade import open_corpus

    names = list(combiner or ())
    by_hand = opening.by_hand
    translator = opening.open(next(iter(names), None))
    corpus = open_corpus(test, translator.model, format=format, catalogue_language=catalogue_language)
    pairs = list(corpus)
    if not pairs:
        raise TextError(f"The test set ({corpus.description}) holds no pair: {corpus.counts.describe()}.")
    scorers: dict[str, Scorer] = {"base": BaseScorer()}
    if opening.memories:
        # One index serves all combiners.
        scorers["by hand" if by_hand else next(iter(names), "memory")] = translator.scorer
        for name in names if by_hand else names[1:]:
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
        "memory": ", ".join(opening.memory or ["none"]),
        "beam": opening.beam,
        "length_penalty": opening.length_penalty,
        "batch_size": opening.batch_size,
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


def _results(translator: Translator, lines: Iterator[str], count: int, prefixes: Sequence[str] | None) -> Iterator[str]:
    """A JSON object for each line: its source, its translation, and its alternatives with their scores."""
    windows = translator.windows(lines) if prefixes is None else [list(lines)]
    for window in windows:
        for source, best in zip(window, translator.alternatives(window, count, prefixes=prefixes), strict=True):
            translations = [{"text": text, "score": score} for text, score in best]
            result = {"source": source, "translation": best[0][0], "translations": translations}
            yield json_module.dumps(result, ensure_ascii=False)
