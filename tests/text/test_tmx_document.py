"""TMX as a document: missing variants are added, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.document import FillSettings
from ibidem.text.language import Languages
from ibidem.text.tmx import read_tmx_document

from .samples import STYLES, Style, content, filled, find_all, masked, parse, styles, texts
from .translators import backwards

LANGUAGES = Languages("de", "en")
TARGET = r"""\s*<(?:[\w.-]+:)?tuv (?:xml:)?lang=["'](?:en|EN)[^>]*>.*?</(?:[\w.-]+:)?tuv>"""


def document(*units: str, style: Style = STYLES[0]) -> bytes:
    colon = f' xmlns:{style.prefix[:-1]}="urn:x"' if style.prefix else ""
    return style.write(
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd">' if not style.prefix else "<!-- none -->",
        f'<@tmx version="1.4"{colon}><@header srclang="de"/><@body>',
        *(style.at(1, line) for unit in units for line in unit.split("\n")),
        "</@body></@tmx>",
    )


def unit(source: str, target: str = "") -> str:
    variant = f'<@tuv xml:lang="de-AT">\n    <@seg>{source}</@seg>\n  </@tuv>'
    return f'<@tu tuid="7">\n  <@note>Hinweis</@note>\n  {variant}{target}\n</@tu>'


def translate(*units: str, style: Style = STYLES[0], how=backwards, fill_settings: FillSettings | None = None):
    data = document(*units, style=style)
    found, report = filled(read_tmx_document(data, "a.tmx", LANGUAGES), how, fill_settings)
    assert masked(found, style.codec, TARGET) == masked(data, style.codec, TARGET)
    return found, [[content(seg) for seg in find_all(part, "seg")] for part in find_all(parse(found), "tu")], report


EMPTY = '\n  <@tuv xml:lang="en">\n    <@seg></@seg>\n  </@tuv>'


@settings(max_examples=100, deadline=None)
@given(styles, st.lists(st.tuples(texts, st.sampled_from(["", EMPTY])), max_size=4))
def test_only_target_variants_change(style: Style, units: list[tuple[str, str]]) -> None:
    _, found, report = translate(*(unit(*part) for part in units), style=style, how=list)
    assert (report.translated, report.kept, report.failed) == (len(units), {}, [])
    assert all(len(sides) == 2 and sides[0].split() == sides[1].split() for sides in found)


@pytest.mark.parametrize("style", STYLES)
def test_a_new_variant_is_indented_like_the_other(style: Style) -> None:
    found, _, _ = translate(unit("eins <@hi>zwei</@hi> drei"), style=style, how=list)
    start = f"{style.newline}{style.indent}  "
    segment = f"{start}  <@seg>eins <@hi>zwei</@hi> drei</@seg>"
    expected = f'{start}<@tuv xml:lang="en" creationtool="ibidem">{segment}{start}</@tuv>'
    assert expected.replace("@", style.prefix) in found.decode(style.codec)


def test_codes_targets_and_tags() -> None:
    coded = 'vor <@bpt i="1">&lt;b></@bpt>fett<@ept i="1">&lt;/b></@ept> <@ph>{0}</@ph> nach'
    existing = '<@tuv xml:lang="EN-GB"><@seg>one</@seg></@tuv>'
    found, sides, report = translate(
        unit(coded), unit("eins zwei", existing), unit("eins", '<@tuv xml:lang="en"><@seg/></@tuv>')
    )
    assert sides[0][1].count('<bpt i="1">&lt;b&gt;</bpt>fett<ept i="1">&lt;/b&gt;</ept>') == 1
    assert sides[1][1:] == ["one"]
    assert sides[2][1:] == ["eins"]
    assert report.kept == {"translated already": 1}
    assert b'<tuv xml:lang="en" creationtool="ibidem">' in found  # the last spelling seen
    _, sides, _ = translate(unit("eins zwei", existing), fill_settings=FillSettings(overwrite=True))
    assert sides[0][1:] == ["zwei eins"]


def test_a_file_in_other_languages_is_refused() -> None:
    data = document('<@tu><@tuv xml:lang="fr"><@seg>a</@seg></@tuv><@tuv lang="it"><@seg>b</@seg></@tuv></@tu>')
    with pytest.raises(TextError, match=r"no unit is in 'de', .* the languages found are 'fr', 'it'"):
        read_tmx_document(data, "a.tmx", LANGUAGES)
    assert read_tmx_document(document(), "a.tmx", LANGUAGES).segments == []
    with pytest.raises(TextError, match="line 1: <html> where <tmx> must be"):
        read_tmx_document(b"<html/>", "a.tmx", LANGUAGES)


@pytest.mark.parametrize("tag", ['en-"x', "en-<x>", "en-a&b", "en-a\tb"])
def test_the_language_tag_of_a_new_variant_is_escaped(tag: str) -> None:
    """The tag of the other units is used, and a file may have any characters in it."""
    written = tag.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;").replace("\t", "&#9;")
    other = f'<@tu><@tuv xml:lang="de"><@seg>eins</@seg></@tuv><@tuv xml:lang="{written}"><@seg>x</@seg></@tuv></@tu>'
    found, report = filled(read_tmx_document(document(other, unit("zwei")), "a.tmx", LANGUAGES), list)
    assert report.translated == 1
    tags = [variant.get("{http://www.w3.org/XML/1998/namespace}lang") for variant in find_all(parse(found), "tuv")]
    assert tags == ["de", tag, "de-AT", tag]
