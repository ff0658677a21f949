"""Defects of single pairs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.check import recognize_language
from ibidem.check.pair_rules import PairRules, has_mojibake, repair
from ibidem.text import Pair

RULES = PairRules("de", "en")


def names(source: str, target: str) -> list[str]:
    return [kind.name for kind in RULES.judge(Pair(source, target, "a.tsv", 1)).kinds]


def test_the_sentences_of_the_project_have_no_defects(sentences) -> None:
    assert [names(one.german, one.english) for one in sentences if names(one.german, one.english)] == []


def test_exchanged_sides_are_found(sentences) -> None:
    found = [names(one.english, one.german) for one in sentences]
    assert all(kinds in ([], ["swapped"]) for kinds in found)
    assert found.count(["swapped"]) > 0.6 * len(found)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Die Datei wurde nicht gefunden.", "Die Datei wurde nicht gefunden.", "untranslated"),
        ("Die Datei wurde nicht gefunden.", "Le fichier est dans le dossier des autres.", "wrong language"),
        ("Die Datei wurde nicht gefunden.", "Файл не найден в этой папке.", "wrong language"),
        ("Die TÃ¼r ist offen.", "The door is open.", "mojibake"),
        ("Die Tür ist offen.", "The doorâ€™s open.", "mojibake"),
        ("Die Tür ist offen.", "The door \ufffd is open.", "mojibake"),
        ("Die Tür ist offen.", "The <b>door</b> is open.", "markup"),
        ("Fragen &amp; Antworten zur Tür", "Questions and answers on the door", "markup"),
        ("Die Tür ist seit gestern für alle Besucher des Hauses offen.", "Yes.", "length"),
        ("Die Tür ist seit gestern für alle Besucher des Hauses offen.", "2026", "length"),
        ("12.11.2026", "11/12/2026", "no words"),
        ("Seite 12 bis 15", "pages 34 to 36", "numbers"),
        ('"Er sagte ""ja"" zu uns."', "He said yes to us.", "csv quotes"),
        ("Deutscher Text", "English text", "header"),
    ],
)
def test_a_defect_is_found(source: str, target: str, expected: str) -> None:
    assert names(source, target) == [expected]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("OK", "OK"),
        ("Firefox 120", "Firefox 120"),
        ("%s: %s kann %s nicht lesen: %s", "%s: %s can't read %s: %s"),
        ("git commit --amend", "git commit --amend"),
        ("1.000,50 Euro", "1,000.50 euros"),
        ("São Paulo, Ärzte", "SÃO PAULO, doctors"),
        ("Dateiname", "File name"),
    ],
)
def test_good_pairs_pass(source: str, target: str) -> None:
    assert names(source, target) == []


def test_other_languages_are_not_judged() -> None:
    judged = PairRules("eu", "sw").judge(Pair("Die Tür ist offen.", "The door is open.", "a.tsv", 1))
    assert judged.kinds == ()


@given(st.text(st.characters(codec="cp1252", exclude_categories=["C"]), min_size=1))
def test_mojibake_is_repaired(text: str) -> None:
    try:
        damaged = text.encode("utf-8").decode("cp1252")
    except UnicodeDecodeError:  # five bytes have no character in Windows-1252
        return
    pair = Pair(damaged, "a", "a.tsv", 1)
    if has_mojibake(pair) and not has_mojibake(Pair(text, "a", "a.tsv", 1)):
        assert repair(pair).source == text


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    RULES.judge(Pair(text, text[::-1], "a.tsv", 1))
    repair(Pair(text, text, "a.tsv", 1))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Das ist nicht die Datei.", "de"),
        ("This is not the file.", "en"),
        ("Ce n'est pas le fichier que nous avons dans le dossier.", "fr"),
        ("Este no es el archivo que está en la carpeta de los otros.", "es"),
        ("これはファイルではありません", "HIRAGANA"),
        ("%s %s %s %s %s %s", None),
        ("Config.sys 42", None),
        ("", None),
    ],
)
def test_languages(text: str, language: str | None) -> None:
    assert recognize_language(text, "de", "en").language == language
