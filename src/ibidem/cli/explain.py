"""The command explain: translations word by word, with the sentences behind each word."""

from __future__ import annotations

import json as json_module
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import printable, read_lines
from ibidem.cli.options import TranslatorOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from ibidem.decode import Explanation, Neighbour, SegmentMatch, Term, Word


def explain(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to translate; else lines of stdin.")] = None,
    *,
    translator_options: TranslatorOptions,
    combiner: options.Combiner = None,
    neighbours: Annotated[
        int, typer.Option("--neighbours", min=0, help="Sentences to cite for each token; with --json all are given.")
    ] = 1,
    matches: Annotated[
        int, typer.Option("--matches", min=0, max=100, help="Stored pairs with a similar source to show a sentence.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Translate, and show the confidence, and for every word its share from the memory and the sentences behind it."""
    from ibidem.decode import join_confidences, match_pieces, missing_shards

    translator = translator_options.open(combiner)
    lines = iter(texts) if texts else read_lines(sys.stdin.buffer, "stdin")
    for window in translator.windows(lines):
        layouts = translator.split(window)
        found = translator.search(layouts)
        explanations = translator.explain_found(layouts, found)
        estimated = translator.estimator.estimate(translator.scorer, layouts, found)
        memories = {str(memory.path): memory for memory in translator.memories}
        for explanation, layout, known, parts in zip(explanations, layouts, estimated, found, strict=True):
            confidence = join_confidences(known)
            near = match_pieces(translator.model, memories, layout.pieces, matches) if matches else []
            if json:
                more: dict[str, object] = {"confidence": None if confidence is None else round(confidence, 4)}
                if missing := missing_shards(parts):
                    more["missing_shards"] = list(missing)
                if matches:
                    more["matches"] = [[one.to_json() for one in of_piece] for of_piece in near]
                print(json_module.dumps(explanation.to_json() | more, ensure_ascii=False))
            else:
                show(explanation, neighbours, confidence, [one for of_piece in near for one in of_piece])
        sys.stdout.flush()


def show(
    explanation: Explanation,
    neighbours: int,
    confidence: float | None = None,
    matches: Sequence[SegmentMatch] = (),
) -> None:
    """Print an explanation on stdout, on a terminal in colours: green words come from the memory.

    Args:
        explanation: The explanation of one text.
        neighbours: The largest number of cited sentences for each token.
        confidence: The probability that the translation needs no edit; None if it is unknown.
        matches: Stored pairs whose sources are like the sentences of the text.
    """
    from rich.console import Console
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(soft_wrap=True, width=None if terminal else 120, markup=False, highlight=False)
    console.print(Text(printable(explanation.source), style="dim"))
    translation = Text(printable(explanation.translation), style="bold")
    for word in explanation.words:
        translation.stylize(_colour(word.memory_share), word.start, word.end)
    console.print(translation)
    if confidence is not None:
        console.print(Text(f"  needs no edit with a probability of {confidence:.0%}", style="dim"))
    for one in matches:
        pair = one.match.pair
        texts = f"{printable(pair.source)} -> {printable(pair.target)}"
        console.print(Text(f"  {one.match.percent:3}% {texts}  ({printable(pair.origin)}, pair {pair.id})"))
    width = max((len(word.text) for word in explanation.words), default=0)
    for word in explanation.words:
        _show_word(console, word, max(width, len(_END)), neighbours)
    for term in explanation.terms:
        console.print(Text(printable(f"  {_describe_term(term)}"), style="default" if term.met else "bold red"))
    console.print()


def _describe_term(term: Term) -> str:
    state = "forced" if term.forced else "already right" if term.met else "unmet"
    return f"glossary {term.glossary}: {term.source} -> {' | '.join(term.targets)} ({state})"


_END = "(end)"


def _show_word(console: Console, word: Word, width: int, neighbours: int) -> None:
    from rich.text import Text

    line = Text(f"  {printable(word.text) or _END:{width}}  ", style=_colour(word.memory_share))
    console.print(line.append(word.summary, style="default"))
    for token in word.tokens:
        for neighbour in token.neighbours[:neighbours]:
            console.print(_cite(neighbour, width))


def _cite(neighbour: Neighbour, indent: int) -> Text:
    """Format a neighbour: its weight, its sentence with the token marked, its origin and distance."""
    from rich.text import Text

    pair, target = neighbour.pair, printable(neighbour.pair.target)
    line = Text(" " * (indent + 4))
    line.append(f"{neighbour.weight:4.0%} ", style="bold" if neighbour.agrees else "dim")
    line.append(target[: neighbour.start], style="dim")
    line.append(f"[{target[neighbour.start : neighbour.end]}]", style="green" if neighbour.agrees else "red")
    line.append(target[neighbour.end :], style="dim")
    where = printable(f"{pair.origin}:{pair.location}" if pair.location else pair.origin)
    return line.append(f"  ({where}, pair {pair.id}, distance {neighbour.distance:.3g})", style="dim")


def _colour(share: float) -> str:
    """Return a colour of the terminal's palette for the share of a word that comes from the memory."""
    if share >= 0.75:
        return "bold green"
    if share >= 0.5:
        return "green"
    return "yellow" if share >= 0.25 else "default"
