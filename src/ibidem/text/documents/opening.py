"""A document from a file, by its format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError, UsageError
from ibidem.text.documents.jsonl import read_jsonl_document
from ibidem.text.documents.plain import read_plain
from ibidem.text.documents.po import read_po_document
from ibidem.text.documents.tmx import read_tmx_document
from ibidem.text.documents.tsv import read_tsv_document
from ibidem.text.documents.xliff import read_xliff
from ibidem.text.language import Languages
from ibidem.text.stream import COMPRESSED, STDIN

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ibidem.text.documents.document import Document


class _Format(NamedTuple):
    endings: tuple[str, ...]
    read: Callable[[bytes, str, Languages, bool], Document]


_FORMATS = {
    "xliff": _Format((".xlf", ".xliff"), lambda data, name, languages, _: read_xliff(data, name, languages.target)),
    "po": _Format((".po", ".pot"), lambda data, name, _, mark: read_po_document(data, name, mark_fuzzy=mark)),
    "tmx": _Format((".tmx",), lambda data, name, languages, _: read_tmx_document(data, name, languages)),
    "tsv": _Format((".tsv",), lambda data, name, *_: read_tsv_document(data, name)),
    "jsonl": _Format((".jsonl",), lambda data, name, languages, _: read_jsonl_document(data, name, languages)),
    "plain": _Format((), lambda data, name, *_: read_plain(data, name)),
}


def format_of(path: str | os.PathLike[str], stated: str | None = None) -> str | None:
    """The format of a document, as it was stated or by the ending of its path; None if that tells nothing.

    Raises UsageError for a format that there is none of, and for files that cannot be filled in.
    """
    if stated is not None and stated not in _FORMATS:
        raise UsageError(f"{stated!r} is no format of a document. Choose one with --format: {', '.join(_FORMATS)}.")
    name = str(path).lower()
    if name.endswith(COMPRESSED):
        raise UsageError(f"{path}: a compressed document cannot be filled in. Unpack it first.")
    if name.endswith((".mo", ".gmo")):
        raise UsageError(f"{path}: a compiled catalogue cannot be filled in. Give its .po file (msgunfmt makes one).")
    return stated or next((format for format, known in _FORMATS.items() if name.endswith(known.endings or "\0")), None)


def open_document(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    source_language: str = "de",
    target_language: str = "en",
    mark_fuzzy: bool = True,
) -> Document:
    """Read a document whole, from a file or, as "-", from standard input.

    Raises UsageError if its format is not known, and TextError, with the line, if it cannot be read.
    """
    chosen = format_of(path, format)
    if chosen is None:
        endings = ", ".join(ending for known in _FORMATS.values() for ending in known.endings)
        raise UsageError(
            f"{path}: the ending names no known format of a document ({endings}). "
            f"Choose one with --format: {', '.join(_FORMATS)}."
        )
    languages = Languages.from_tags(source_language, target_language, None)
    name = "standard input" if str(path) == STDIN else str(path)
    return _FORMATS[chosen].read(_read(path), name, languages, mark_fuzzy)


def _read(path: str | os.PathLike[str]) -> bytes:
    if str(path) == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or error
        raise TextError(f"{path}: cannot be read ({what}). Check the path and the permissions.") from error
