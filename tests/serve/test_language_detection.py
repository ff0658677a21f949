"""Detection of languages: short texts of programs, other languages, and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.serve.language_detection import choose_detected, detect_languages, probability_of, shown_languages

if TYPE_CHECKING:
    from ..conftest import Sentence
    from .conftest import Client

PAIR = ("de", "en")
GERMAN = [
    "Datei öffnen",
    "Speichern unter …",
    "Abbrechen",
    "Die Datei wurde gelöscht.",
    "Nächste Seite",
    "Einstellungen",
]
ENGLISH = ["Open file", "Save as …", "Show the settings", "The file was deleted.", "Next page", "Search and replace"]
OTHERS = {
    "fr": ["Ouvrir le fichier", "Enregistrer sous", "Le fichier a été supprimé."],
    "es": ["Abrir el archivo", "Guardar como", "El archivo se ha eliminado."],
    "it": ["Apri il file", "Salva con nome", "Il file è stato eliminato."],
    "nl": ["Bestand openen", "Opslaan als", "Het bestand is verwijderd."],
    "sv": ["Öppna filen", "Spara som", "Filen har tagits bort."],
    "da": ["Åbn filen", "Gem som", "Filen er blevet slettet."],
    "pl": ["Otwórz plik", "Zapisz jako", "Plik został usunięty."],
    "ru": ["Открыть файл", "Сохранить как", "Файл был удалён."],
}


@pytest.mark.parametrize(("language", "texts"), [("de", GERMAN), ("en", ENGLISH)])
def test_short_texts(language: str, texts: list[str]) -> None:
    assert {text: detect_languages([text], PAIR)[0].language for text in texts} == dict.fromkeys(texts, language)


def test_sentences_of_both_languages_are_told_apart(sentences: list[Sentence]) -> None:
    """The texts of the project are mostly those of programs; "Undo" alone says too little."""
    wrong = [
        text
        for sentence in sentences
        for language, text in (("de", sentence.german), ("en", sentence.english))
        if choose_detected(PAIR, detect_languages([text], PAIR)) != language
    ]
    assert wrong in ([], ["Undo"])


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_are_not_taken_for_those_of_the_server(language: str) -> None:
    for text in OTHERS[language]:
        found = detect_languages([text], PAIR)
        assert max(probability_of(one, found) for one in PAIR) < 0.8, text
    assert detect_languages(OTHERS[language], PAIR)[0].language == language


def test_probabilities() -> None:
    found = detect_languages(["Die Datei wurde gespeichert."], PAIR)
    assert sum(one.probability for one in found) == pytest.approx(1)
    assert [one.probability for one in found] == sorted((one.probability for one in found), reverse=True)
    assert len(shown_languages(found)) <= 3
    for nothing in ([], [""], ["1 2 3 …"]):
        assert detect_languages(nothing, PAIR) == []
    assert choose_detected(PAIR, []) is None


def test_the_api(client: Client) -> None:
    (best, *_) = client.post("/detect", {"q": "Die Datei wurde gespeichert."}).json
    assert best["language"] == "de"
    assert best["confidence"] > 80
    french = client.form("/detect", {"q": "Le fichier a été supprimé du dossier."}).json
    assert french[0]["language"] == "fr"
    assert client.post("/detect", {"q": "123"}).json == [{"confidence": 0.0, "language": "de"}]
    auto = client.post("/translate", {"q": "Le fichier a été supprimé.", "source": "auto", "target": "en"}).json
    assert auto["detectedLanguage"]["language"] == "de"
    assert auto["detectedLanguage"]["confidence"] < 20, "translated as German, which it hardly is"
