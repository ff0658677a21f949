from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair

from .conftest import Write, sides

HOUSE = ("Haus", "house")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_lines_are_pairs(write: Write, ending: str) -> None:
    path = write(
        f"a.jsonl{ending}",
        '{"id": "0", "translation": {"de": "Haus", "en": "house"}}\n\n'
        '{"translation": {"de": " ", "en": "x"}}\r\n'
        '{"translation": {"de": "zwei\\nZeilen", "en": "two\\tlines"}}',
    )
    corpus = Corpus([path])
    assert list(corpus) == [Pair("Haus", "house", path, 1), Pair("zwei Zeilen", "two lines", path, 4)]
    assert corpus.counts.dropped == {"blank line": 1, "empty source": 1}


@pytest.mark.parametrize(
    "line",
    [
        '{"de": "Haus", "en": "house"}',
        '{"en_US": "house", "DE-AT": "Haus", "fr": "maison"}',
        '{"source": "Haus", "target": "house"}',
        '{"de": "Haus", "en": "house", "source": "Tatoeba", "target": 1}',
        '{"de": "Haus", "en": "house", "translation": "machine"}',
        '{"de": "Haus", "de-CH": "Hüsli", "en": "house"}',
    ],
)
def test_every_shape_is_read(write: Write, line: str) -> None:
    assert sides(Corpus([write("a.jsonl", line)])) == [HOUSE]


def test_the_languages_can_be_chosen(write: Write) -> None:
    path = write("a.jsonl", '{"translation": {"fr": "maison", "de": "Haus", "en": "house"}}')
    assert sides(Corpus([path], source_language="en", target_language="fr-CA")) == [("house", "maison")]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"de": "Haus"', "not valid JSON (Expecting"),
        ("[" * 100_000, "not valid JSON (maximum recursion"),
        ("1" * 5_000, "not valid JSON (Exceeds the limit"),
        ('["Haus", "house"]', 'a JSON list where an object must be. Write {"translation": {"de": '),
        (
            '{"translation": {"de": "Haus", "fr": "maison"}}',
            "no 'en' side; the keys found are: 'de', 'fr'. Write",
        ),
        ('{"source": "Haus"}', "no 'de' side; the keys found are: 'source'."),
        ("{}", "no 'de' side; the keys found are: none."),
        (
            '{"de": "Haus", "en": null}',
            "the value of 'en' is NoneType, not a string; the keys found are: 'de', 'en'.",
        ),
        ('{"de": ["Haus"], "en": "house"}', "the value of 'de' is list, not a string"),
        ('{"de": "\\ud83d", "en": "x"}', "the value of 'de' has half a surrogate pair (\\ud83d)"),
    ],
)
def test_a_line_that_is_no_pair_is_named(write: Write, line: str, what: str) -> None:
    path = write("a.jsonl", '{"de": "a", "en": "b"}\n' + line)
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line 2: {what}")


def test_a_surrogate_pair_is_a_character(write: Write) -> None:
    path = write("a.jsonl", '{"de": "\\ud83d\\ude00", "en": "x"}')
    assert sides(Corpus([path])) == [("😀", "x")]
