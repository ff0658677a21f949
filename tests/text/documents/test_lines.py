"""TSV, JSONL and plain text as documents."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.documents import FillSettings
from ibidem.text.documents.jsonl import read_jsonl_document
from ibidem.text.documents.plain import read_plain
from ibidem.text.documents.tsv import read_tsv_document
from ibidem.text.language import Languages
from ibidem.text.limits import LONGEST

from ..inline.translators import backwards, silence
from .samples import filled

LANGUAGES = Languages("de", "en")


def test_tsv() -> None:
    text = "eins zwei\ndrei vier\t\r\n\nfünf sechs\tfive\n\tnichts\nsieben acht"
    found, report = filled(read_tsv_document(text.encode(), "a.tsv"), backwards)
    assert (
        found.decode()
        == "eins zwei\tzwei eins\ndrei vier\tvier drei\r\n\nfünf sechs\tfive\n\tnichts\nsieben acht\tacht sieben"
    )
    assert report.kept == {"an empty source": 2, "translated already": 1}
    found, _ = filled(read_tsv_document(text.encode(), "a.tsv"), backwards, FillSettings(overwrite=True))
    assert "fünf sechs\tsechs fünf\n" in found.decode()
    assert filled(read_tsv_document(text.encode(), "a.tsv"), silence)[0].decode() == text
    with pytest.raises(TextError, match=r"a\.tsv, line 2: 3 columns where there must be 1 or 2"):
        read_tsv_document(b"a\tb\nc\td\te", "a.tsv")


def test_plain_text_keeps_its_lines() -> None:
    text = "\ufeffeins %s zwei\r\n\r\n  drei vier \nfünf {x} sechs"
    found, report = filled(read_plain(text.encode(), "a.txt"), backwards)
    assert found.decode() == "\ufeffzwei %s eins\r\n\r\n  vier drei \nsechs {x} fünf"
    assert report.kept == {"a blank line": 1}
    # There is no other place for a translation, so a line without one is empty.
    found, report = filled(read_plain(text.encode(), "a.txt"), silence)
    assert found.decode() == "\ufeff\r\n\r\n\n"
    assert [failure.line for failure in report.failed] == [1, 3, 4]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)))
def test_any_lines_keep_their_number(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    found, _ = filled(read_plain(data, "a.txt"), backwards)
    assert found.count(b"\n") == data.count(b"\n")


JSON = """\
{"source": "eins zwei", "id": 3}
{"id":[{"source":"no"}],"target":null , "source" : "drei vier"}
{"translation": {"de":"fünf sechs", "fr": "x"}, "context": "Knopf", "note": "Hinweis"}\r
  {"de-AT": "sieben \\u00e4cht", "EN": ""}

{"de": "neun zehn", "en": "nine"}
{"source": " ", "target": ""}"""


def test_jsonl() -> None:
    document = read_jsonl_document(JSON.encode(), "a.jsonl", LANGUAGES)
    found, report = filled(document, backwards)
    assert found.decode() == (
        JSON.replace('"eins zwei"', '"eins zwei", "target": "zwei eins"')
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
def test_any_json_keeps_all_else(others: dict, text: str, escapes: bool, separators: tuple[str, str] | None) -> None:
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
        ("[" * 100_000, ""),
    ],
)
def test_bad_json_is_named_with_its_line(line: str, what: str) -> None:
    with pytest.raises(TextError, match=r"a\.jsonl, line 2: ") as error:
        read_jsonl_document(f'{{"source": "x"}}\n{line}'.encode(), "a.jsonl", LANGUAGES)
    assert what in str(error.value)


def test_bytes_and_lengths_are_checked() -> None:
    for read in (read_plain, read_tsv_document):
        with pytest.raises(TextError, match="a, line 2: byte 0xFF is not UTF-8"):
            read(b"a\n\xff\n", "a")
        with pytest.raises(TextError, match="a, line 1: longer than"):
            read(b"a" * (LONGEST + 1), "a")
