"""The commands of `ibidem`, and how their arguments are read."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ibidem import __version__
from ibidem.cli import (
    adapt,
    check,
    edit,
    evaluate,
    explain,
    glossary,
    learn,
    mcp,
    memories,
    model,
    reproduce,
    search,
    serve,
    settings,
    shard,
    store,
    transform,
    translate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

app = typer.Typer(
    help="Adapt a frozen translation model to a domain with a memory, and cite the sentence behind each word.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

# Options that take one file or two line-aligned files, with the commands that have them.
_FILES = {
    "--train": ("check", "learn", "adapt", "extract"),
    "--dev": ("check", "learn", "adapt", "tune"),
    "--general": ("adapt",),
    "--test": ("evaluate",),
    "--file": ("add",),
}


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ibidem {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def group_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter of a command that is a dataclass by its fields, each as an option.

    Args:
        command: A function with typer annotations; parameters may be dataclasses whose fields have such annotations.

    Returns:
        A function that typer can read; it builds the dataclasses and calls the command with them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


def repeat_file_options(arguments: Sequence[str]) -> list[str]:
    """Repeat an option before its second file, so that `--train a.de a.en` works like `--train a.de --train a.en`.

    Args:
        arguments: The arguments of the process, without the name of the program.

    Examples:
        >>> repeat_file_options(["learn", "--train", "a.de", "a.en", "-o", "m"])
        ['learn', '--train', 'a.de', '--train', 'a.en', '-o', 'm']
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    repeated: list[str] = []
    for place, argument in enumerate(arguments):
        option = arguments[place - 2] if place >= 2 else ""
        is_value = argument == "-" or not argument.startswith("-")
        if is_value and command in _FILES.get(option, ()) and arguments[place - 1] not in _FILES:
            repeated.append(option)
        repeated.append(argument)
    return repeated


_COMMANDS: dict[str, Callable[..., None]] = {
    "check": check.check,
    "learn": learn.learn,
    "adapt": adapt.adapt,
    "translate": translate.translate,
    "explain": explain.explain,
    "evaluate": evaluate.evaluate,
    "serve": serve.serve,
    "mcp": mcp.mcp,
    "add": edit.add,
    "remove": edit.remove,
    "replace": edit.replace,
    "search": search.search,
    "inspect": memories.inspect,
    "verify": memories.verify,
    "backup": memories.backup,
    "repair": memories.repair,
    "push": store.push,
    "pull": store.pull,
    "export": memories.export,
    "settings": settings.settings,
    "extract": learn.extract,
    "cluster": transform.cluster,
    "compact": transform.compact,
    "tune": learn.tune,
    "prune": transform.prune,
    "restore": transform.restore,
    "index": learn.index,
    "shard": shard.shard,
    "bench": evaluate.bench,
    "reproduce": reproduce.reproduce,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(group_options(_command))
app.add_typer(glossary.app, name="glossary")
app.add_typer(model.app, name="model")
