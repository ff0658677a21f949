"""XLIFF 2.x as a document, in several encodings and styles of XML."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.text.document import FillSettings
from ibidem.text.inline import Code, Role
from ibidem.text.xliff import read_xliff_document

from .samples import STYLES, Style, content, filled, find_all, masked, parse, styles, texts
from .translators import backwards, strip_codes

TARGET = r"\s*<(?:[\w.-]+:)?target\b(?:[^>]*/>|.*?</(?:[\w.-]+:)?target\s*>)"
STATE = r"""(?<=segment)((?:\s+\w+\s*=\s*"[^"]*")*?)\s+(?:state|subState)\s*=\s*"[^"]*\""""
LANGUAGE = r' trgLang="en"'
MATCHES = "urn:oasis:names:tc:xliff:matches:2.0"
NAMESPACE = "urn:oasis:names:tc:xliff:document:2.0"


def document(*segments: str, style: Style = STYLES[0], languages: str = 'srcLang="de"', unit: str = "") -> bytes:
    colon = style.prefix and f":{style.prefix[:-1]}"
    return style.write(
        f'<@xliff xmlns{colon}="{NAMESPACE}" xmlns:mtc="{MATCHES}" version="2.1" {languages}>',
        style.at(1, '<@file id="f">'),
        style.at(2, f'<@unit id="u" name="Knopf" {unit}>'),
        style.at(
            3, '<mtc:matches><mtc:match ref="#1"><@source>x</@source><@target>y</@target></mtc:match></mtc:matches>'
        ),
        style.at(3, '<@notes><@note>Hinweis</@note></@notes><@originalData><@data id="d">&lt;</@data></@originalData>'),
        *(style.at(3, line) for segment in segments for line in segment.split("\n")),
        style.at(3, "<@ignorable><@source> </@source></@ignorable>"),
        style.at(2, "</@unit>"),
        style.at(1, "</@file>"),
        "</@xliff>",
    )


def segment(source: str, target: str | None = None, attributes: str = "") -> str:
    line = "" if target is None else f"\n  {target}"
    return f"<@segment{attributes}>\n  <@source>{source}</@source>{line}\n</@segment>"


def without_targets(data: bytes, codec: str) -> str:
    text = masked(data, codec, TARGET, LANGUAGE)
    return re.sub(STATE, r"\1", re.sub(STATE, r"\1", text))


def translate(
    *segments: str, style: Style = STYLES[0], how=backwards, fill_settings: FillSettings | None = None, **more
):
    data = document(*segments, style=style, **more)
    found, report = filled(read_xliff_document(data, "a.xlf", "en"), how, fill_settings)
    assert without_targets(found, style.codec) == without_targets(data, style.codec)
    targets = [content(next(iter(find_all(part, "target")), None)) for part in find_all(parse(found), "segment")]
    return found, targets, report


@settings(max_examples=120, deadline=None)
@given(
    styles,
    st.lists(st.tuples(texts, st.sampled_from([None, "<@target/>", "<@target order='2'></@target>"])), max_size=4),
)
def test_only_targets_and_states_change(style: Style, segments: list[tuple[str, str | None]]) -> None:
    found, targets, report = translate(*(segment(*part) for part in segments), style=style, how=list)
    assert (report.translated, report.kept, report.failed) == (len(segments), {}, [])
    sources = [content(part[0]) for part in find_all(parse(found), "segment")]
    assert [target.split() for target in targets] == [source.split() for source in sources]
    root = parse(found)
    assert root.get("trgLang") == ("en" if segments else None)
    assert all(part.get("state") == "translated" for part in find_all(root, "segment"))


def test_states_that_are_kept_and_set() -> None:
    parts = [
        segment("eins zwei", "<@target>one</@target>"),
        segment("eins zwei", "<@target>one</@target>", ' state="reviewed"'),
        segment("eins zwei", "<@target>one</@target>", ' id="s" state="final" subState="x:y"'),
        segment("eins zwei", "<@target/>", ' subState="x:y" id="t" state="initial"'),
        segment("eins zwei", None, ' state="initial"'),
        segment("<@ph id='1'/>"),
    ]
    found, targets, report = translate(*parts, languages='srcLang="de" trgLang="en-US"')
    assert targets == ["one", "one", "one", "zwei eins", "zwei eins", '<ph id="1" />']
    assert report.kept == {"translated already": 1, 'state="reviewed"': 1, 'state="final"': 1}
    assert b'<segment id="t" state="translated">' in found
    assert b'<segment id="s" state="final" subState="x:y">' in found
    assert b'trgLang="en-US"' in found
    _, targets, _ = translate(*parts, fill_settings=FillSettings(overwrite=True))
    assert targets[:3] == ["zwei eins", "one", "one"]
    _, targets, report = translate(*parts, unit='translate="no"')
    assert report.kept == {'translate="no"': 6}


def test_inline_codes_are_codes() -> None:
    source = (
        'a <@ph id="1" dataRef="d"/><@pc id="2" canReorder="firstNo">b</@pc><@sc id="3"/>c<@ec startRef="3"/>'
        '<@ec id="4" isolated="yes"/>'
        '<@mrk id="m" translate="no">Müller</@mrk><@mrk id="n" type="term">d</@mrk><@cp hex="001A"/>'
        '<@sm id="5"/>e<@em startRef="5"/>'
    )
    [found] = read_xliff_document(document(segment(source)), "a.xlf", "en").segments
    codes = [piece for piece in found.source if isinstance(piece, Code)]
    assert [(code.text, code.role, code.fixed) for code in codes] == [
        ('<ph id="1" dataRef="d"/>', Role.SINGLE, False),
        ('<pc id="2" canReorder="firstNo">', Role.OPEN, True),
        ("</pc>", Role.CLOSE, False),
        ('<sc id="3"/>', Role.OPEN, False),
        ('<ec startRef="3"/>', Role.CLOSE, False),
        ('<ec id="4" isolated="yes"/>', Role.CLOSE, False),
        ('<mrk id="m" translate="no">Müller</mrk>', Role.SINGLE, False),
        ('<mrk id="n" type="term">', Role.OPEN, False),
        ("</mrk>", Role.CLOSE, False),
        ('<cp hex="001A"/>', Role.SINGLE, False),
        ('<sm id="5"/>', Role.OPEN, False),
        ('<em startRef="5"/>', Role.CLOSE, False),
    ]
    assert codes[3].pair == codes[4].pair
    assert codes[10].pair == codes[11].pair
    assert len({code.pair for code in codes if code.role == Role.OPEN}) == 4
    assert (found.context, found.notes, found.location) == ("Knopf", ("Hinweis",), 8)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("how", [list, backwards, strip_codes])
def test_codes_are_written_back_unchanged(style: Style, how) -> None:
    first = 'Klicken auf <@ph id="1"  /> für <@pc id="2" dataRefStart="d">das Fenster</@pc>'
    source = f'{first} hier <@sc id="3"/>oben<@ec startRef="3"/>'
    found, [target], _ = translate(segment(source), style=style, how=how)
    text = found.decode(style.codec)
    inside = text[text.index('state="translated"') :].partition(f"</{style.prefix}target>")[0].partition("target>")[2]
    for code in ('<@ph id="1"  />', '<@pc id="2" dataRefStart="d">', "</@pc>", '<@sc id="3"/>', '<@ec startRef="3"/>'):
        assert inside.count(code.replace("@", style.prefix)) == 1
    assert "das" in target


def test_the_root_declares_the_languages() -> None:
    languages = read_xliff_document(document(languages='srcLang="de" trgLang="fr"'), "a.xlf", "en").languages
    assert [(language.is_target, language.tag, language.line) for language in languages] == [
        (False, "de", 2),
        (True, "fr", 2),
    ]
