"""Suspicious translations are found, and ordinary ones are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.text import check_translation

LONG = "Die Datei konnte nicht gespeichert werden, weil der Datenträger voll ist."


@pytest.mark.parametrize(
    ("source", "translation", "message"),
    [
        (LONG, "", "the translation is empty"),
        ("Datei", " ", "the translation is empty"),
        (LONG, "The file.", "the translation is much shorter than the source"),
        (
            "今天天气很好,我们一起去公园散步吧,然后回家吃饭。",
            "Fine.",
            "the translation is much shorter than the source",
        ),
        (LONG, "The file could not be not be not be saved on the disk.", 'the translation repeats "not be"'),
        (LONG, "The the the the file could not be saved.", 'the translation repeats "the"'),
        (LONG, "The file is full and the file is full and the disk.", 'the translation repeats "the file is full and"'),
        (LONG, "The file could hahahahahahaha be saved.", 'the translation repeats "hahahahahahaha"'),
        (LONG, LONG, "the translation is a copy of the source"),
        ("Der Betrag ist 1.234,56 €.", "The amount is €1,56.", "the number 1.234,56 is not in the translation"),
        ("Seite 4711", "Page", "the number 4711 is not in the translation"),
        ("Am 18.03.2024 um 14:30 Uhr", "On 18 March 2024 at 2:35 p.m.", "the number 14:30 is not in the translation"),
        (LONG, LONG.replace("Die", "The"), "the translation is a copy of the source"),
    ],
)
def test_suspicious_translations(source: str, translation: str, message: str) -> None:
    assert check_translation(source, translation) == message


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        (LONG, "The file could not be saved because the disk is full."),
        ("Datei", "File"),
        ("Grundstücksverkehrsgenehmigungszuständigkeitsübertragungsverordnung", "land transfer authority regulation"),
        ("Bitte warten …", "Wait …"),
        ("LibreOffice Writer", "LibreOffice Writer"),
        ("https://www.example.org/hilfe/index.html", "https://www.example.org/hilfe/index.html"),
        ("if (file == null) return the last one", "if (file == null) return the last one"),
        ("SELECT * FROM Users WHERE Id = 5", "SELECT * FROM Users WHERE Id = 5"),
        ("Nein, nein, nein, nein!", "No, no, no, no!"),
        ("Sehr, sehr gut", "Very, very, very good"),
        ("Schritt für Schritt und Tag für Tag", "step by step and day by day"),
        ("1 1 1 1 1 1", "1 1 1 1 1 1"),
        ("aaaaaaaaaaaa", "aaaaaaaaaaaa"),
        ("Der Betrag ist 1.234,56 €.", "The amount is €1,234.56."),
        ("Am 18.03.2024 um 14:30 Uhr", "At 2:30 p.m. on March 18th, 2024"),
        ("1914–18 kostete es 5,50 Mark", "From 1914 to 1918 it cost 5.5 marks"),
        ("Beginn 15:25 Uhr", "Start at 3:25"),
        ("Beginn 21 Uhr", "Start at 9pm"),
        ("Nach 12 Tagen", "After twelve days"),
        ("20 Jahre, 500.000 Leute", "Twenty years, half a million people"),
        ("10 000 Zeilen, 007", "10,000 lines, 7"),
        ("MP3 und x86", "Music and processors"),
        ("", ""),
        ("...", ""),
        ("He waited for us in Berlin.", "今天他在柏林等我们。"),
    ],
)
def test_ordinary_translations(source: str, translation: str) -> None:
    assert check_translation(source, translation) is None


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_texts_can_be_checked(source: str, translation: str) -> None:
    found = check_translation(source, translation)
    assert found is None or len(found.splitlines()) == 1
    assert check_translation(source, source) in (
        None,
        "the translation is a copy of the source",
        "the translation is empty",
    )
