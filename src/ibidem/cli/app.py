"""The verbs and their help."""

from __future__ import annotations

from typing import Annotated

import typer

from ibidem import __version__
from ibidem.cli import benching, explaining, learning, living, memories, reproducing, serving, shaping, translation

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


app.command("learn")(learning.learn)
app.command("translate")(translation.translate)
app.command("explain")(explaining.explain)
app.command("evaluate")(translation.evaluate)
app.command("serve")(serving.serve)
app.command("add")(living.add)
app.command("remove")(living.remove)
app.command("replace")(living.replace)
app.command("inspect")(memories.inspect)
app.command("verify")(memories.verify)
app.command("export")(memories.export)
app.command("extract")(learning.extract)
app.command("cluster")(shaping.cluster)
app.command("compact")(shaping.compact)
app.command("tune")(learning.tune)
app.command("prune")(shaping.prune)
app.command("restore")(shaping.restore)
app.command("index")(learning.index)
app.command("bench")(benching.bench)
app.command("reproduce")(reproducing.reproduce)
