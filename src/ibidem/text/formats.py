"""The table of text formats, and documents opened by format.

To add a format, write a module with its readers and add a line to `FORMATS`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibidem.errors import TextError, UsageError
from ibidem.text.catalogue import read_mo
from ibidem.text.csv import read_csv, read_csv_document
from ibidem.text.html import read_html_document
from ibidem.text.jsonl import JSONL_WRITER, read_jsonl, read_jsonl_document
from ibidem.text.language import Languages
from ibidem.text.markdown import read_markdown_document
from ibidem.text.office import read_docx_document, read_odt_document, read_xlsx, read_xlsx_document
from ibidem.text.plain import TSV_WRITER, read_plain_document, read_text_document, read_tsv, read_tsv_document
from ibidem.text.po import read_po, read_po_document
from ibidem.text.resources import (
    read_android_document,
    read_json_document,
    read_properties_document,
    read_resx_document,
    read_strings_document,
    read_ts_document,
    read_xcstrings_document,
    read_yaml_document,
)
from ibidem.text.stream import COMPRESSED_ENDINGS, STDIN, Stream
from ibidem.text.subtitles import read_subtitle_document
from ibidem.text.tmx import TMX_WRITER, read_tmx, read_tmx_document
from ibidem.text.xliff import read_xliff, read_xliff_document

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from ibidem.text.document import Document
    from ibidem.text.pair import PairWriter, ReadResult


@dataclass(frozen=True, slots=True)
class Format:
    """A text format.

    Attributes:
        endings: The endings of its files.
        read_pairs: Reads parallel text from a stream, None if the format contains none.
        read_document: Reads a document from the bytes of a file, its name, the two languages and whether new
            translations are marked as fuzzy; None if documents of this format cannot be filled.
        writer: Writes pairs, None if pairs cannot be written in this format.
        reads_stdin: Whether parallel text can be read from standard input.
        declares_languages: Whether its files name the languages of their texts.
    """

    endings: tuple[str, ...] = ()
    read_pairs: Callable[[Stream, Languages], Iterator[ReadResult]] | None = None
    read_document: Callable[[bytes, str, Languages, bool], Document] | None = None
    writer: PairWriter | None = None
    reads_stdin: bool = True
    declares_languages: bool = True


def _replaced(read: Callable[[bytes, str], Document], *endings: str) -> Format:
    """Return a format of documents whose reader needs their bytes and their name only."""
    return Format(endings, read_document=lambda data, name, *_: read(data, name))


FORMATS = {
    "tsv": Format(
        (".tsv",),
        read_tsv,
        lambda data, name, *_: read_tsv_document(data, name),
        TSV_WRITER,
        declares_languages=False,
    ),
    "jsonl": Format(
        (".jsonl",),
        read_jsonl,
        lambda data, name, languages, _: read_jsonl_document(data, name, languages),
        JSONL_WRITER,
        declares_languages=False,
    ),
    "tmx": Format(
        (".tmx",),
        read_tmx,
        lambda data, name, languages, _: read_tmx_document(data, name, languages),
        TMX_WRITER,
    ),
    "xliff": Format(
        (".xlf", ".xliff"),
        read_xliff,
        lambda data, name, languages, _: read_xliff_document(data, name, languages.target),
    ),
    "po": Format(
        (".po", ".pot"),
        read_po,
        lambda data, name, _, mark_fuzzy: read_po_document(data, name, mark_fuzzy=mark_fuzzy),
    ),
    "mo": Format((".mo", ".gmo"), read_mo, reads_stdin=False),
    "csv": Format(
        (".csv",),
        read_csv,
        lambda data, name, languages, _: read_csv_document(data, name, languages),
        declares_languages=False,
    ),
    "docx": _replaced(read_docx_document, ".docx", ".docm", ".dotx"),
    "xlsx": Format(
        (".xlsx", ".xlsm"),
        read_xlsx,
        lambda data, name, *_: read_xlsx_document(data, name),
        reads_stdin=False,
        declares_languages=False,
    ),
    "odt": _replaced(read_odt_document, ".odt", ".ott", ".odp"),
    "html": _replaced(read_html_document, ".html", ".htm", ".xhtml"),
    "markdown": _replaced(read_markdown_document, ".md", ".markdown"),
    "subtitles": _replaced(read_subtitle_document, ".srt", ".vtt"),
    "json": _replaced(read_json_document, ".json", ".arb"),
    "yaml": Format(
        (".yaml", ".yml"), read_document=lambda data, name, languages, _: read_yaml_document(data, name, languages)
    ),
    "android": _replaced(read_android_document, "strings.xml"),
    "strings": _replaced(read_strings_document, ".strings"),
    "xcstrings": Format(
        (".xcstrings",),
        read_document=lambda data, name, languages, _: read_xcstrings_document(data, name, languages),
    ),
    "qt": _replaced(read_ts_document, ".ts"),
    "properties": _replaced(read_properties_document, ".properties"),
    "resx": _replaced(read_resx_document, ".resx", ".resw"),
    "text": _replaced(read_text_document),
    "plain": Format(read_document=lambda data, name, *_: read_plain_document(data, name)),
}
"""The formats by name. Two plain text files with aligned lines are a corpus too, see `Corpus`."""


def find_format(path: str, formats: dict[str, Format]) -> str | None:
    """Return the name of the format that the ending of a path names, None if it names none.

    Args:
        path: The path or the name of a file, in upper or lower case.
        formats: The formats to choose from, by name.
    """
    return next(
        (name for name, format in formats.items() if format.endings and path.lower().endswith(format.endings)), None
    )


_TEXT_ENDING = ".txt"
_DOCUMENT_FORMATS = {name: format for name, format in FORMATS.items() if format.read_document}


def format_of(path: str | os.PathLike[str], stated: str | None = None) -> str | None:
    """Return the format of a document.

    Args:
        path: Its path.
        stated: The name of a format that the user states.

    Returns:
        The stated format, or the one that the ending of the path names; None if it names none.

    Raises:
        UsageError: If the stated format does not exist, or documents of this kind cannot be filled.

    Examples:
        >>> format_of("messages.po")
        'po'
    """
    if stated is not None and stated not in _DOCUMENT_FORMATS:
        names = ", ".join(_DOCUMENT_FORMATS)
        raise UsageError(f"{stated!r} is no format of a document. Choose one with --format: {names}.")
    name = str(path).lower()
    if name.endswith(COMPRESSED_ENDINGS):
        raise UsageError(f"{path}: a compressed document cannot be filled in. Unpack it first.")
    if name.endswith(FORMATS["mo"].endings):
        raise UsageError(f"{path}: a compiled catalogue cannot be filled in. Give its .po file (msgunfmt makes one).")
    return stated or find_format(name, _DOCUMENT_FORMATS)


def find_document_format(path: str | os.PathLike[str]) -> str | None:
    """Return the format of a document by its ending, where a plain text (`.txt`) is a document of paragraphs.

    Args:
        path: The path or the name of the document.

    Returns:
        The name of the format, None if the ending names none.

    Examples:
        >>> find_document_format("a.txt"), find_document_format("a.docx"), find_document_format("a.pdf")
        ('text', 'docx', None)
    """
    name = str(path).lower()
    return "text" if name.endswith(_TEXT_ENDING) else find_format(name, _DOCUMENT_FORMATS)


def document_endings() -> list[str]:
    """Return the endings of the documents that can be translated, in alphabetical order."""
    return sorted([_TEXT_ENDING, *(ending for format in _DOCUMENT_FORMATS.values() for ending in format.endings)])


def open_document(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    source_language: str = "de",
    target_language: str = "en",
    mark_fuzzy: bool = True,
) -> Document:
    r"""Read a whole document.

    Args:
        path: Its path, or "-" for standard input.
        format: The name of its format, by default that of its ending.
        source_language: The language to translate from.
        target_language: The language to translate into.
        mark_fuzzy: Whether new translations in a PO file are flagged as fuzzy.

    Returns:
        The document, whose segments `fill` translates.

    Raises:
        UsageError: If the format is unknown.
        TextError: If the document cannot be read; the message names the line.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "text.tsv")
        ...     _ = path.write_text("Guten Tag\nHallo\tHello\n", encoding="utf-8")
        ...     document = open_document(path)
        >>> [segment.state.value for segment in document.segments]
        ['untranslated', 'translated already']
    """
    name = format_of(path, format)
    read = FORMATS[name].read_document if name is not None else None
    if read is None:
        endings = ", ".join(ending for known in _DOCUMENT_FORMATS.values() for ending in known.endings)
        raise UsageError(
            f"{path}: the ending names no known format of a document ({endings}). "
            f"Choose one with --format: {', '.join(_DOCUMENT_FORMATS)}."
        )
    languages = Languages.from_tags(source_language, target_language, None)
    shown = "standard input" if str(path) == STDIN else str(path)
    return read(_read_bytes(path), shown, languages, mark_fuzzy)


def _read_bytes(path: str | os.PathLike[str]) -> bytes:
    if str(path) == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or error
        raise TextError(f"{path}: cannot be read ({what}). Check the path and the permissions.") from error
