"""Encoding of texts and editing of tags in XML documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.text.markup import XmlFile, open_and_close, set_attribute, sibling_tag
from ibidem.text.xml import read_tokens

from .samples import STYLES, Style


@given(st.text(), st.sampled_from(STYLES))
def test_what_is_written_is_read(text: str, style: Style) -> None:
    xml = XmlFile(style.write("<a/>"))
    try:
        written = xml.encode_pieces((text,))
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
    assert (
        sibling_tag('<x:source id="1" xmlns:y="u" xmlns = \'v\'>', "target") == "<x:target xmlns:y=\"u\" xmlns = 'v'>"
    )
