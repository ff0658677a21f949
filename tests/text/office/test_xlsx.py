"""XLSX documents, and sheets as parallel text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus
from ibidem.text.office import read_xlsx_document

from ..conftest import Write, sides
from ..samples import filled
from ..translators import shout
from .archives import archive, members_of, xlsx

if TYPE_CHECKING:
    from pathlib import Path

RICH = "<si><r><t>ein </t></r><r><rPr><b/></rPr><t>fettes</t></r><r><t> wort</t></r></si>"


def test_texts_are_translated_and_column_names_stay() -> None:
    shared = f"<si><t>der preis &amp; mehr</t></si>{RICH}<si><t>42</t></si><si><t>Umsatz</t></si>"
    sheet = (
        '<row r="1"><c r="A1" t="inlineStr"><is><t>in der zelle</t></is></c><c r="B1"><f>SUM(A1)</f><v>3</v></c></row>'
    )
    data = xlsx(shared, sheet, table1='<tableColumn name="umsatz"/>')
    same, _ = filled(read_xlsx_document(data, "a.xlsx"), list)
    assert same == data
    written, report = filled(read_xlsx_document(data, "a.xlsx"), shout)
    members = members_of(written)
    assert b'<si><t xml:space="preserve">DER PREIS &amp; MEHR</t></si>' in members["xl/sharedStrings.xml"]
    bold = b'<r><rPr><b/></rPr><t xml:space="preserve">FETTES</t></r>'
    assert bold in members["xl/sharedStrings.xml"]
    assert b"<si><t>42</t></si><si><t>Umsatz</t></si>" in members["xl/sharedStrings.xml"]
    assert b'<t xml:space="preserve">IN DER ZELLE</t>' in members["xl/worksheets/sheet1.xml"]
    assert b"<f>SUM(A1)</f><v>3</v>" in members["xl/worksheets/sheet1.xml"]
    assert report.kept == {"the name of a table's column": 1}
    _, report = filled(
        read_xlsx_document(xlsx("", sheet.replace("in der zelle", "{n, plural, x {y}}")), "a.xlsx"), shout
    )
    assert next(report.lines()).startswith("a.xlsx, xl/worksheets/sheet1.xml, cell A1: not translated: an ICU message")


def test_a_library_opens_the_result() -> None:
    library = pytest.importorskip("openpyxl")
    book = library.Workbook()
    book.active.append(["der name", 1, "=B1+1"])
    buffer = io.BytesIO()
    book.save(buffer)
    written, _ = filled(read_xlsx_document(buffer.getvalue(), "a.xlsx"), shout)
    result = library.load_workbook(io.BytesIO(written))
    assert [cell.value for cell in result.active[1]] == ["DER NAME", 1, "=B1+1"]


def sheet_of(*rows: list[str | int | None]) -> bytes:
    library = pytest.importorskip("openpyxl")
    book = library.Workbook()
    for row in rows:
        book.active.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def test_named_columns_are_parallel_text(write: Write) -> None:
    named = sheet_of(
        ["id", "English", "de-DE"], [1, "the door", "die Tür"], [2, None, "x"], [None, None, None], [3, "a", "b"]
    )
    corpus = Corpus([write("a.xlsx", named)])
    assert sides(corpus) == [("die Tür", "the door"), ("b", "a")]
    assert [pair.location for pair in corpus] == [2, 5]
    two = Corpus([write("b.xlsx", sheet_of(["die Tür", "the door"], ["ein Haus", "a house"]))])
    assert sides(two) == [("die Tür", "the door"), ("ein Haus", "a house")]
    with pytest.raises(TextError, match=r"c\.xlsx.* line 1: 3 columns \('a', 'b', 'c'\) without names of languages"):
        list(Corpus([write("c.xlsx", sheet_of(["a", "b", "c"]))]))


def test_a_sheet_given_as_text_is_refused(tmp_path: Path, write: Write) -> None:
    data = sheet_of(["die Tür", "the door"])
    for name, format in (("a.tsv", None), ("a.jsonl", None), ("a.po", None), ("a.csv", None), ("a.xlsx", "tsv")):
        with pytest.raises(TextError, match=r"it is a zip archive or an office document .* not text"):
            list(Corpus([write(name, data)], format=format))
    with pytest.raises(TextError, match="it is a zip archive"):
        list(Corpus([write("a.de", data), write("a.en", data)]))
    with pytest.raises(TextError, match="not a complete XLSX file"):
        list(Corpus([write("a.xlsx", data[:-50])]))
    with pytest.raises(TextError, match="without the parts of a XLSX file"):
        list(Corpus([write("a.xlsx", archive({"a": "b"}))]))
    assert not list(tmp_path.glob("*.tmp"))
