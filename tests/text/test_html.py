"""HTML documents."""

from __future__ import annotations

import pytest

from ibidem.text.html import read_html_document

from .samples import filled
from .translators import backwards, shout


def translated(text: str, codec: str = "utf-8") -> str:
    written, report = filled(read_html_document(text.encode(codec), "a.html"), shout)
    assert report.failed == []
    return written.decode(codec)


def test_blocks_values_and_what_stays() -> None:
    page = (
        '<!doctype html>\n<html lang="de"><head><title>der titel</title><meta name="description" content="über uns">'
        '<meta name="viewport" content="width"><style>p { color: red }</style>'
        '<script>var text = "bleibt";</script></head>'
        '<body><!-- kommentar --><p class="x">ein <b>wort</b> &amp; mehr</p><img alt="ein bild" src="a.png">'
        '<input placeholder="suche hier"><input type="submit" value="los jetzt"><input type="text" value="bleibt">'
        '<p translate="no">bleibt</p><pre>bleibt</pre></body></html>\n'
    )
    expected = page
    for word in ("der titel", "über uns", "ein <b>wort</b> ", " mehr", "ein bild", "suche hier", "los jetzt"):
        expected = expected.replace(word, word.upper().replace("<B>", "<b>").replace("</B>", "</b>"))
    assert translated(page) == expected


def test_the_declared_encoding_is_used() -> None:
    page = '<meta charset="iso-8859-1"><p>größe</p>'
    assert translated(page, "latin-1") == page.replace("größe", "GRÖSSE")
    document = read_html_document(page.encode("latin-1"), "a.html")
    written, _ = filled(document, lambda texts: [f"{text} €" for text in texts])
    assert written.decode("latin-1") == page.replace("größe", "größe &#8364;")


@pytest.mark.parametrize(
    "page", ["", "<", "<p", "<p>text", "a<b", "<!--", "<script>", "&#99999999999;x", "<p>" * 5_000]
)
def test_malformed_pages(page: str) -> None:
    filled(read_html_document(page.encode(), "a.html"), backwards)


@pytest.mark.parametrize("inner", ["<svg/>", '<svg width="1"/>', "<svg />", "<svg>x</svg>", "<svg/><svg></svg>"])
def test_an_element_inside_an_untranslated_one_of_its_name(inner: str) -> None:
    page = f"<svg>{inner}<p>bleibt</p></svg><p>wort</p>"
    assert translated(page) == page.replace("wort", "WORT")
