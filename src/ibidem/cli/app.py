"""The verbs and their help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ibidem import __version__
from ibidem.cli import benching, explaining, learning, living, memories, reproducing, serving, shaping, translation
from ibidem.cli.groups import grouped

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    help="Adapt a frozen translation model to a domain with a memory, and cite each word it took from there.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ibidem {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    pass


_VERBS: dict[str, Callable[..., None]] = {
    "learn": learning.learn,
    "translate": translation.translate,
    "explain": explaining.explain,
    "evaluate": translation.evaluate,
    "serve": serving.serve,
    "add": living.add,
    "remove": living.remove,
    "replace": living.replace,
    "inspect": memories.inspect,
    "verify": memories.verify,
    "export": memories.export,
    "extract": learning.extract,
    "cluster": shaping.cluster,
    "compact": shaping.compact,
    "tune": learning.tune,
    "prune": shaping.prune,
    "restore": shaping.restore,
    "index": learning.index,
    "bench": benching.bench,
    "reproduce": reproducing.reproduce,
}
for _name, _verb in _VERBS.items():
    app.command(_name)(grouped(_verb))
