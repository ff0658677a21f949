"""Tables of texts: which columns contain the source and the target."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.pair import Dropped, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ibidem.text.language import Languages
    from ibidem.text.pair import ReadResult

_SOURCES = frozenset({"source", "src", "quelle", "quelltext", "original"})
_TARGETS = frozenset({"target", "tgt", "translation", "ziel", "zieltext", "übersetzung"})
_NAMES = {
    "german": "de",
    "deutsch": "de",
    "english": "en",
    "englisch": "en",
    "french": "fr",
    "spanish": "es",
    "italian": "it",
    "dutch": "nl",
    "polish": "pl",
    "portuguese": "pt",
    "russian": "ru",
    "czech": "cs",
}
_MAX_SHOWN = 8
_MAX_ROWS_ABOVE = 10
HEADER = "header row"
"""The reason by which the row with the names of the columns is counted."""


class Columns(NamedTuple):
    """The numbers of two columns, from 0.

    Attributes:
        source: The column of the sources.
        target: The column of the targets.
    """

    source: int
    target: int


def find_columns(header: Sequence[str], languages: Languages) -> Columns | None:
    """Find the columns of both languages by the names in the first row of a table.

    A name is a language code (`de`, `de-DE`), the English name of a frequent language, or one of `source` and `target`.

    Args:
        header: The cells of the first row.
        languages: The two languages.

    Returns:
        The columns, None unless both are named once.

    Examples:
        >>> from ibidem.text.language import Languages
        >>> find_columns(["id", "English", "de-DE"], Languages("de", "en"))
        Columns(source=2, target=1)
    """
    sides: dict[str, list[int]] = {}
    for number, cell in enumerate(header):
        name = cell.strip().lower()
        side = languages.match(_NAMES.get(name, name)) if name else None
        if name in _SOURCES:
            side = languages.source
        elif name in _TARGETS:
            side = languages.target
        if side:
            sides.setdefault(side, []).append(number)
    source, target = sides.get(languages.source, []), sides.get(languages.target, [])
    return Columns(source[0], target[0]) if len(source) == len(target) == 1 else None


def read_rows(rows: Iterable[tuple[int, Sequence[str]]], name: str, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of a table.

    The first row names the columns, see `find_columns`; titles of one cell and blank rows may be above it. A table of
    exactly two columns needs no names: the first one is the source.

    Args:
        rows: The number of each row in its file, and its cells.
        name: The name of the file, for messages.
        languages: The two languages.

    Raises:
        TextError: If the columns are not known.
    """
    waiting = iter(rows)
    above, columns = _find_header(waiting, languages)
    if columns is not None:
        yield from (Dropped("row above the header") for _ in above[:-1])
        yield Dropped(HEADER)
        above = []
    for number, cells in chain(above, waiting):
        if not any(cell.strip() for cell in cells):
            yield Dropped("blank row")
            continue
        if columns is None:
            if len(cells) != 2:
                shown = ", ".join(repr(cell[:40]) for cell in cells[:_MAX_SHOWN])
                raise TextError(
                    f"{name}, line {number}: {len(cells)} columns ({shown}) without names of languages. Name the "
                    f"columns of both languages {languages.source!r} and {languages.target!r} in the first row, or "
                    "leave only these two columns."
                )
            columns = Columns(0, 1)
        if max(columns) >= len(cells):
            yield Dropped("missing cell")
        else:
            yield Unit(cells[columns.source], cells[columns.target], number)


def _find_header(
    rows: Iterator[tuple[int, Sequence[str]]], languages: Languages
) -> tuple[list[tuple[int, Sequence[str]]], Columns | None]:
    """Read rows up to the one with the names of the columns; only titles and blank rows may be above it."""
    above: list[tuple[int, Sequence[str]]] = []
    for number, cells in rows:
        above.append((number, cells))
        columns = find_columns(cells, languages)
        if columns is not None:
            return above, columns
        if sum(bool(cell.strip()) for cell in cells) > 1 or len(above) > _MAX_ROWS_ABOVE:
            break
    return above, None
