"""XLIFF 1.2 as a document, in several encodings and styles of XML."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.text.document import FillSettings, State
from ibidem.text.inline import Code, Role
from ibidem.text.xliff import read_xliff_document

from .samples import STYLES, Style, content, filled, find_all, masked, parse, styles, texts
from .translators import backwards, return_empty, strip_codes

TARGET = r"\s*<(?:[\w.-]+:)?target\b(?:[^>]*/>|.*?</(?:[\w.-]+:)?target\s*>)"
YES = 'translate="yes"'
NAMESPACE = "urn:oasis:names:tc:xliff:document:1.2"


def document(*units: str, style: Style = STYLES[0], target_language: str | None = "en") -> bytes:
    colon = style.prefix and f":{style.prefix[:-1]}"
    named = f' target-language="{target_language}"' if target_language else ""
    return style.write(
        f'<@xliff version="1.2" xmlns{colon}="{NAMESPACE}" xmlns:own="urn:own">',
        style.at(1, f'<@file original="a &gt; b" source-language="de-DE"{named} datatype="plaintext">'),
        style.at(2, "<?tool some?><@body><!-- <target>no</target> -->"),
        *(style.at(3, line) for unit in units for line in unit.split("\n")),
        style.at(2, "</@body>"),
        style.at(1, "</@file>"),
        "</@xliff>",
    )


def unit(source: str, target: str | None = None, attributes: str = "", id: int = 1) -> str:
    line = "" if target is None else f"\n  {target}"
    inside = f"<@source>{source}</@source>{line}\n  <@note>Hinweis</@note>"
    return f'<@trans-unit id="{id}" {attributes}>\n  {inside}\n</@trans-unit>'


def translate(*units: str, style: Style = STYLES[0], how=backwards, fill_settings: FillSettings | None = None):
    """The file with targets, checked byte for byte outside them; its targets, and the report."""
    data = document(*units, style=style)
    found, report = filled(read_xliff_document(data, "a.xlf", "en"), how, fill_settings)
    assert masked(found, style.codec, TARGET) == masked(data, style.codec, TARGET)
    targets = [content(next(iter(find_all(unit, "target")), None)) for unit in find_all(parse(found), "trans-unit")]
    return found, targets, report


@settings(max_examples=120, deadline=None)
@given(styles, st.lists(st.tuples(texts, st.sampled_from([None, "<@target/>", "<@target></@target>"])), max_size=4))
def test_only_targets_change(style: Style, units: list[tuple[str, str | None]]) -> None:
    written = [unit(source, target, id=number) for number, (source, target) in enumerate(units)]
    found, targets, report = translate(*written, style=style, how=list)
    assert (report.translated, report.kept, report.failed) == (len(units), {}, [])
    sources = [content(source) for source in find_all(parse(found), "source")]
    assert [target.split() for target in targets] == [source.split() for source in sources]


@pytest.mark.parametrize("style", STYLES)
def test_a_missing_target_is_added_below_its_source(style: Style) -> None:
    found, targets, _ = translate(unit("eins &lt;b>zwei&lt;/b>"), style=style, how=lambda _: ["<b>žwei</b> € & x"])
    codec = style.codec.removesuffix("-sig")
    escaped = "&lt;b&gt;žwei&lt;/b&gt; € &amp; x".encode(codec, "xmlcharrefreplace").decode(codec)
    expected = (
        f"</{style.prefix}source>{style.newline}{style.indent * 3}  <{style.prefix}target "
        f'state="needs-review-translation" state-qualifier="leveraged-mt">'
        f"{escaped}</{style.prefix}target>{style.newline}"
    )
    assert expected in found.decode(style.codec)
    assert targets == ["&lt;b&gt;žwei&lt;/b&gt; € &amp; x"]


def test_units_on_one_line_stay_on_it() -> None:
    unit = b"<trans-unit><source>a b</source></trans-unit>"
    data = b'<xliff version="1.2"><file source-language="de"><body>' + unit + b"</body></file></xliff>"
    found, _ = filled(read_xliff_document(data, "a.xlf", "en"), backwards)
    assert b'<source>a b</source><target xml:lang="en" state="needs-review' in found
    assert b">b a</target></trans-unit>" in found


def test_states_that_are_kept_and_set() -> None:
    units = [
        unit("eins zwei", "<@target>one two</@target>"),
        unit("eins zwei", "<@target>one</@target>", 'approved="yes"'),
        unit("eins zwei", '<@target state="final">one</@target>'),
        unit("eins zwei", None, 'translate="no"'),
        f"<@group translate='no'>{unit('eins zwei')}{unit('drei vier', None, YES)}</@group>",
        unit("eins zwei", '<@target state="new" own:x="1"  />'),
        unit("eins zwei", "<@target state = 'needs-translation' >eins zwei</@target >"),
        unit("eins zwei", '<@target state="needs-translation">ein Anfang</@target>'),
        unit(" "),
    ]
    found, targets, report = translate(*units)
    assert targets == ["one two", "one", "one", "", "", "vier drei", "zwei eins", "zwei eins", "ein Anfang", ""]
    assert report.kept == {
        "translated already": 2,
        'approved="yes"': 1,
        'state="final"': 1,
        'translate="no"': 2,
        "an empty source": 1,
    }
    assert found.count(b"leveraged-mt") == found.count(b"needs-review-translation") == report.translated == 3
    assert b'<target state="needs-review-translation" own:x="1" state-qualifier="leveraged-mt">' in found
    _, targets, report = translate(*units, fill_settings=FillSettings(overwrite=True))
    assert targets == ["zwei eins", "one", "one", "", "", "vier drei", *["zwei eins"] * 3, ""]


def test_inline_codes_are_codes() -> None:
    source = (
        'a <@x id="1"/><@g id="2">b<@x id="3"/></@g> <@bpt id="4">&lt;i></@bpt>c<@ept id="4">&lt;/i></@ept> '
        '<@ph id="5">{n}</@ph><@it id="6" pos="open">(</@it><@mrk mtype="protected">Müller</@mrk><?pi x?><@bx id="7"/>'
        'd<@ex id="8" rid="7"/><own:y>e</own:y>'
    )
    [segment] = read_xliff_document(document(unit(source)), "a.xlf", "en").segments
    shown = [piece if isinstance(piece, str) else (piece.text, piece.role) for piece in segment.source]
    assert shown == [
        "a ",
        ('<x id="1"/>', Role.SINGLE),
        ('<g id="2">', Role.OPEN),
        "b",
        ('<x id="3"/>', Role.SINGLE),
        ("</g>", Role.CLOSE),
        " ",
        ('<bpt id="4">&lt;i></bpt>', Role.OPEN),
        "c",
        ('<ept id="4">&lt;/i></ept>', Role.CLOSE),
        " ",
        ('<ph id="5">{n}</ph>', Role.SINGLE),
        ('<it id="6" pos="open">(</it>', Role.OPEN),
        ('<mrk mtype="protected">Müller</mrk>', Role.SINGLE),
        ("<?pi x?>", Role.SINGLE),
        ('<bx id="7"/>', Role.OPEN),
        "d",
        ('<ex id="8" rid="7"/>', Role.CLOSE),
        ("<own:y>", Role.OPEN),
        "e",
        ("</own:y>", Role.CLOSE),
    ]
    pairs = [piece.pair for piece in segment.source if isinstance(piece, Code) and piece.role != Role.SINGLE]
    assert len(set(pairs)) == 5  # g, bpt and ept, it alone, bx and ex, own:y


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("how", [list, backwards, strip_codes])
def test_codes_are_written_back_unchanged(style: Style, how) -> None:
    source = 'Klicken auf <@x id="1" own:a=\'"\' /> für <@g id="2">das Fenster</@g> hier <@ph id="3">&amp;amp;</@ph>'
    found, [target], _ = translate(unit(source), style=style, how=how)
    text = found.decode(style.codec)
    inside = text[text.index("leveraged-mt") :].partition(f"</{style.prefix}target>")[0]
    for code in ('<@x id="1" own:a=\'"\' />', '<@g id="2">', "</@g>", '<@ph id="3">&amp;amp;</@ph>'):
        assert inside.count(code.replace("@", style.prefix)) == 1
    assert "das" in target


def test_missing_codes_are_a_failure_without_a_target() -> None:
    found, targets, report = translate(unit("eins <@g id='1'>zwei</@g>"), unit("drei vier", id=2), how=return_empty)
    assert targets == ["", ""]
    assert [(failure.line, failure.source) for failure in report.failed] == [(6, "eins zwei"), (10, "drei vier")]
    assert b"leveraged" not in found
    _, targets, report = translate(unit("eins <@ph>x<@sub>zwei</@sub></@ph> drei"), how=list)
    assert targets == [""]
    assert "<sub>" in report.failed[0].reason


def test_alternatives_and_foreign_elements_stay() -> None:
    written = (
        "<@trans-unit id='1'>\n<own:source>x</own:source><@source>a b</@source>\n"
        "<@alt-trans><@source>c d</@source><@target>e f</@target></@alt-trans>\n"
        "<own:target>y</own:target></@trans-unit>"
    )
    data = document(written)
    found, report = filled(read_xliff_document(data, "a.xlf", "en"), backwards)
    assert report.translated == 1
    new = re.sub(rb"<target state[^>]*>b a</target>", b"", found)
    assert new == data
    assert found.index(b"b a</target>") < found.index(b"<alt-trans>")


def divided(*parts: str, target: str = "") -> str:
    marks = " ".join(f'<@mrk mtype="seg" mid="{number}">{part}</@mrk>' for number, part in enumerate(parts, 1))
    source = f"<@source>{' '.join(parts)}</@source>\n<@seg-source><@g id='9'>{marks}</@g></@seg-source>"
    return f"<@trans-unit id='1'>\n{source}\n{target}</@trans-unit>"


def test_divided_units_are_translated_part_by_part() -> None:
    _, [target], report = translate(divided("eins zwei.", "drei %s vier."))
    assert report.translated == 2
    assert re.sub(r"\s+", " ", target) == (
        '<g id="9"><mrk mtype="seg" mid="1">zwei. eins</mrk> <mrk mtype="seg" mid="2">vier. %s drei</mrk></g>'
    )
    # A part that fails leaves its place empty; without any there is no target.
    only_first = lambda texts: [text if "eins" in text else "" for text in texts]  # noqa: E731
    _, [target], report = translate(divided("eins zwei.", "drei vier."), how=only_first)
    assert target == '<g id="9"><mrk mtype="seg" mid="1">eins zwei.</mrk> <mrk mtype="seg" mid="2" /></g>'
    assert (report.translated, len(report.failed)) == (1, 1)
    assert translate(divided("eins zwei.", "drei vier."), how=return_empty)[1] == [""]


def test_divided_targets_are_filled_in_their_places() -> None:
    target = "<@target><@g id='9'><@mrk mtype='seg' mid='1'>one two.</@mrk> <@mrk mtype='seg' mid='2'/></@g></@target>"
    found, [new], report = translate(divided("eins zwei.", "drei vier.", "fünf sechs.", target=target))
    assert '<mrk mtype="seg" mid="1">one two.</mrk> <mrk mtype="seg" mid="2">vier. drei</mrk>' in new
    assert report.kept == {"translated already": 1, "no place for it in the target": 1}
    assert b'<target state="needs-review-translation" state-qualifier="leveraged-mt"><g' in found


def test_segments_have_the_details_of_the_file() -> None:
    data = document(unit("a\n    b", "<@target>x</@target>", 'resname="Knopf" xml:space="preserve"'), unit("c\n   d"))
    first, second = read_xliff_document(data, "a.xlf", "en").segments
    assert (first.location, first.target, first.state, first.context, first.notes) == (
        6,
        "x",
        State.FILLED,
        "Knopf",
        ("Hinweis",),
    )
    assert (first.keep_lines, second.keep_lines) == (True, False)
    found, _ = filled(read_xliff_document(data, "a.xlf", "en"), list)
    assert b'leveraged-mt">c d</target>' in found


def test_the_language_is_stated_if_the_file_does_not_declare_it() -> None:
    data = document(unit("a b"), target_language=None)
    read = read_xliff_document(data, "a.xlf", "en")
    assert [(language.is_target, language.tag, language.line) for language in read.languages] == [(False, "de-DE", 3)]
    assert b'<target xml:lang="en" state=' in filled(read, list)[0]
    assert [language.tag for language in read_xliff_document(document(unit("a b")), "a.xlf", "en").languages] == [
        "de-DE",
        "en",
    ]
