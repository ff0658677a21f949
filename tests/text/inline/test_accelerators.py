from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.text.inline.accelerators import Accelerator, put_accelerator, take_accelerator


@pytest.mark.parametrize(
    ("text", "bare", "accelerator"),
    [
        ("&Datei", "Datei", "&D"),
        ("Datei &öffnen…", "Datei öffnen…", "&ö"),
        ("Sp&eichern", "Speichern", "&e"),
        ("_Open", "Open", "_O"),
        ("E_xit", "Exit", "_x"),
        ("Save _As", "Save As", "_A"),
        ("~Datei", "Datei", "~D"),
        ("&1 Fenster", "1 Fenster", "&1"),
    ],
)
def test_markers_are_taken_out(text: str, bare: str, accelerator: str) -> None:
    assert take_accelerator(text) == (bare, Accelerator(*accelerator))


@pytest.mark.parametrize(
    "text",
    [
        *("R&D", "AT&T", "a & b", "a && b", "&amp;", "x?a=1&b=2", "&A und &B", "Datei"),
        *("file_name", "MAX_SIZE", "__init__", "_", "New_Name", "~/ordner", "~5 Minuten", "a_b"),
        "_Ein Satz, der so lang ist, dass niemand ihn auf einen Knopf eines Fensters schreibt",
    ],
)
def test_other_markers_are_text(text: str) -> None:
    assert take_accelerator(text) == (text, None)


@pytest.mark.parametrize(
    ("text", "accelerator", "found"),
    [
        ("File", "&D", "&File"),
        ("Open file", "&F", "Open &file"),
        ("Reload", "&o", "&Reload"),
        ("Save file", "&f", "Save &file"),
        ("3 windows", "&x", "&3 windows"),
        ("文件", "&d", "文件(&D)"),
        ("文件...", "_d", "文件(_D)..."),
        ("… Datei", "&x", "… &Datei"),
        ("don't touch", "&t", "don't &touch"),
    ],
)
def test_markers_are_put_back_on_a_suitable_letter(text: str, accelerator: str, found: str) -> None:
    assert put_accelerator(text, Accelerator(*accelerator)) == found


@pytest.mark.parametrize(
    ("source", "translation", "found"),
    [
        ("Datei &drucken", "Data dump", "Data &dump"),
        ("&Datei drucken", "Data dump", "&Data dump"),
        ("Datei &drucken", "File dump", "File &dump"),
        ("Datei &drucken", "Print", "&Print"),
        ("Eins zwei &Eins", "Eins zwei Eins", "Eins zwei &Eins"),
    ],
)
def test_of_several_words_with_the_letter_it_is_the_one_that_was_marked(
    source: str, translation: str, found: str
) -> None:
    _, accelerator = take_accelerator(source)
    assert accelerator is not None
    assert put_accelerator(translation, accelerator) == found


@given(st.text(max_size=30), st.sampled_from("&_~"), st.sampled_from("aZö1"))
def test_a_marker_is_added_once_and_nothing_else_changes(text: str, marker: str, letter: str) -> None:
    found = put_accelerator(text, Accelerator(marker, letter))
    assert found.count(marker) == text.count(marker) + 1
    if f"({marker}" not in found:
        assert found.replace(marker, "") == text.replace(marker, "")
