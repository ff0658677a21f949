"""Markup: all tags are kept, whatever the translator returns."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ibidem.serve.markup import count_blocks, translate_markup

if TYPE_CHECKING:
    from .conftest import Client

TAG = re.compile(r"</?[a-z][^<>]*>")


def shout(lines: list[str]) -> list[str]:
    return [line.upper() for line in lines]


def lose_tags(lines: list[str]) -> list[str]:
    """Translate every line to a text without its tags."""
    return ["lorem ipsum" for _ in lines]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('<p class="green">Hallo!</p>', '<p class="green">HALLO!</p>'),
        ("<p>Eins <b>zwei</b> drei</p>", "<p>EINS <b>ZWEI</b> DREI</p>"),
        ("Eins &amp; zwei &lt; drei", "EINS &amp; ZWEI &lt; DREI"),
        ('<a href="?a=1&amp;b=2">Eins</a>', '<a href="?a=1&amp;b=2">EINS</a>'),
        ("<ul>\n  <li>Eins</li>\n  <li>Zwei</li>\n</ul>", "<ul>\n  <li>EINS</li>\n  <li>ZWEI</li>\n</ul>"),
        ("Eins<br>Zwei<br/>Drei", "EINS<br>ZWEI<br/>DREI"),
        ("<p>Ruf <code>ls -l</code> auf</p>", "<p>RUF <code>ls -l</code> AUF</p>"),
        ("<script>if (a < b) hallo()</script><p>Eins</p>", "<script>if (a < b) hallo()</script><p>EINS</p>"),
        ("<!-- eins -->Zwei", "<!-- eins -->ZWEI"),
        ('<i translate="no">eins <i>zwei</i></i> drei', '<i translate="no">eins <i>zwei</i></i> DREI'),
        ('<span class="x notranslate">eins</span> zwei', '<span class="x notranslate">eins</span> ZWEI'),
        ("<p>offen <b>und nie zu", "<p>OFFEN <b>UND NIE ZU"),
        ("1 < 2", "1 < 2"),
        ("<td>12</td>", "<td>12</td>"),
        ("", ""),
    ],
)
def test_documents(document: str, expected: str) -> None:
    assert translate_markup([document], shout) == [expected]


PIECES = st.sampled_from(
    [
        "Eins",
        " zwei ",
        "<b>",
        "</b>",
        "<p>",
        "</p>",
        "<br>",
        "&amp;",
        "<",
        ">",
        "&",
        '"',
        "<a href='x'>",
        "</a>",
        "3",
        "\n",
        "<code>",
        "</code>",
        "<!--",
        "-->",
        "<i/>",
        "%s",
        "{0}",
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_tags_are_kept_for_any_translation(document: str) -> None:
    for translate in (shout, lose_tags):
        (answer,) = translate_markup([document], translate)
        assert sorted(TAG.findall(answer)) == sorted(TAG.findall(document))


@given(st.lists(PIECES, max_size=12).map("".join))
@example("Eins zwei &amp;Eins")
def test_identity_translation_keeps_the_text(document: str) -> None:
    import html

    (answer,) = translate_markup([document], list)
    assert html.unescape(answer).split() == html.unescape(document).split()


@pytest.mark.parametrize("piece", ['<a "', "<a ", "<", "<!--", "<code>", "<![CDATA[", "<b>x</b>", "&amp", "<span>"])
def test_hostile_documents_take_linear_time(piece: str) -> None:
    began = time.process_time()
    translate_markup([piece * (20_000 // len(piece))], shout)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("piece", ["<!", "<?", "<![", "<!DOCTYPE "])
def test_unclosed_declarations_take_linear_time(piece: str) -> None:
    """Searching the rest again after each declaration would take quadratic time."""
    began = time.process_time()
    assert count_blocks(piece * (200_000 // len(piece))) == 0
    assert time.process_time() - began < 5
    assert translate_markup(["Eins <!x", "Eins <?x> zwei"], shout) == ["EINS <!x", "EINS <?x> ZWEI"]


@pytest.mark.parametrize("digits", ["9" * 19_000, "0" * 19_000 + "65", "0" * 19_000, "99999999", "00000065"])
def test_character_references_of_many_digits(digits: str) -> None:
    character = "A" if digits.endswith("65") else "\ufffd"
    assert translate_markup([f"Eins &#{digits}; zwei"], shout) == [f"EINS {character} ZWEI"]


def test_over_http(client: Client) -> None:
    document = "<p>Die Datei <b>wurde</b> gespeichert.</p>"
    plain = client.post("/translate", {"q": "Die Datei wurde gespeichert.", "source": "de", "target": "en"}).json
    found = client.post("/translate", {"q": [document, "Datei"], "format": "html", "source": "de", "target": "en"})
    assert found.status == 200
    assert TAG.findall(found.json["translatedText"][0]) == TAG.findall(document)
    assert TAG.sub("", found.json["translatedText"][0]) != document
    assert plain["translatedText"]
    deepl = client.post("/v2/translate", {"text": [document], "target_lang": "EN", "tag_handling": "xml"})
    assert deepl.json["translations"][0]["text"] == found.json["translatedText"][0]
    for more in ({"alternatives": 1}, {"explain": True}):
        assert client.post("/translate", {"q": document, "format": "html", **more}).status == 400
    many = "<p>a</p>" * 41
    assert count_blocks(many) == 41
    assert "41 lines" in client.post("/translate", {"q": many, "format": "html"}).json["error"]
