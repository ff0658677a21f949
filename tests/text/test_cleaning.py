from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.text.cleaning import clean, find_accelerator, remove_context


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
def test_accelerators_are_removed(original: str, translation: str, cleaned: tuple[str, str]) -> None:
    assert clean(original, translation) == cleaned


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
def test_all_else_is_left_alone(original: str, translation: str) -> None:
    assert clean(original, translation) == (original, translation)


def test_only_one_kind_of_marker_is_taken_for_accelerators() -> None:
    assert clean("&Go to _home", "&Gehe zu _heim") == ("Go to _home", "Gehe zu _heim")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("_: verb\nOpen", "Open"),
        ("_: a\nb\nc", "b\nc"),
        ("_: no newline", "_: no newline"),
        ("Open\n_: verb\n", "Open\n_: verb\n"),
        ("_n: one\nmany", "_n: one\nmany"),
    ],
)
def test_kde_contexts_are_removed(text: str, rest: str) -> None:
    assert remove_context(text) == rest


WORDS = st.text(alphabet=st.sampled_from("aB1 &_~;.-ä"))


@settings(deadline=None)
@given(WORDS, WORDS)
def test_it_removes_the_same_single_marker_from_both_sides_or_nothing(original: str, translation: str) -> None:
    cleaned = clean(original, translation)
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
