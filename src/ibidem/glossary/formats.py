"""Files of terms: CSV, TSV and TBX, read with the line of every error, and written."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import GlossaryError, TextError
from ibidem.glossary.glossary import (
    ENDING,
    MAX_ENTRIES,
    MAX_TERM,
    Entry,
    Glossary,
    clean_term,
    describe_invalid,
    read_bytes,
)
from ibidem.text import XmlKind, primary_language, read_xml

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

FORMATS = ("csv", "tsv", "tbx")
"""The formats of files of terms."""

# Names of columns and languages in the first row of a table.
_HEADERS = ({"source", "source term", "quelle", "term", "begriff"}, {"target", "target term", "translation", "ziel"})
_LANGUAGE_NAMES = {"de": {"german", "deutsch"}, "en": {"english", "englisch"}}
_MAX_ROWS = 4 * MAX_ENTRIES
_MAX_ERRORS = 10
_SEPARATOR = "|"
_CONCEPTS, _LANGUAGES = ("termEntry", "conceptEntry"), ("langSet", "langSec")
_TERM_GROUPS, _NOTES = ("tig", "ntig", "termSec"), ("termNote", "administrativeStatus")
_NOT_PREFERRED = ("deprecated", "superseded", "forbidden", "obsolete", "notrecommended")


class Row(NamedTuple):
    """A term as a file has it.

    Attributes:
        line: Its line in the file, from 1.
        source: The term.
        targets: Its translations.
    """

    line: int
    source: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class TermList:
    """The terms of a file.

    Attributes:
        entries: The terms, each once.
        duplicates: How many rows repeat another row.
    """

    entries: tuple[Entry, ...]
    duplicates: int = 0


def format_of(path: str | os.PathLike[str], format: str | None = None) -> str:
    """Return the format of a file of terms, by its ending.

    Args:
        path: The file.
        format: The name of the format, if the user gives it.

    Raises:
        GlossaryError: The format is unknown.
    """
    found = (format or Path(path).suffix.removeprefix(".")).lower()
    if found not in FORMATS:
        raise GlossaryError(
            f"{path}: unknown format of a glossary. Name the file .csv, .tsv, .tbx or {ENDING}, or give --format."
        )
    return found


def read_terms(
    path: str | os.PathLike[str], source_language: str, target_language: str, *, format: str | None = None
) -> TermList:
    """Read a file of terms.

    Args:
        path: The file: CSV (with commas or semicolons), TSV or TBX, in UTF-8 or UTF-16.
        source_language: The language of the terms; a header row or a TBX file with columns in another order is read
            accordingly.
        target_language: The language of the translations.
        format: The format; by default that of the ending.

    Returns:
        The terms.

    Raises:
        GlossaryError: The file cannot be read, a row is invalid, or two rows give one term different translations;
            the message names up to 10 lines.
    """
    found = format_of(path, format)
    return parse_terms(read_bytes(Path(path)), str(path), source_language, target_language, format=found)


def parse_terms(
    content: bytes, name: str, source_language: str, target_language: str, *, format: str, header: bool = True
) -> TermList:
    r"""Parse the content of a file of terms; see `read_terms`.

    Args:
        content: The bytes of the file.
        name: The name of the file for messages.
        source_language: The language of the terms.
        target_language: The language of the translations.
        format: "csv", "tsv" or "tbx".
        header: Whether the first row of a table may be a header.

    Raises:
        GlossaryError: See `read_terms`.

    Examples:
        >>> parse_terms(b"de,en\nMandant,tenant\n", "terms.csv", "de", "en", format="csv").entries
        (Entry(source='Mandant', targets=('tenant',)),)
    """
    languages = (primary_language(source_language), primary_language(target_language))
    if format == "tbx":
        return _merge(_read_tbx(content, name, languages), name)
    table, separator = _read_table(content, name, format)
    order = _read_header(table[0][1], languages) if table and header else None
    rows = [_make_row(line, cells, order or (0, 1), name, separator) for line, cells in (table[1:] if order else table)]
    return _merge(rows, name)


def _decode(content: bytes, name: str) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark, as spreadsheets write it."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise GlossaryError(
            f"{name}, line {line}: not {encoding.removesuffix('-sig').upper()}. Convert it to UTF-8 first, for "
            "instance: iconv -f latin1 -t utf-8 OLD > NEW"
        ) from None


def _read_table(content: bytes, name: str, format: str) -> tuple[list[tuple[int, list[str]]], str]:
    """Return the line and the cells of each row that is not blank, and the separator of cells."""
    text = _decode(content, name)
    if "\0" in text:
        raise GlossaryError(f"{name}: not text. Save the sheet as CSV in UTF-8.")
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = "\t" if format == "tsv" or "\t" in first else ";" if first.count(";") > first.count(",") else ","
    lines = io.StringIO(text, newline="")
    # TSV has no quoting, so that a quotation mark is a character like others.
    reader = (
        csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE, strict=True)
        if format == "tsv"
        else csv.reader(lines, delimiter=separator, strict=True)
    )
    rows: list[tuple[int, list[str]]] = []
    try:
        line = 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((line, cells))
            line = reader.line_num + 1
            if len(rows) > _MAX_ROWS:
                raise GlossaryError(f"{name}: more than {_MAX_ROWS:,} rows. Split the file.")
    except csv.Error as error:
        raise GlossaryError(
            f"{name}, line {reader.line_num}: {error}. Close every quotation mark, and write a quotation mark inside "
            'a cell as "".'
        ) from None
    return rows, separator


def _read_header(cells: Sequence[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """Return the columns of source and target that a header row names; None where the row is no header."""
    names = [cell.strip().casefold() for cell in cells]
    columns: list[int | None] = [None, None]
    for column, cell in enumerate(names):
        for side in (0, 1):
            known = _HEADERS[side] | _LANGUAGE_NAMES.get(languages[side], set())
            if columns[side] is None and (cell in known or primary_language(cell) == languages[side]):
                columns[side] = column
    if columns[0] is None or columns[1] is None:
        return None
    return columns[0], columns[1]


def _make_row(line: int, cells: Sequence[str], order: tuple[int, int], name: str, separator: str) -> Row:
    if len(cells) <= max(order):
        shown = {"\t": "tab", ";": "semicolon", ",": "comma"}[separator]
        raise GlossaryError(
            f"{name}, line {line}: one column where there must be two. Put a {shown} between the term and its "
            "translation."
        )
    targets = tuple(filter(None, map(clean_term, cells[order[1]].split(_SEPARATOR))))
    return Row(line, clean_term(cells[order[0]]), targets)


class _TbxReader:
    """Collects the terms of a TBX file, concept by concept.

    TBX 2 (`termEntry`, `langSet`) and TBX 3 (`conceptEntry`, `langSec`) are read. Terms that are marked as deprecated,
    superseded or forbidden are left out.
    """

    def __init__(self, languages: tuple[str, str]) -> None:
        self._languages = languages
        self._line = 0
        self._terms: tuple[list[str], list[str]] = ([], [])
        self._side: int | None = None
        self._term = ""
        self._is_preferred = True
        self._text: list[str] | None = None
        self.rows: list[Row] = []

    def start(self, name: str, language: str, line: int) -> None:
        """Process a start tag."""
        if name in _CONCEPTS:
            self._line, self._terms = line, ([], [])
        elif name in _LANGUAGES:
            code = primary_language(language)
            self._side = self._languages.index(code) if code in self._languages else None
        elif name in _TERM_GROUPS:
            self._term, self._is_preferred = "", True
        elif name in ("term", *_NOTES):
            self._text = []

    def add_text(self, text: str) -> None:
        """Process text."""
        if self._text is not None:
            self._text.append(text)

    def end(self, name: str) -> None:
        """Process an end tag."""
        if name in ("term", *_NOTES) and self._text is not None:
            text, self._text = "".join(self._text), None
            if name == "term":
                self._term = clean_term(text)
            elif text.casefold().replace("-", "").replace(" ", "").startswith(_NOT_PREFERRED):
                self._is_preferred = False
        elif name in _TERM_GROUPS and self._side is not None and self._term and self._is_preferred:
            self._terms[self._side].append(self._term)
        elif name in _LANGUAGES:
            self._side = None
        elif name in _CONCEPTS and self._terms[1]:
            targets = tuple(dict.fromkeys(self._terms[1]))
            self.rows += (Row(self._line, source, targets) for source in self._terms[0])


def _read_tbx(content: bytes, name: str, languages: tuple[str, str]) -> list[Row]:
    """Return a row for each term of the source language in each concept of a TBX file."""
    reader, root = _TbxReader(languages), ""
    try:
        for token in read_xml(content, name):
            if token.kind == XmlKind.START:
                root = root or token.name
                reader.start(token.name, token.attributes.get("xml:lang", ""), token.line)
            elif token.kind == XmlKind.END:
                reader.end(token.name)
            elif token.kind == XmlKind.TEXT:
                reader.add_text(token.text)
            if len(reader.rows) > _MAX_ROWS:
                raise GlossaryError(f"{name}: more than {_MAX_ROWS:,} terms. Split the file.")
    except TextError as error:
        raise GlossaryError(str(error)) from error
    if root not in ("tbx", "martif", "TBX"):
        raise GlossaryError(f"{name}: <{root}> where <tbx> or <martif> must be. Check that it is a TBX file.")
    return reader.rows


def _merge(rows: Iterable[Row], name: str) -> TermList:
    """Check all rows, and join those that repeat a term."""
    lines: dict[str, Row] = {}
    duplicates = 0
    errors: list[str] = []
    for row in rows:
        entry = Entry(row.source, row.targets)
        known = lines.get(row.source)
        if reason := describe_invalid(entry):
            errors.append(f"{name}, line {row.line}: {row.source[:MAX_TERM]!r} is no valid term, {reason}")
        elif known is None:
            lines[row.source] = row
        elif known.targets == row.targets:
            duplicates += 1
        else:
            errors.append(
                f"{name}, line {row.line}: {row.source!r} is {_join(row.targets)!r} here and {_join(known.targets)!r} "
                f"in line {known.line}"
            )
        if len(errors) == _MAX_ERRORS:
            break
    if errors:
        more = " (and perhaps more)" if len(errors) == _MAX_ERRORS else ""
        raise GlossaryError(
            f"{'; '.join(errors)}{more}. Correct the file; to allow several translations, write them in one cell: a|b"
        )
    if not lines:
        raise GlossaryError(f"{name} has no term. Write a term and its translation in each row.")
    return TermList(tuple(Entry(row.source, row.targets) for row in lines.values()), duplicates)


def _join(targets: Sequence[str]) -> str:
    return _SEPARATOR.join(targets)


def load_glossary(
    path: str | os.PathLike[str],
    source_language: str = "de",
    target_language: str = "en",
    *,
    format: str | None = None,
) -> Glossary:
    """Open the file of a glossary, or read a file of terms.

    Args:
        path: A file that `Glossary.save` wrote (.glossary), or CSV, TSV or TBX.
        source_language: The language of the terms, for CSV, TSV and TBX.
        target_language: The language of the translations.
        format: The format of a file of terms; by default that of the ending.

    Returns:
        The glossary; that of a file of terms has the name of the file.

    Raises:
        GlossaryError: The file cannot be read.

    Examples:
        >>> load_glossary("terms.csv").name  # doctest: +SKIP
        'terms'
    """
    file = Path(path)
    if format is None and file.suffix.lower() == ENDING:
        return Glossary.open(file)
    terms = read_terms(file, source_language, target_language, format=format)
    return Glossary(file.stem, source_language, target_language, terms.entries)


def write_terms(glossary: Glossary, format: str) -> str:
    """Return the text of a file of terms.

    Args:
        glossary: The glossary.
        format: "csv", "tsv" or "tbx".

    Returns:
        The text, with a header row that names the languages for CSV and TSV.

    Examples:
        >>> print(write_terms(Glossary("app", "de", "en", [Entry("Mandant", ("tenant",))]), "csv"), end="")
        de,en
        Mandant,tenant
    """
    if format == "tbx":
        return _write_tbx(glossary)
    rows = [(glossary.source_language, glossary.target_language)]
    rows += ((entry.source, _join(entry.targets)) for entry in glossary.entries)
    if format == "tsv":
        return "".join(f"{source}\t{target}\n" for source, target in rows)
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _write_tbx(glossary: Glossary) -> str:
    from xml.sax.saxutils import escape

    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>\n<tbx type="TBX-Min" style="dca" xml:lang="en" '
        'xmlns="urn:iso:std:iso:30042:ed-2">\n<tbxHeader><fileDesc><titleStmt><title>'
        f"{escape(glossary.name)}</title></titleStmt><sourceDesc><p>ibidem</p></sourceDesc></fileDesc></tbxHeader>\n"
        "<text><body>\n"
    ]
    for number, entry in enumerate(glossary.entries, start=1):
        sides = ((glossary.source_language, (entry.source,)), (glossary.target_language, entry.targets))
        sections = "".join(
            f'<langSec xml:lang="{language}">'
            + "".join(f"<termSec><term>{escape(term)}</term></termSec>" for term in terms)
            + "</langSec>"
            for language, terms in sides
        )
        parts.append(f'<conceptEntry id="c{number}">{sections}</conceptEntry>\n')
    parts.append("</body></text>\n</tbx>\n")
    return "".join(parts)
