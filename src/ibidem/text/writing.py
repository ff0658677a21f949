"""Pairs written to a file: TMX, TSV or JSONL, one by one, so that our own readers give them back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, Protocol

import ibidem
from ibidem.errors import UsageError
from ibidem.progress import Progress, silent
from ibidem.text.language import Languages
from ibidem.text.output import open_output
from ibidem.text.xml import LOCATION, ORIGIN, UNFIT, escape

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

_EVERY = 10_000
_BREAKS = str.maketrans("\t\n\r", "   ")


class Located(Protocol):
    """A pair, and where it came from."""

    @property
    def source(self) -> str:
        """The segment."""

    @property
    def target(self) -> str:
        """Its translation."""

    @property
    def origin(self) -> str:
        """The file it was read from."""

    @property
    def location(self) -> int:
        """Its line there."""


class Written(NamedTuple):
    """How many pairs were written, and how many of them have a character replaced that the format cannot hold."""

    pairs: int
    mended: int


class _Format(NamedTuple):
    ending: str
    head: Callable[[Languages], str]
    line: Callable[[Located, Languages], tuple[str, bool]]
    tail: str


def write_pairs(
    pairs: Iterable[Located],
    path: str | os.PathLike[str],
    *,
    source_language: str,
    target_language: str,
    format: str | None = None,
    total: int | None = None,
    progress: Progress = silent,
) -> Written:
    """Write pairs to a file of the format that its ending, or `format`, says.

    TMX (1.4) and JSONL keep the origin and the location of each pair, TSV has two columns. In TMX a character that
    XML cannot hold becomes U+FFFD, in TSV a tab or a line break becomes a space. The file takes its name when all is
    written. `total` is the number of pairs, for the progress.
    """
    languages = Languages.from_tags(source_language, target_language, None)
    chosen = _FORMATS[_choose(path, format)]
    count = mended = 0
    with open_output(path) as file:
        file.write(chosen.head(languages).encode("utf-8"))
        for count, pair in enumerate(pairs, start=1):
            text, changed = chosen.line(pair, languages)
            file.write(text.encode("utf-8"))
            mended += changed
            if count % _EVERY == 0:
                progress("Writing", count / total if total else None, count, "pairs")
        file.write(chosen.tail.encode("utf-8"))
    return Written(count, mended)


def _choose(path: str | os.PathLike[str], stated: str | None) -> str:
    found = stated or next((name for name, known in _FORMATS.items() if str(path).lower().endswith(known.ending)), None)
    if found not in _FORMATS:
        what = f"{stated!r} is not a format to write" if stated else f"{path}: the ending names no format to write"
        raise UsageError(f"{what}. Choose {', '.join(_FORMATS)}, by the ending of the file or with --format.")
    return found


def _tmx_head(languages: Languages) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
        f'<header creationtool="ibidem" creationtoolversion="{ibidem.__version__}" segtype="sentence" o-tmf="ibidem" '
        f'adminlang="en" srclang="{languages.source}" datatype="plaintext"/>\n<body>\n'
    )


def _tmx_line(pair: Located, languages: Languages) -> tuple[str, bool]:
    texts = (pair.origin, pair.source, pair.target)
    fit = [UNFIT.sub("\ufffd", text) for text in texts]
    origin, source, target = map(escape, fit)
    line = (
        f'<tu><prop type="{ORIGIN}">{origin}</prop><prop type="{LOCATION}">{pair.location}</prop>\n'
        f'<tuv xml:lang="{languages.source}"><seg>{source}</seg></tuv>\n'
        f'<tuv xml:lang="{languages.target}"><seg>{target}</seg></tuv></tu>\n'
    )
    return line, fit != list(texts)


def _tsv_line(pair: Located, _: Languages) -> tuple[str, bool]:
    source, target = pair.source.translate(_BREAKS), pair.target.translate(_BREAKS)
    return f"{source}\t{target}\n", (source, target) != (pair.source, pair.target)


def _json_line(pair: Located, languages: Languages) -> tuple[str, bool]:
    sides = {languages.source: pair.source, languages.target: pair.target}
    record = {"translation": sides, "origin": pair.origin, "location": pair.location}
    return f"{json.dumps(record, ensure_ascii=False)}\n", False


_FORMATS = {
    "tmx": _Format(".tmx", _tmx_head, _tmx_line, "</body>\n</tmx>\n"),
    "tsv": _Format(".tsv", lambda _: "", _tsv_line, ""),
    "jsonl": _Format(".jsonl", lambda _: "", _json_line, ""),
}
