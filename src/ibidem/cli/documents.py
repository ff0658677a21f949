"""Whole documents for translate: which file is one, and what is said about it."""

from __future__ import annotations

import json as json_module
import sys
from typing import TYPE_CHECKING

from ibidem.cli.console import note, shown_progress
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.decode import Translator
    from ibidem.text import FillReport, FillSettings

_MOST_FAILURES = 20


def choose_output(input: Path | None, output: Path | None, *, in_place: bool) -> Path | None:
    """The file to write; raises UsageError where --in-place does not fit."""
    if not in_place:
        return output
    if input is None or output is not None:
        raise UsageError("--in-place writes to the file given with --input: give that, and no --output.")
    return input


def is_document(input: Path | None, format: str | None) -> bool:
    """Whether a document is translated, by its stated format or its ending, or else lines."""
    from ibidem.text import format_of

    return format_of(input or "-", format) is not None


def check_document(input: Path | None, output: Path | None, *, in_place: bool, json: bool) -> None:
    """Refuse to overwrite the input unasked, and to mix a document with its report."""
    if json and output is None:
        raise UsageError("--json prints the report of a document: give the document's own file with --output.")
    if input is not None and output is not None and not in_place and output.exists() and output.samefile(input):
        raise UsageError(f"{output} is the input itself. To change it, say --in-place instead of --output.")


def run_document(
    translator: Translator,
    input: Path | None,
    output: Path | None,
    *,
    format: str | None,
    settings: FillSettings,
    mark_fuzzy: bool,
    json: bool,
) -> None:
    """Translate a document and report."""
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
        _note_report(report)


def _note_report(report: FillReport) -> None:
    for number, line in enumerate(report.lines()):
        if number == _MOST_FAILURES:
            note(f"and {len(report.failed) - number:,} more; --json lists all")
            break
        note(line)
    note(report.describe())
