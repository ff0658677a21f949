"""JSON lines as parallel text and as a document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair
from ibidem.text.jsonl import read_jsonl_document
from ibidem.text.language import Languages

from .conftest import Write, sides
from .samples import filled
from .translators import backwards

LANGUAGES = Languages("de", "en")
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
def test_errors_name_the_line(write: Write, line: str, what: str) -> None:
    path = write("a.jsonl", '{"de": "a", "en": "b"}\n' + line)
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line 2: {what}")


def test_a_surrogate_pair_is_a_character(write: Write) -> None:
    path = write("a.jsonl", '{"de": "\\ud83d\\ude00", "en": "x"}')
    assert sides(Corpus([path])) == [("😀", "x")]


DOCUMENT = """\
{"source": "eins zwei", "id": 3}
{"id":[{"source":"no"}],"target":null , "source" : "drei vier"}
{"translation": {"de":"fünf sechs", "fr": "x"}, "context": "Knopf", "note": "Hinweis"}\r
  {"de-AT": "sieben \\u00e4cht", "EN": ""}

{"de": "neun zehn", "en": "nine"}
{"source": " ", "target": ""}"""


def test_missing_targets_of_a_document_are_filled() -> None:
    document = read_jsonl_document(DOCUMENT.encode(), "a.jsonl", LANGUAGES)
    found, report = filled(document, backwards)
    assert found.decode() == (
        DOCUMENT.replace('"eins zwei"', '"eins zwei", "target": "zwei eins"')
        .replace("null", '"vier drei"')
        .replace('"fünf sechs"', '"fünf sechs", "en":"sechs fünf"')
        .replace('"EN": ""', '"EN": "ächt sieben"')
    )
    assert report.kept == {"translated already": 1, "an empty source": 1}
    assert (document.segments[2].context, document.segments[2].notes) == ("Knopf", ("Hinweis",))
    escaped = b'{"source": "\\u00e4 b"}'
    assert filled(read_jsonl_document(escaped, "a", LANGUAGES), backwards)[0] == (
        b'{"source": "\\u00e4 b", "target": "b \\u00e4"}'
    )


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.text(max_size=4), values, max_size=4),
    st.text(),
    st.booleans(),
    st.sampled_from([None, (",", ":"), (" , ", " : ")]),
)
def test_a_document_keeps_all_other_members(
    others: dict[str, Any], text: str, escapes: bool, separators: tuple[str, str] | None
) -> None:
    others = {key: value for key, value in others.items() if not LANGUAGES.match(key)}
    record = {**others, "source": f"wort {text}"}
    line = json.dumps(record, ensure_ascii=escapes, separators=separators)
    found, report = filled(read_jsonl_document(line.encode(), "a", LANGUAGES), lambda texts: ["neu"] * len(texts))
    result = json.loads(found)
    assert result.pop("target", None) is not None or report.failed
    assert result == record


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not valid JSON"),
        ("[]", "a JSON list where an object must be"),
        ('{"a": 1} {}', "something follows the object"),
        ('{"a": 1}', "no 'de' side; the keys found are: 'a'"),
        ('{"source": 1}', "the source must be a string"),
        ('{"source": "a", "target": 1}', "the source must be a string"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_errors_in_a_document_name_the_line(line: str, what: str) -> None:
    with pytest.raises(TextError, match=r"a\.jsonl, line 2: ") as error:
        read_jsonl_document(f'{{"source": "x"}}\n{line}'.encode(), "a.jsonl", LANGUAGES)
    assert what in str(error.value)
