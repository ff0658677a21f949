"""Tokens with their byte positions, and XML that is refused."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError
from ibidem.text import xml as xml_module
from ibidem.text.markup import XmlFile
from ibidem.text.stream import MAX_TEXT
from ibidem.text.xliff import read_xliff_document
from ibidem.text.xml import Kind, read_tokens

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
    monkeypatch.setattr(xml_module, "BLOCK_BYTES", block)
    data = TEXT.replace("UTF-8", style.encoding).encode(style.codec, "xmlcharrefreplace")
    tokens = list(read_tokens(data, "a"))
    xml = XmlFile(data)
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
            read_xliff_document(data, "a.xlf", "en")
        assert "CANARY" not in str(error.value)
    for name in ("lt", "gt", "amp", "quot", "apos"):
        assert read_xliff_document(body.format(f"&{name};").encode(), "a.xlf", "en").segments


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
def test_errors_name_the_line(data: bytes, what: str) -> None:
    with pytest.raises(TextError) as error:
        read_xliff_document(data, "a.xlf", "en")
    assert str(error.value).startswith("a.xlf, line")
    assert what in str(error.value)


def test_a_tag_without_end_is_refused() -> None:
    data = b"<xliff version='1.2' x='" + b"x" * (MAX_TEXT + 2**18)
    with pytest.raises(TextError, match="a tag longer than"):
        read_xliff_document(data, "a.xlf", "en")


def test_deep_nesting_is_read() -> None:
    deep = "<g>" * 200 + "x" + "</g>" * 200
    for place in ("<source>{}</source>", "<note>{}</note><source>a</source>"):
        unit = f"<trans-unit>{place.format(deep)}</trans-unit>"
        data = f"<xliff version='1.2'><file><body>{unit}</body></file></xliff>".encode()
        [segment] = read_xliff_document(data, "a.xlf", "en").segments
        assert segment.location == 1


def test_memory_is_a_small_multiple_of_the_file() -> None:
    unit = "<trans-unit id='1'>\n<source>Ein Satz von einiger Länge, wie er vorkommt.</source>\n</trans-unit>\n"
    data = f"<xliff version='1.2'><file source-language='de'><body>{unit * 2_000}</body></file></xliff>".encode()
    tracemalloc.start()
    try:
        document = read_xliff_document(data, "a.xlf", "en")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(document.segments) == 2_000
    assert peak < 20 * len(data)
