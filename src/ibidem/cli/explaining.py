"""explain: translations word by word, with the sentences that each word was taken from."""

from __future__ import annotations

import json as json_module
import sys
import unicodedata
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options  # noqa: TC001 - typer reads the annotations
from ibidem.cli.lines import read_lines
from ibidem.cli.opening import TranslatorOptions  # noqa: TC001 - typer reads the annotations

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ibidem.decode import Explanation, Neighbour, Word


def explain(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to translate; else lines of stdin.")] = None,
    *,
    opening: TranslatorOptions,
    combiner: options.Combiner = None,
    neighbours: Annotated[
        int, typer.Option("--neighbours", min=0, help="Sentences to cite for each token; with --json all are given.")
    ] = 1,
    json: options.Json = False,
) -> None:
    """Translate, and show for every word who decided on it: the base model, or which sentences of the memory."""
    translator = opening.open(combiner)
    lines = iter(texts) if texts else read_lines(sys.stdin.buffer, "stdin")
    for window in translator.windows(lines):
        for explanation in translator.explain(window):
            if json:
                print(json_module.dumps(explanation.to_json(), ensure_ascii=False))
            else:
                show(explanation, neighbours)
        sys.stdout.flush()


def show(explanation: Explanation, neighbours: int) -> None:
    """An explanation on stdout, in colours where that is a terminal: green is what the memory decided."""
    from rich.console import Console
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(soft_wrap=True, width=None if terminal else 120, markup=False, highlight=False)
    console.print(Text(_printable(explanation.source), style="dim"))
    translation = Text(_printable(explanation.translation), style="bold")
    for word in explanation.words:
        translation.stylize(_colour(word.memory_share), word.start, word.end)
    console.print(translation)
    width = max((len(word.text) for word in explanation.words), default=0)
    for word in explanation.words:
        _show_word(console, word, max(width, len(_END)), neighbours)
    console.print()


_END = "(end)"


def _show_word(console: Console, word: Word, width: int, neighbours: int) -> None:
    from rich.text import Text

    line = Text(f"  {_printable(word.text) or _END:{width}}  ", style=_colour(word.memory_share))
    console.print(line.append(word.verdict, style="default"))
    for token in word.tokens:
        for neighbour in token.neighbours[:neighbours]:
            console.print(_cite(neighbour, width))


def _cite(neighbour: Neighbour, indent: int) -> Text:
    """The neighbour's sentence with its token marked, its vote and distance, and where it was learnt from."""
    from rich.text import Text

    pair, target = neighbour.pair, _printable(neighbour.pair.target)
    line = Text(" " * (indent + 4))
    line.append(f"{neighbour.vote:4.0%} ", style="bold" if neighbour.agrees else "dim")
    line.append(target[: neighbour.start], style="dim")
    line.append(f"[{target[neighbour.start : neighbour.end]}]", style="green" if neighbour.agrees else "red")
    line.append(target[neighbour.end :], style="dim")
    where = _printable(f"{pair.origin}:{pair.location}" if pair.location else pair.origin)
    return line.append(f"  ({where}, pair {pair.id}, distance {neighbour.distance:.3g})", style="dim")


def _printable(text: str) -> str:
    """The text with a sign in the place of each control character: a memory's text must not steer the terminal."""
    return "".join("\ufffd" if unicodedata.category(sign) == "Cc" else sign for sign in text)


def _colour(share: float) -> str:
    """A colour of the terminal's own palette for how much of a word was the memory's."""
    if share >= 0.75:
        return "bold green"
    if share >= 0.5:
        return "green"
    return "yellow" if share >= 0.25 else "default"
