"""Accelerators removed from pairs, taken out of texts and put into translations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.text.inline.accelerators import (
    Accelerator,
    find_accelerator,
    put_accelerator,
    remove_accelerators,
    take_accelerator,
)


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


@pytest.mark.parametrize(
    ("original", "translation", "cleaned"),
    [
        ("&File", "&Datei", ("File", "Datei")),
        ("_Open", "Ö_ffnen", ("Open", "Öffnen")),
        ("~View", "~Ansicht", ("View", "Ansicht")),
        ("Save &As...", "Speichern &unter...", ("Save As...", "Speichern unter...")),
        ("E&xit", "B&eenden", ("Exit", "Beenden")),
        ("Re_name", "Um_benennen", ("Rename", "Umbenennen")),
        ("Be_fore", "Be_vor", ("Before", "Bevor")),
        ("Se_t", "Fes_t", ("Set", "Fest")),
        ("&1 column", "&1 Spalte", ("1 column", "1 Spalte")),
        ("Find & &Replace", "Suchen & &Ersetzen", ("Find & Replace", "Suchen & Ersetzen")),
        ("A &amp; &B", "C &amp; &D", ("A &amp; B", "C &amp; D")),
        ("Find && &Go", "Suche && &Los", ("Find && Go", "Suche && Los")),
        ("文件(&F)", "Datei(&D)", ("文件(F)", "Datei(D)")),
        ("_Start", "_Start der Anwendung", ("Start", "Start der Anwendung")),
    ],
)
def test_accelerators_are_removed_from_both_sides(original: str, translation: str, cleaned: tuple[str, str]) -> None:
    assert remove_accelerators(original, translation) == cleaned


@pytest.mark.parametrize(
    ("original", "translation"),
    [
        ("&File", "Datei"),
        ("File", "&Datei"),
        ("&File", "_Datei"),
        ("salt &amp; pepper", "Salz &amp; Pfeffer"),
        ("&#228;", "&auml;"),
        ("salt & pepper", "Salz & Pfeffer"),
        ("&", "&"),
        ("foo_bar is set", "foo_bar ist gesetzt"),
        ("foo_bar", "der foo_bar-Wert"),
        ("__init__", "__init__ Methode"),
        ("a_b_c x", "a_b_c y"),
        ("_emphasis_", "_Betonung_"),
        ("&One or &two", "&Eins oder &zwei"),
        ("AT&T service", "AT&T-Dienst"),
        ("R&D", "F&E"),
        ("MAX_SIZE", "MAX_GRÖSSE"),
        ("new_owner", "neuer_Eigentümer"),
        ("the krb5_cred structure", "die Krb5_cred-Struktur"),
        ("msgid_plural", "msgstr_plural"),
        ("%lld~day", "%lld~Tag"),
        ("see http://x?a=1&b=2", "siehe http://x?a=1&b=2"),
        ("in http://x/~user/", "unter http://x/~user/"),
        ("~/file", "~/Datei"),
        ("end_", "Ende_"),
        ("100%_", "100 %_"),
    ],
)
def test_other_markers_of_a_pair_stay(original: str, translation: str) -> None:
    assert remove_accelerators(original, translation) == (original, translation)


def test_only_one_kind_of_marker_is_removed() -> None:
    assert remove_accelerators("&Go to _home", "&Gehe zu _heim") == ("Go to _home", "Gehe zu _heim")


WORDS = st.text(alphabet=st.sampled_from("aB1 &_~;.-ä"))


@settings(deadline=None)
@given(WORDS, WORDS)
def test_the_same_single_marker_is_removed_from_both_sides_or_none(original: str, translation: str) -> None:
    cleaned = remove_accelerators(original, translation)
    if cleaned == (original, translation):
        return
    removed = set()
    for before, after in zip((original, translation), cleaned, strict=True):
        (place,) = {
            p for m in "&_~" if (p := find_accelerator(before, m)) is not None and before[:p] + before[p + 1 :] == after
        }
        assert before[place + 1].isalnum()
        removed.add(before[place])
    assert len(removed) == 1
