"""CSV as documents and as parallel text."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text import Corpus
from ibidem.text.csv import read_csv_document
from ibidem.text.language import Languages

from .conftest import Write, sides
from .samples import filled
from .translators import shout

LANGUAGES = Languages("de", "en")


def translated(text: str) -> str:
    written, report = filled(read_csv_document(text.encode(), "a.csv", LANGUAGES), shout)
    assert report.failed == []
    return written.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name;wert\nhaus;12\n", "NAME;WERT\nHAUS;12\n"),
        ('"ein ""wort""",zwei\r\n', '"EIN ""WORT""",ZWEI\r\n'),
        ("id,text\na,eins\n", "id,text\na,EINS\n"),
        ('de,en\neins,\nzwei,two\n"drei, vier",""\n', 'de,en\neins,EINS\nzwei,two\n"drei, vier","DREI, VIER"\n'),
        ("key\tGerman\tEnglish\tnote\na\teins\t\tbleibt\n", "key\tGerman\tEnglish\tnote\na\teins\tEINS\tbleibt\n"),
        ('"zwei\nzeilen",x', '"ZWEI\nZEILEN",X'),
        ("sep=;\r\nein, zwei;drei\r\n", 'sep=;\r\n"EIN, ZWEI";DREI\r\n'),
        ('ein 24";a\nein 27";b, c\n', '"EIN 24""";A\n"EIN 27""";"B, C"\n'),
    ],
)
def test_documents(text: str, expected: str) -> None:
    assert translated(text) == expected


def test_a_cell_is_quoted_if_its_translation_needs_it() -> None:
    written, _ = filled(
        read_csv_document(b"a,b\n", "a.csv", LANGUAGES), lambda texts: [f'{text}, "x"' for text in texts]
    )
    assert written == b'"a, ""x""","b, ""x"""\n'


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), min_size=2, max_size=4), min_size=1
    )
)
def test_cells_are_those_of_the_library(rows: list[list[str]]) -> None:
    """Quoted cells are compared with the csv module of Python."""
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    data = buffer.getvalue().encode()
    document = read_csv_document(data, "a.csv", Languages("xx", "yy"))
    # A first row with the name of a column of keys is no segment.
    found = {segment.source[0] for segment in document.segments}
    assert found <= {cell for row in rows for cell in row}
    assert filled(document, list)[0] == data


def test_parallel_text(write: Write) -> None:
    corpus = Corpus([write("a.csv", 'id;Englisch;Deutsch\n1;door;"die ""Tür""; auf"\n2;x\n3;"two\nlines";zwei\n')])
    assert sides(corpus) == [('die "Tür"; auf', "door"), ("zwei", "two lines")]
    assert corpus.counts.dropped == {"header row": 1, "missing cell": 1}
    assert sides(Corpus([write("b.csv", "Tür,door\nHaus,house\n")])) == [("Tür", "door"), ("Haus", "house")]
    for content, message in (
        ("a,b,c\n", r"b\.csv, line 1: 3 columns \('a', 'b', 'c'\) without names of languages"),
        ('de,en\n"a,b\n' + "x" * 200_000, r"b\.csv, line \d+: not valid CSV"),
    ):
        with pytest.raises(TextError, match=message):
            list(Corpus([write("b.csv", content)]))
    with pytest.raises(TextError, match='a " that is not closed'):
        read_csv_document(b'a,"b\n', "a.csv", LANGUAGES)
