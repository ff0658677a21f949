"""Tokens know their bytes, and hostile XML is refused."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.documents import markup
from ibidem.text.documents.markup import Kind, Xml, open_and_close, read_tokens, set_attribute, sibling
from ibidem.text.documents.xliff import read_xliff
from ibidem.text.limits import LONGEST

from .samples import STYLES, Style

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE a SYSTEM "x.dtd" [<!ELEMENT a ANY>]>\n<a b="1" >\n'
    "<x/><y></y><z k='&gt;>'>t&amp;&#228;ö\r\n</z><!-- - --><?pi ?>"
    "<![CDATA[<q>]]>&lt;<n:o xmlns:n='u'/></a>\n <!-- e -->"
)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("block", [1, 7, 2**16])
def test_tokens_are_the_file(style: Style, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "BLOCK", block)
    data = TEXT.replace("UTF-8", style.encoding).encode(style.codec, "xmlcharrefreplace")
    tokens = list(read_tokens(data, "a"))
    xml = Xml(data)
    start = data.index("<".encode(xml.codec))
    assert data[:start] + b"".join(data[token.start : token.end] for token in tokens) == data
    tags = [(token.kind, token.name, xml.raw(token.start, token.end)) for token in tokens if token.name]
    assert tags == [
        (Kind.START, "a", '<a b="1" >'),
        (Kind.START, "x", "<x/>"),
        (Kind.END, "x", ""),
        (Kind.START, "y", "<y>"),
        (Kind.END, "y", "</y>"),
        (Kind.START, "z", "<z k='&gt;>'>"),
        (Kind.END, "z", "</z>"),
        (Kind.START, "u o", "<n:o xmlns:n='u'/>"),
        (Kind.END, "u o", ""),
        (Kind.END, "a", "</a>"),
    ]
    assert "".join(token.text for token in tokens) == "\nt&äö\n<q><"


@given(st.text(), st.sampled_from(STYLES))
def test_what_is_written_is_read(text: str, style: Style) -> None:
    xml = Xml(style.write("<a/>"))
    try:
        written = xml.write((text,))
    except ValueError:
        assert any(character < " " or character > "\ud7ff" for character in text)
        return
    data = style.write("<a>|</a>").replace("|".encode(xml.codec), written)
    assert "".join(token.text for token in read_tokens(data, "a")) == text


@pytest.mark.parametrize(
    ("tag", "name", "value", "found"),
    [
        ("<t>", "s", "new", '<t s="new">'),
        ("<t />", "s", "new", '<t s="new" />'),
        ("<t a='x' s = 'old' b=\"s='y'\">", "s", "new", "<t a='x' s = \"new\" b=\"s='y'\">"),
        ("<t\n  s='old'\n/>", "s", None, "<t\n/>"),
        ("<t x:s='old'>", "s", "new", "<t x:s='old' s=\"new\">"),
        ("<t>", "s", None, "<t>"),
    ],
)
def test_attributes_are_set_in_their_place(tag: str, name: str, value: str | None, found: str) -> None:
    assert set_attribute(tag, name, value) == found


def test_tags_of_new_elements() -> None:
    assert open_and_close("<x:t a='/' />") == ("<x:t a='/'>", "</x:t>")
    assert open_and_close("<t>") == ("<t>", "</t>")
    assert sibling('<x:source id="1" xmlns:y="u" xmlns = \'v\'>', "target") == "<x:target xmlns:y=\"u\" xmlns = 'v'>"


def test_entities_are_refused(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("CANARY")
    unit = "<trans-unit><source>{}</source></trans-unit>"
    body = f"<xliff version='1.2'><file source-language='de'><body>{unit}</body></file></xliff>"
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    for declaration, text in (
        (f'[<!ENTITY x SYSTEM "{canary.as_uri()}">]', "&x;"),
        (f'[<!ENTITY % x SYSTEM "{canary.as_uri()}"> %x;]', "a"),
        ('[<!ENTITY x "text">]', "&x;"),
        (f'[<!ENTITY x "ha">{laughs}]', "&l11;"),
        (f'SYSTEM "{canary.as_uri()}"', "&x;"),
    ):
        data = f"<!DOCTYPE xliff {declaration}>\n{body.format(text)}".encode()
        with pytest.raises(TextError, match=r"a.xlf, line [12]: the entity 'x' is refused") as error:
            read_xliff(data, "a.xlf", "en")
        assert "CANARY" not in str(error.value)
    for name in ("lt", "gt", "amp", "quot", "apos"):
        assert read_xliff(body.format(f"&{name};").encode(), "a.xlf", "en").segments


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "line 1: not well-formed XML (no element found)"),
        (b"<xliff version='1.2'><file>\n</xliff>", "line 2: not well-formed XML (mismatched tag)"),
        (b"<xliff version='1.2'>\n\xff</xliff>", "line 2: byte 0xFF is not UTF-8"),
        (b"<?xml version='1.0' encoding='shift_jis'?><xliff/>", "Convert the file to UTF-8"),
        (b"<?xml version='1.0' encoding='nonsense'?><xliff/>", "Convert the file to UTF-8"),
        (b"<xliff version='1.2'><x:y/></xliff>", "line 1: not well-formed XML (unbound prefix)"),
        (b"<xliff version='3.0'/>", "XLIFF '3.0' where"),
        (b"<xliff/>", "XLIFF '' where"),
        (b"<html/>", "line 1: <html> where <xliff"),
        (b"plain text", "line 1: not well-formed XML (syntax error)"),
    ],
)
def test_what_is_no_xliff_is_named_with_its_line(data: bytes, what: str) -> None:
    with pytest.raises(TextError) as error:
        read_xliff(data, "a.xlf", "en")
    assert str(error.value).startswith("a.xlf, line")
    assert what in str(error.value)


def test_a_tag_without_end_is_refused() -> None:
    data = b"<xliff version='1.2' x='" + b"x" * (LONGEST + 2**18)
    with pytest.raises(TextError, match="a tag longer than"):
        read_xliff(data, "a.xlf", "en")


def test_deep_nesting_is_read_like_any_other() -> None:
    deep = "<g>" * 200 + "x" + "</g>" * 200
    for place in ("<source>{}</source>", "<note>{}</note><source>a</source>"):
        unit = f"<trans-unit>{place.format(deep)}</trans-unit>"
        data = f"<xliff version='1.2'><file><body>{unit}</body></file></xliff>".encode()
        [segment] = read_xliff(data, "a.xlf", "en").segments
        assert segment.location == 1


def test_memory_is_a_small_multiple_of_the_file() -> None:
    unit = "<trans-unit id='1'>\n<source>Ein Satz von einiger Länge, wie er vorkommt.</source>\n</trans-unit>\n"
    data = f"<xliff version='1.2'><file source-language='de'><body>{unit * 2_000}</body></file></xliff>".encode()
    tracemalloc.start()
    try:
        document = read_xliff(data, "a.xlf", "en")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(document.segments) == 2_000
    assert peak < 20 * len(data)
