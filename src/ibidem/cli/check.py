"""The command check: what parallel text is worth before it is learnt."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, say, shown_progress
from ibidem.cli.options import ModelOptions
from ibidem.errors import EncodingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ibidem.check import CheckReport
    from ibidem.model import BaseModel
    from ibidem.text import Corpus, Pair

_FALLBACK = "cp1252"
_MAX_SECONDS = 3600.0


def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of parallel text, each checked by itself; two plain text files are line-aligned.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option("--train", metavar="FILE [FILE]", help="One corpus, as for learn.", show_default=False),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(
            "--dev",
            metavar="FILE [FILE]",
            help="Dev or test set: its texts must not be in the corpus.",
            show_default=False,
        ),
    ] = None,
    *,
    sample: Annotated[
        int, typer.Option("--sample", min=0, max=100_000, help="Pairs that the model scores; 0: texts only, fast.")
    ] = 500,
    examples: Annotated[int, typer.Option("--examples", min=0, max=1_000, help="Examples of each finding.")] = 3,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=_MAX_SECONDS, help="Limit on the time of each of both passes.")
    ] = 120.0,
    seed: options.Seed = 0,
    model_options: ModelOptions,
    format: options.Format = None,
    encoding: options.Encoding = None,
    catalogue_language: options.CatalogueLanguage = None,
    json: options.Json = False,
) -> None:
    """Report what is wrong with parallel text before it is learnt; nothing is changed.

    Each finding states what learn and add do about it. The exit code is 1 if they refuse a corpus, else 0.
    """
    from ibidem.check import Action, CheckSettings, Finding, check_sample, check_texts

    corpora = _group_files(files or [], train)
    model = model_options.load() if sample else None

    def open_corpus(paths: Sequence[str], encoding: str | None, stated: str | None = format) -> Corpus:
        return _open(paths, model, model_options, stated, encoding, catalogue_language)

    held_out: list[Pair] = list(open_corpus(dev, encoding, None)) if dev else []
    settings = CheckSettings(seconds=seconds, examples=examples, sample=sample, seed=seed)
    reports = []
    with shown_progress() as progress:
        for paths in corpora:

            def run(encoding: str | None, paths: Sequence[str] = paths) -> CheckReport:
                corpus = open_corpus(paths, encoding)
                report, checked = check_texts(corpus, settings=settings, held_out=held_out, progress=progress)
                if model is not None:
                    limits = {"seed": seed, "seconds": seconds, "examples": examples}
                    check_sample(report, checked.sample, model, progress=progress, **limits)  # type: ignore[arg-type]
                return report

            report = _try_encodings(run, encoding)
            if not report.kept:
                message = "no usable pair was found: check the file, its format and the languages"
                report.add(Finding("no pairs", Action.REFUSE, 0, report.read, message))
            reports.append(report)
    if json:
        refused = any(report.refused for report in reports)
        warned = any(report.warnings for report in reports)
        verdict = "refused" if refused else "usable with warnings" if warned else "good"
        print(json_module.dumps({"verdict": verdict, "corpora": [report.as_dict() for report in reports]}))
    else:
        for report in reports:
            _print(report)
    if any(report.refused for report in reports):
        raise typer.Exit(1)


def note_findings(report: CheckReport | None, policy: str) -> None:
    """Print what the check before learning found, on stderr.

    Args:
        report: The report; None if nothing was checked.
        policy: The value of --bad-pairs.
    """
    from ibidem.check import describe_warnings

    for line in describe_warnings(report, policy):
        note(line)


def _group_files(files: list[str], train: list[str] | None) -> list[list[str]]:
    """Return the files of each corpus."""
    from ibidem.text import names_pair_format

    if train and files:
        raise UsageError("Give the files as arguments, or one corpus with --train, not both.")
    if train:
        return [train]
    if not files:
        raise UsageError("Nothing to check: give files of parallel text, or one corpus with --train.")
    if len(files) == 2 and not any(map(names_pair_format, files)):
        return [files]
    return [[file] for file in files]


def _open(
    paths: Sequence[str],
    model: BaseModel | None,
    given: ModelOptions,
    format: str | None,
    encoding: str | None,
    catalogue_language: str | None,
) -> Corpus:
    from ibidem.api import open_corpus
    from ibidem.text import Corpus

    if model is not None:
        return open_corpus(paths, model, format=format, encoding=encoding, catalogue_language=catalogue_language)
    return Corpus(
        paths,
        source_language=given.source_language or "de",
        target_language=given.target_language or "en",
        format=format,
        encoding=encoding,
        catalogue_language=catalogue_language,
    )


def _try_encodings(run: Callable[[str | None], CheckReport], encoding: str | None) -> CheckReport:
    """Check a corpus; if it is not UTF-8, report this and check it as Windows-1252, which Excel writes."""
    from ibidem.check import Action, Finding

    try:
        return run(encoding)
    except EncodingError as error:
        if encoding is not None:
            raise
        report = run(_FALLBACK)
        message = f"{error}. The other findings are those of the text as {_FALLBACK}."
        report.add(Finding("encoding", Action.REFUSE, 1, 1, message))
        return report


def _print(report: CheckReport) -> None:
    part = "" if report.complete else " before the time was over; the rest was not read"
    say(f"{report.corpus}: read {report.read:,} units, {report.kept:,} usable pairs{part}")
    for finding in report.findings:
        say(f"  {finding.action.value:<6}  {finding.name}: {finding.message}")
        for example in finding.examples:
            say(f"            {example.place}: {example.source} | {example.target}")
        if finding.fix and "as always" not in finding.fix:
            say(f"            --bad-pairs fix {finding.fix}.")
    if report.sample:
        sample = report.sample
        say(
            f"  sample  {sample['pairs']:,} pairs: log-probability {sample['log_probability']} for each target token; "
            f"{sample['gain']} more than with another source"
        )
    done = {
        "refused": "learn and add refuse it (--bad-pairs fix or keep overrides this)",
        "usable with warnings": "learn and add use it, with the warnings above",
        "good": "learn and add use it",
    }
    if not report.kept:
        done["refused"] = "there is nothing to learn"
    elif [finding.name for finding in report.findings if finding.action.value == "refuse"] == ["encoding"]:
        done["refused"] = "learn and add refuse it until its encoding is stated"
    say(f"verdict: {report.verdict}: {done[report.verdict]}")
