"""The command adapt: from parallel text to a fine-tuned model."""

from __future__ import annotations

import json as json_library
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, note_counts, print_table, shown_progress
from ibidem.cli.options import ModelOptions
from ibidem.cli.settings import Assignments, TextSettings, TrainedModelSettings, override_parts
from ibidem.wording import describe_value

if TYPE_CHECKING:
    from ibidem.learn import Measurement

_Output = Annotated[Path, typer.Option("-o", "--output", help="Folder of the adapted model.", show_default=False)]
_Dev = Annotated[
    list[str] | None,
    typer.Option(
        "--dev",
        metavar="FILE [FILE]",
        help="Dev set that chooses the weights; without one, pairs of the text are held out.",
        show_default=False,
    ),
]
_General = Annotated[
    list[str] | None,
    typer.Option(
        "--general",
        metavar="FILE [FILE]",
        help="General text to mix in, so that the model keeps its quality on other text.",
        show_default=False,
    ),
]
_SHOWN = ("pairs", "dev_pairs", "general_pairs", "updates", "passes", "best_update", "dev_loss_before", "dev_loss")
_GENERAL_SHOWN = ("general_loss_before", "general_loss")


def adapt(
    train: options.Train,
    output: _Output,
    *,
    dev: _Dev = None,
    general: _General = None,
    model: options.Model = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    format: options.Format = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    assignments: Assignments = None,
    json: options.Json = False,
) -> None:
    """Fine-tune the base model on parallel text into a new model folder, for `ibidem learn --model`.

    Run the same command again to resume after an interruption. Other settings: `ibidem settings adapt`.
    """
    from ibidem.api import open_corpus
    from ibidem.learn import AdaptSettings, adapt_model, check_target

    text, read, settings = override_parts(
        {"text": TextSettings(format=format), "model": TrainedModelSettings(), "": AdaptSettings(seed=seed)},
        assignments or (),
    )
    check_target(output)
    base = ModelOptions(
        model=model,
        device=device,
        dtype="float32",
        threads=threads,
        source_language=source_language,
        target_language=target_language,
        source_prefix=read.source_prefix,
    ).load()
    language = text.catalogue_language
    corpus = open_corpus(train, base, format=text.format, catalogue_language=language)
    dev_corpus = open_corpus(dev, base, format=text.dev_format, catalogue_language=language) if dev else None
    general_corpus = open_corpus(general, base, catalogue_language=language) if general else None
    with shown_progress() as progress:
        adapted = adapt_model(
            base,
            corpus,
            output,
            dev=dev_corpus,
            general=general_corpus,
            settings=settings,
            progress=progress,
            report=lambda measured: note(describe_measurement(measured)),
        )
    note_counts(corpus)
    if not adapted.improved:
        note(
            "The dev loss never fell below that of the base model, whose weights the folder holds: check that the dev "
            "set is of the domain, or lower the learning rate with --set learning_rate=1e-4."
        )
    if json:
        print(json_library.dumps({"path": str(adapted.path), **adapted.report}))
        return
    shown = [name for name in (*_SHOWN, *_GENERAL_SHOWN) if name in adapted.report]
    rows = [(name.replace("_", " "), describe_value(adapted.report[name])) for name in shown]
    print_table(str(adapted.path), rows, ("", ""))
    note(f"Next: ibidem learn --model {output} --train {' '.join(train)} -o MEMORY")


def describe_measurement(measured: Measurement) -> str:
    """Return a measurement of the training as one line.

    Args:
        measured: The measurement.
    """
    line = f"update {measured.update:,} of {measured.updates:,}: "
    if measured.loss is not None:
        line += f"loss {measured.loss:.3f}, "
    line += f"dev loss {measured.dev_loss:.3f}"
    if measured.average_loss is not None:
        line += f", of the average {measured.average_loss:.3f}"
    if measured.tokens_per_second is not None and measured.seconds_left is not None:
        line += f", {measured.tokens_per_second:,.0f} tokens/s, {describe_duration(measured.seconds_left)} left"
    return line


def describe_duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    Args:
        seconds: The duration.

    Examples:
        >>> describe_duration(3725), describe_duration(42)
        ('1:02:05', '0:42')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
