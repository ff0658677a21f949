"""The command translate: lines or whole documents in, translations out."""

from __future__ import annotations

import json as json_module
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, open_input, read_lines, shown_progress
from ibidem.cli.options import TranslatorOptions
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ibidem.decode import AssessedSegment, Translator
    from ibidem.text import FillReport, FillSettings

_MOST_FAILURES = 20
_MAX_SHOWN = 100
# Endings that name a format of documents.
_NAMED = {".doc", ".docx", ".html", ".md", ".odt", ".pdf", ".po", ".rtf", ".tmx", ".txt", ".xlf", ".xls", ".xlsx"}
_PACKED = (".docx", ".docm", ".dotx", ".xlsx", ".xlsm", ".odt", ".ott", ".odp")


def translate(
    input: Annotated[
        Path | None,
        typer.Option("-i", "--input", help="File to read, lines or a document; else stdin.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; else stdout.", show_default=False)
    ] = None,
    *,
    translator_options: TranslatorOptions,
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
            help="Translate a whole document, where its ending does not name one: docx, html, markdown, xliff, text … "
            "(docs/formats.md lists them).",
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
    confidence: Annotated[
        bool,
        typer.Option("--confidence", help="Lines: write the confidence and a tab before each translation."),
    ] = False,
    min_confidence: Annotated[
        float,
        typer.Option(
            "--min-confidence",
            min=0,
            max=1,
            help="Leave out translations that need no edit with a lower probability than this.",
        ),
    ] = 0.0,
    mark_confidence: Annotated[
        bool,
        typer.Option("--mark-confidence/--no-mark-confidence", help="XLIFF: write the confidence of translations."),
    ] = True,
    matches: Annotated[
        int, typer.Option("--matches", min=0, max=100, help="With --json: this many similar stored pairs a sentence.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no warnings about suspicious translations.")] = False,
    json: options.Json = False,
) -> None:
    """Translate line by line, or a whole document: DOCX, XLSX, ODT, HTML, Markdown, subtitles, XLIFF, PO, JSON …

    Every line of plain text gives exactly one line; its sentences are translated one by one. A document, recognised by
    its file name or --format, is written back unchanged except for its translations; segments that lost a
    placeholder are reported. A warning names each translation that is very short, repeats itself, copies the source
    or lacks one of its numbers.
    """
    output = _choose_output(input, output, in_place=in_place)
    document = _is_document(input, format)
    if document:
        _check_document(input, output, format, in_place=in_place, json=json)
        if n_best > 1 or prefixes is not None or matches or confidence:
            raise UsageError("--n-best, --prefixes, --matches and --confidence are for lines, not for documents.")
    elif overwrite or fuzzy or not mark_fuzzy or not mark_confidence:
        raise UsageError(
            "--overwrite, --fuzzy, --no-mark-fuzzy and --no-mark-confidence are for documents: name its --format."
        )
    if (n_best > 1 or matches) and not json:
        raise UsageError("--n-best and --matches need --json, since plain output has one line for each input line.")
    if confidence and json:
        raise UsageError("--json has the confidence already: leave --confidence out.")
    from ibidem.text import FillSettings, check_output, open_output

    translator_options.check(combiner)
    if output is not None:
        check_output(output)  # before the long wait
    with ExitStack() as stack:
        source = sys.stdin.buffer if input is None else stack.enter_context(open_input(input))  # before the long wait
        beginnings = None if prefixes is None else stack.enter_context(open_input(prefixes))
        translator = translator_options.open(combiner, beam=max(translator_options.beam, n_best))
        if document:
            _run_document(
                translator,
                input,
                output,
                format=format,
                settings=FillSettings(overwrite, fuzzy, min_confidence, mark_confidence),
                mark_fuzzy=mark_fuzzy,
                json=json,
                quiet=quiet,
            )
            note_terms(translator)
            return
        target = sys.stdout.buffer if output is None else stack.enter_context(open_output(output))
        lines = map(_join_breaks, read_lines(source, str(input or "stdin")))
        starts = None if beginnings is None else list(read_lines(beginnings, str(prefixes)))
        warnings = _Warnings(str(input or "stdin"), shown=not quiet)
        written: Iterable[str]
        if json:
            written = _results(translator, lines, n_best, starts, matches, min_confidence)
        elif confidence or min_confidence:
            written = _assessed(translator, lines, starts, min_confidence, warnings, shown=confidence)
        elif starts is not None:
            written = translator.translate(list(lines), prefixes=starts, warn=warnings)
        else:
            written = translator.translate_stream(lines, warnings)
        for line in written:
            target.write(line.encode("utf-8") + b"\n")
            target.flush()
        warnings.note_count()
        note_terms(translator)


def _join_breaks(line: str) -> str:
    """Replace line breaks other than LF by spaces, so that every program reads one line for each line."""
    return " ".join(line.splitlines())


class _Warnings:
    """Prints warnings about suspicious translations, one for each line, and counts these lines."""

    def __init__(self, name: str, *, shown: bool) -> None:
        self._name = name
        self._shown = shown
        self._count = 0
        self._last = -1

    def __call__(self, number: int, message: str) -> None:
        if number == self._last:
            return
        self._last = number
        self._count += 1
        if self._shown and self._count <= _MOST_FAILURES:
            note(f"warning: {self._name}, line {number + 1}: {message}")

    def note_count(self) -> None:
        """Print the number of warnings, if there are any."""
        if self._shown and self._count:
            note(f"{self._count:,} suspicious {'translation' if self._count == 1 else 'translations'}: check them")


def note_terms(translator: Translator) -> None:
    """Print what became of the terms of the glossary, and the sentences that lack one.

    Args:
        translator: The translator after its work.
    """
    work = translator.work
    if translator.glossary is None:
        return
    for unmet in list(dict.fromkeys(work.unmet_terms))[:_MOST_FAILURES]:
        text = unmet.text if len(unmet.text) <= _MAX_SHOWN else f"{unmet.text[:_MAX_SHOWN]}…"
        note(f"unmet term {unmet.entry.source!r} ({' | '.join(unmet.entry.targets)}): {text}")
    note(
        f"glossary {translator.glossary.name}: {work.terms:,} {'term' if work.terms == 1 else 'terms'} found, "
        f"{work.forced_terms:,} forced, "
        f"{len(work.unmet_terms):,} unmet"
    )


def _results(
    translator: Translator,
    lines: Iterator[str],
    count: int,
    prefixes: Sequence[str] | None,
    matches: int,
    min_confidence: float,
) -> Iterator[str]:
    """Yield a JSON object for each line: its translation, alternatives with scores, confidence, and warnings."""
    from ibidem.decode import translate_and_assess

    windows = translator.windows(lines) if prefixes is None else [list(lines)]
    for window in windows:
        warnings: dict[int, list[str]] = {}

        def warn(number: int, message: str, warnings: dict[int, list[str]] = warnings) -> None:
            warnings.setdefault(number, []).append(message)

        found = translate_and_assess(
            translator,
            window,
            count=count,
            matches=matches,
            min_confidence=min_confidence,
            prefixes=prefixes,
            warn=warn,
        )
        for number, (source, best) in enumerate(zip(window, found, strict=True)):
            result: dict[str, object] = {
                "source": source,
                "translation": best.text,
                "translations": [{"text": text, "score": score} for text, score in best.alternatives],
                "confidence": _round(best.confidence),
                "segments": [_describe_segment(segment, shown=matches > 0) for segment in best.segments],
                "warnings": warnings.get(number, []),
            }
            if best.missing_shards:
                result["missing_shards"] = list(best.missing_shards)
            yield json_module.dumps(result, ensure_ascii=False)


def _describe_segment(segment: AssessedSegment, *, shown: bool) -> dict[str, object]:
    """Return a sentence as a JSON object, with its matches if they are to be shown."""
    result: dict[str, object] = {
        "start": segment.start,
        "end": segment.end,
        "source_start": segment.source_start,
        "source_end": segment.source_end,
        "confidence": _round(segment.confidence),
    }
    if segment.left_empty:
        result["left_empty"] = True
    if shown:
        result["matches"] = [match.to_json() for match in segment.matches]
    return result


def _round(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 4)


def _assessed(
    translator: Translator,
    lines: Iterator[str],
    prefixes: Sequence[str] | None,
    min_confidence: float,
    warnings: _Warnings,
    *,
    shown: bool,
) -> Iterator[str]:
    """Yield the translation of each line, without sentences of low confidence, after its confidence if it is shown."""
    from ibidem.decode import translate_and_assess

    windows = translator.windows(lines) if prefixes is None else [list(lines)]
    first = 0
    for window in windows:
        found = translate_and_assess(
            translator,
            window,
            min_confidence=min_confidence,
            prefixes=prefixes,
            warn=lambda number, message, first=first: warnings(first + number, message),  # type: ignore[misc]
        )
        for one in found:
            known = "" if one.confidence is None else f"{one.confidence:.4f}"
            yield f"{known}\t{one.text}" if shown else one.text
        first += len(window)


def _choose_output(input: Path | None, output: Path | None, *, in_place: bool) -> Path | None:
    """Return the file to write; raises UsageError for an --in-place without an input or with an output."""
    if not in_place:
        return output
    if input is None or output is not None:
        raise UsageError("--in-place writes to the file given with --input: give that, and no --output.")
    return input


def _is_document(input: Path | None, format: str | None) -> bool:
    """Return whether the input is a document, by its given format or its file name."""
    from ibidem.text import format_of

    return format_of(input or "-", format) is not None


def _check_document(input: Path | None, output: Path | None, format: str | None, *, in_place: bool, json: bool) -> None:
    """Raise UsageError where the input would be overwritten, or a document would mix with its report."""
    from ibidem.text import format_of

    if output is None and sys.stdout.isatty() and input is not None and input.suffix.lower() in _PACKED:
        raise UsageError(f"{input} cannot be shown on a terminal: give the file to write with --output.")
    if json and output is None:
        raise UsageError("--json prints the report of a document: give the document's own file with --output.")
    if input is None or output is None:
        return
    other_suffix = output.suffix.lower() != input.suffix.lower()
    if other_suffix and output.suffix.lower() in _NAMED and format_of(output) != format_of(input, format):
        note(f"warning: {output} gets the format of {input}: documents are not converted")
    if not in_place and output.exists() and output.samefile(input):
        raise UsageError(f"{output} is the input file. To change it, give --in-place instead of --output.")


def _run_document(
    translator: Translator,
    input: Path | None,
    output: Path | None,
    *,
    format: str | None,
    settings: FillSettings,
    mark_fuzzy: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Translate a document and print the report."""
    from ibidem.decode import translate_document

    with shown_progress() as progress:
        report = translate_document(
            translator,
            input or "-",
            sys.stdout.buffer if output is None else output,
            format=format,
            settings=settings,
            mark_fuzzy=mark_fuzzy,
            progress=progress,
        )
    if json:
        print(json_module.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        _note_report(report, quiet=quiet)


def _note_report(report: FillReport, *, quiet: bool) -> None:
    for lines in ([*report.lines()], [] if quiet else [*report.warning_lines()]):
        for line in lines[:_MOST_FAILURES]:
            note(line)
        if len(lines) > _MOST_FAILURES:
            note(f"and {len(lines) - _MOST_FAILURES:,} more; --json lists all")
    note(report.describe())
