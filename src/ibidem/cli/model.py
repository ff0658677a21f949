"""The commands of `ibidem model`: list, add and remove the models that are found by name or by languages."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note, print_table, say, shown_wait
from ibidem.errors import UsageError

if TYPE_CHECKING:
    from ibidem.model import KnownModel

app = typer.Typer(
    help="Name further base models, which commands and servers then find by name or by languages.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.command()
def add(
    model: Annotated[
        str, typer.Argument(metavar="NAME|FOLDER", help="Name on the hub, or a model folder.", show_default=False)
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name for --model; default: the last part of NAME or FOLDER.", show_default=False),
    ] = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    source_prefix: options.SourcePrefix = "",
    json: options.Json = False,
) -> None:
    """Add a model: it is loaded once to check it. Nothing is copied; the folder must stay where it is.

    --source-language and --target-language choose it where no shipped model has these languages, and a server offers
    it. A multilingual model is added once for each pair of languages, with different names.
    """
    with shown_wait("Loading the model…"):
        from ibidem.model import KnownModel, add_model, load_model

        loaded = load_model(
            model,
            device="cpu",
            source_language=source_language,
            target_language=target_language,
            source_prefix=source_prefix,
        )
    tokens = loaded.tokens
    if not tokens.source_language or not tokens.target_language:
        raise UsageError(f"{model} does not name its languages: give --source-language and --target-language.")
    chosen = name or Path(model).name
    entry = KnownModel(chosen, loaded.name, tokens.source_language, tokens.target_language, source_prefix)
    add_model(entry)
    if json:
        print(json_module.dumps(_describe(entry), ensure_ascii=False))
    else:
        say(f"{chosen}: {entry.source_language} to {entry.target_language}, {entry.location}")


@app.command(name="list")
def list_models(json: options.Json = False) -> None:
    """List the shipped models and the added ones, in the order in which languages choose one."""
    from ibidem.model import known_models

    models = known_models()
    if json:
        print(json_module.dumps([_describe(model) for model in models], ensure_ascii=False))
        return
    rows = [(one.name, one.source_language, one.target_language, _place(one)) for one in models]
    print_table("Known models", rows, ("name", "from", "to", "place"))


@app.command()
def remove(name: Annotated[str, typer.Argument(help="Name of an added model.", show_default=False)]) -> None:
    """Remove a model from the list; its files stay, and memories that were learnt with it still find them."""
    from ibidem.model import remove_model

    note(f"{remove_model(name).location} is no longer listed; its files were not changed.")


def _describe(model: KnownModel) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(model)


def _place(model: KnownModel) -> str:
    return "shipped" if model.shipped else model.location
