"""Header rows, titles above them, and what Excel writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openpyxl
import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus

from .conftest import Write, sides

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = [("die Tür", "the door"), ("das Haus", "the house")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "German\tEnglish\ndie Tür\tthe door\ndas Haus\tthe house\n"),
        ("a.tsv", "en\tde\nthe door\tdie Tür\nthe house\tdas Haus\n"),
        ("a.tsv", "id\tsource\ttarget\n1\tdie Tür\tthe door\n2\tdas Haus\tthe house\n"),
        ("a.csv", "sep=;\r\nDeutsch;Englisch\r\ndie Tür;the door\r\ndas Haus;the house\r\n"),
        ("a.csv", "Terms of 2026,\n,\nde,en\ndie Tür,the door\ndas Haus,the house\n"),
    ],
)
def test_header_rows_are_no_pairs(write: Write, name: str, content: str) -> None:
    corpus = Corpus([write(name, content)])
    assert sides(corpus) == PAIRS
    assert corpus.counts.dropped["header row"] == 1


def test_the_first_lines_of_two_files(write: Write) -> None:
    corpus = Corpus([write("a.de", "Deutsch\ndie Tür\ndas Haus\n"), write("a.en", "English\nthe door\nthe house\n")])
    assert sides(corpus) == PAIRS
    assert corpus.counts.dropped == {"header row": 1}


@pytest.mark.parametrize("row", ["Quelle\tSource", "Ziel\tTarget", "Englisch\tEnglish", "Deutsch\tGerman"])
def test_pairs_that_only_look_like_a_header_are_kept(write: Write, row: str) -> None:
    assert sides(Corpus([write("a.tsv", f"{row}\ndie Tür\tthe door\n")])) == [tuple(row.split("\t")), PAIRS[0]]


def test_a_table_without_names_is_an_error(write: Write) -> None:
    with pytest.raises(TextError, match="line 1: 3 columns"):
        list(Corpus([write("a.csv", "eins,one,1\nDeutsch,English,\n")]))


def test_an_excel_sheet(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet["A1"] = "Terms of 2026"
    sheet.merge_cells("A1:C1")
    for row in (["no", "Deutsch", "English"], [1, "die Tür", "the door"], [2, "das Haus", "the house"]):
        sheet.append(row)
    sheet.append([3, "=B3", "=#REF!"])  # formulas without stored results
    sheet.append([4, "das Dach", None])
    sheet.merge_cells("B7:B8")
    path = tmp_path / "terms.xlsx"
    book.save(path)
    corpus = Corpus([path])
    assert sides(corpus) == PAIRS
    assert corpus.counts.dropped["header row"] == 1
    assert corpus.counts.dropped["row above the header"] == 1


def test_an_excel_error_is_no_text(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["de", "en"])
    sheet.append(["die Tür", "the door"])
    sheet.append(["das Haus", "x"])
    sheet["B3"].value, sheet["B3"].data_type = "#REF!", "e"
    path = tmp_path / "terms.xlsx"
    book.save(path)
    assert sides(Corpus([path])) == PAIRS[:1]
