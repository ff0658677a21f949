"""XLSX: the texts of cells. Numbers, formulas, sheet names and the column names of tables stay as they are.

Excel reports a file as damaged if the heading of a table's column differs from the name in the table's definition, and
formulas refer to that name, so these headings are not translated.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.columns import read_rows
from ibidem.text.inline import plain_text
from ibidem.text.markup import Element, XmlFile
from ibidem.text.office.docx import find_parts
from ibidem.text.office.package import Package, PackageBuilder
from ibidem.text.office.runs import Atom, AtomKind, Format, RunWriter, add_paragraph, sheet_run
from ibidem.text.stream import BLOCK_BYTES
from ibidem.text.xml import Kind, escape, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text.document import Document, Edit
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Check, Stream

_WORKBOOKS = ("sheet.main+xml", "template.main+xml", "macroEnabled.main+xml")
_MAX_COLUMNS = 1_000
_LOCKED = "the name of a table's column"


def read_xlsx_document(data: bytes, name: str) -> Document:
    """Read an XLSX file as a document whose texts in cells are replaced by their translations.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is no XLSX file, is damaged or encrypted, or exceeds a limit.
    """
    package = Package(data, name, "XLSX")
    find_parts(package, "XLSX", _WORKBOOKS)
    builder = PackageBuilder(package)
    columns = set(_read_column_names(package))
    for member, content, edits in builder.open(sheet_parts(package)):
        xml = XmlFile(content)
        numbers = count(1)
        tokens = read_tokens(content, f"{name}, {member}")
        cell = ""
        for token in tokens:
            if token.kind != Kind.START:
                continue
            if token.name == "c":
                cell = f"cell {token.attributes.get('r', '')}"
            elif token.name in ("si", "is"):
                text = Element.collect(token, tokens, name)
                place = f"{member}, {cell or f'text {next(numbers)}'}"
                _add_text(text, xml, builder, edits, columns, place)
    return builder.build_package("XLSX")


def read_xlsx(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of all sheets of a file; the first row of each names the columns, see `read_rows`.

    Args:
        stream: The opened file.
        languages: The two languages.

    Raises:
        TextError: If the columns are not known, or the file is damaged or exceeds a limit.
    """
    data = bytearray()
    while block := stream.read(BLOCK_BYTES):
        data += block
        if len(data) > stream.limits.whole_bytes:
            raise TextError(f"{stream.name}: larger than {stream.limits.whole_bytes:,} bytes. Divide it into several.")
    package = Package(bytes(data), stream.name, "XLSX")
    texts: list[str] = []
    for member in sheet_parts(package):
        if "sharedstrings" in member.lower():
            texts = list(_read_shared(package, member))
    for member in sheet_parts(package):
        if "sharedstrings" not in member.lower():
            yield from read_rows(
                _read_rows(package, member, texts, stream.check), f"{stream.name}, {member}", languages
            )


def _read_shared(package: Package, member: str) -> Iterator[str]:
    tokens = read_tokens(package.read(member), f"{package.name}, {member}")
    for token in tokens:
        if token.kind == Kind.START and token.name == "si":
            yield "".join(part.text() for part in _text_elements(Element.collect(token, tokens, package.name)))


def _read_rows(package: Package, member: str, texts: Sequence[str], check: Check) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each row, without empty cells at its end."""
    tokens = read_tokens(package.read(member), f"{package.name}, {member}")
    number = 0
    for token in tokens:
        if token.kind != Kind.START or token.name != "row":
            continue
        check()
        given = token.attributes.get("r", "")
        number = int(given) if given.isdecimal() and len(given) < 8 else number + 1
        cells: list[str] = []
        for cell in Element.collect(token, tokens, package.name).children("c"):
            column = _column_of(cell.attributes.get("r", ""), len(cells))
            if column < _MAX_COLUMNS:
                cells += [""] * (column + 1 - len(cells))
                cells[column] = _read_cell(cell, texts)
        while cells and not cells[-1].strip():
            cells.pop()
        yield number, cells


def _column_of(reference: str, following: int) -> int:
    """Return the number of the column, from 0, of a reference such as `B7`."""
    letters = reference.rstrip("0123456789")
    if not letters.isascii() or not letters.isalpha() or len(letters) > 3:
        return following
    column = 0
    for letter in letters.upper():
        column = 26 * column + ord(letter) - ord("A") + 1
    return column - 1


def _read_cell(cell: Element, texts: Sequence[str]) -> str:
    inline, value = cell.child("is"), cell.child("v")
    if inline is not None:
        return "".join(part.text() for part in _text_elements(inline))
    written = value.text() if value is not None else ""
    kind = cell.attributes.get("t")
    if kind == "e":  # an error such as #REF! instead of the result of a formula
        return ""
    if kind != "s":
        return written
    return texts[int(written)] if written.isdecimal() and len(written) < 9 and int(written) < len(texts) else ""


def sheet_parts(package: Package) -> list[str]:
    """Return the members with texts of cells: the shared strings, then the sheets.

    Args:
        package: The archive.
    """
    return find_parts(package, "XLSX", ("sharedStrings+xml", "worksheet+xml"))


def _read_column_names(package: Package) -> Iterator[str]:
    """Yield the names of the columns of tables and the fields of pivot tables."""
    parts = re.compile(r"[/\\](?:tables|pivotcache)[/\\](?:table|pivotcachedefinition)[^/\\]*\.xml\Z", re.IGNORECASE)
    for member in filter(parts.search, package.names):
        for token in read_tokens(package.read(member), f"{package.name}, {member}"):
            if token.kind == Kind.START and token.name in ("tableColumn", "cacheField"):
                yield _fold(token.attributes.get("name", ""))


def _fold(text: str) -> str:
    # A line break in a heading is written as _x000a_ in the definition of the table.
    return " ".join(text.replace("_x000a_", " ").replace("_x000A_", " ").split()).casefold()


def _add_text(
    text: Element, xml: XmlFile, builder: PackageBuilder, edits: list[Edit], columns: set[str], place: str
) -> None:
    """Add a plain text, or one of several runs."""
    whole = "".join(part.text() for part in _text_elements(text))
    if _fold(whole) in columns:
        builder.add((whole,), text.line, locked=_LOCKED, place=place)
        return
    tag = xml.tag(text.opening)
    prefix = tag[1 : tag.index(":") + 1] if ":" in tag.partition(" ")[0] else ""
    plain = text.child("t")
    runs = list(text.children("r"))
    if plain is not None and not runs and plain.opening.end < plain.closing.end:
        span = plain.opening.start, plain.closing.end

        def encode(pieces: Pieces) -> bytes:
            written = escape(plain_text(pieces), xml.newline)
            return xml.encode(f'<{prefix}t xml:space="preserve">{written}</{prefix}t>')

        builder.replace(xml.data, span, (whole,), text.line, encode, edits=edits, place=place)
        return
    atoms = []
    for run in runs:
        properties = run.child("rPr")
        markup = xml.raw(properties.opening.start, properties.closing.end) if properties else ""
        content = "".join(part.text() for part in run.children("t"))
        span = run.opening.start, run.closing.end
        atoms.append(Atom(AtomKind.TEXT, content, *span, Format(markup, markup)))
    writer = RunWriter(xml, sheet_run(prefix, xml.newline))
    add_paragraph(atoms, writer, builder, edits, text.line, place=place)


def _text_elements(text: Element) -> Iterator[Element]:
    """Yield the elements with text, without phonetic hints."""
    yield from text.children("t")
    for run in text.children("r"):
        yield from run.children("t")
