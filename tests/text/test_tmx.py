"""TMX as parallel text."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair
from ibidem.text.stream import MAX_TEXT

from .conftest import Write, sides

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header/><body>\n'
TAIL = "</body></tmx>\n"


def unit(german: str, english: str) -> str:
    return f'<tu><tuv xml:lang="de"><seg>{german}</seg></tuv>\n<tuv xml:lang="en"><seg>{english}</seg></tuv></tu>\n'


def document(*units: str) -> str:
    return HEAD + "".join(units) + TAIL


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_units_are_pairs_with_the_line_they_begin_on(write: Write, ending: str) -> None:
    path = write(f"a.tmx{ending}", document(unit("Haus", "house"), unit(" ", "x"), unit("K&amp;&#228;", "zwei\n  x")))
    corpus = Corpus([path])
    assert list(corpus) == [Pair("Haus", "house", path, 4), Pair("K&ä", "zwei x", path, 8)]
    assert corpus.counts.dropped == {"empty source": 1}


def test_languages_match_by_their_first_subtag(write: Write) -> None:
    path = write(
        "a.tmx",
        document(
            '<tu><tuv lang="EN-US"><seg>house</seg></tuv><tuv xml:lang="fr"><seg>maison</seg></tuv>'
            '<tuv xml:lang="de_AT"><seg>Haus</seg></tuv><tuv xml:lang="de"><seg>Zweithaus</seg></tuv></tu>',
            '<tu><tuv xml:lang="de"><seg>nur</seg></tuv></tu>',
            '<tu><tuv xml:lang="en"><seg>only</seg></tuv><tuv><seg>none</seg></tuv></tu>',
            '<tu><tuv xml:lang="de"/><tuv xml:lang="en"><seg>x</seg></tuv></tu>',
        ),
    )
    corpus = Corpus([path])
    assert sides(corpus) == [("Haus", "house")]
    assert corpus.counts.dropped == {"no 'en' segment": 1, "no 'de' segment": 2}


@pytest.mark.parametrize(
    ("inline", "text"),
    [
        ("Das <hi>ist <hi>sehr</hi></hi> gut", "Das ist sehr gut"),
        ('<bpt i="1">&lt;b&gt;</bpt>fett<ept i="1">&lt;/b&gt;</ept>!', "fett!"),
        ("ein<ph>{0}</ph> Bild<it pos='begin'>x</it> <ut>y</ut>hier", "ein Bild hier"),
        ("vor<ph>code<sub>Fußnote <hi>h</hi></sub>code</ph> nach", "vor nach"),
        ("frei <sub>stehend</sub>", "frei stehend"),
        ("a<!-- no --><?no no?><![CDATA[<b>]]>", "a<b>"),
        ("a<ph/>b", "ab"),
    ],
)
def test_native_code_is_left_out_and_text_kept(write: Write, inline: str, text: str) -> None:
    assert sides(Corpus([write("a.tmx", document(unit(inline, "x")))])) == [(text, "x")]


def test_text_outside_segments_is_left_out(write: Write) -> None:
    noted = (
        '<tu tuid="1"><note>no</note><prop type="x">no</prop><tuv xml:lang="de"><note>no</note><seg>ja</seg>'
        '<prop>no</prop></tuv><tuv xml:lang="en"><seg>yes</seg></tuv></tu>'
    )
    assert sides(Corpus([write("a.tmx", document(noted))])) == [("ja", "yes")]


def test_namespaces_and_prefixes_do_not_matter(write: Write) -> None:
    plain = document(unit("ja", "yes"))
    default = plain.replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')
    prefixed = plain.replace("<tu", "<t:tu").replace("</tu", "</t:tu").replace("<tmx ", '<tmx xmlns:t="u" ')
    assert sides(Corpus([write("a.tmx", default)])) == [("ja", "yes")]
    assert sides(Corpus([write("b.tmx", prefixed)])) == [("ja", "yes")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_the_declared_encoding_is_used(write: Write, encoding: str) -> None:
    name = encoding.removesuffix("-sig")
    text = document(unit("Tür", "door")).replace("UTF-8", name)
    assert sides(Corpus([write("a.tmx", text.encode(encoding))])) == [("Tür", "door")]


def test_lines_are_exact_beyond_65535(write: Write) -> None:
    indented = "<tu>\n <tuv xml:lang='de'>\n  <seg>a</seg></tuv>\n<tuv xml:lang='en'><seg>b</seg></tuv></tu>\n"
    lines = [pair.location for pair in Corpus([write("a.tmx", document(indented * 20_000))])]
    assert lines == list(range(4, 4 + 4 * 20_000, 4))


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (document("<tu>\n<tuv></tu>"), 5, "not well-formed XML (mismatched tag). Repair"),
        (HEAD + unit("a", "b"), 6, "not well-formed XML (no element found)"),
        (document() + "junk", 5, "not well-formed XML (junk after document element)"),
        ("", 1, "not well-formed XML (no element found)"),
        ("Haus\thouse\n", 1, "not well-formed XML (syntax error)"),
        (document(unit("a\x00b", "c")), 4, "not well-formed XML (not well-formed (invalid token))"),
        (document(unit("a\ufffeb", "c")), 4, "not well-formed XML (not well-formed (invalid token))"),
        (
            document("\n" + unit("&#x0b;", "c")),
            5,
            "not well-formed XML (reference to invalid character number)",
        ),
        (document("\n", unit("Tür", "c")).encode("latin1"), 5, "byte 0xFC is not UTF-8. Convert"),
        (document().replace("UTF-8", "klingon"), 1, "unknown encoding: klingon. Convert the file to UTF-8"),
        (document().replace("UTF-8", "euc-jp"), 1, "multi-byte encodings are not supported. Convert"),
    ],
)
def test_malformed_xml_is_named_with_its_line(write: Write, content: str | bytes, line: int, what: str) -> None:
    path = write("a.tmx", content)
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line {line}: {what}")


def test_an_entity_that_names_a_file_is_refused(write: Write, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("CANARY")
    for declaration in (
        f'<!ENTITY x SYSTEM "{canary.as_uri()}">',
        f'<!ENTITY % x SYSTEM "{canary.as_uri()}"> %x;',
        '<!ENTITY x "text">',
    ):
        path = write("a.tmx", document(unit("a &x; b", "c")).replace('SYSTEM "tmx14.dtd"', f"[{declaration}]"))
        with pytest.raises(TextError) as error:
            list(Corpus([path]))
        assert str(error.value).startswith(f"{path}, line 2: the entity 'x' is refused")
        assert "CANARY" not in str(error.value)


def test_an_external_subset_is_not_loaded(write: Write, tmp_path: Path) -> None:
    (tmp_path / "tmx14.dtd").write_text('<!ENTITY x "CANARY">')
    assert sides(Corpus([write("a.tmx", document(unit("a", "b")))])) == [("a", "b")]
    with pytest.raises(TextError, match="line 4: the entity 'x' is refused"):
        list(Corpus([write("a.tmx", document(unit("a &x; b", "c")))]))


def test_nested_entities_are_refused(write: Write) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'[<!ENTITY l0 "ha">{laughs}]'
    for content in (unit("&l11;", "x"), '<tu id="&l11;"/>'):
        path = write("a.tmx", document(content).replace('SYSTEM "tmx14.dtd"', bomb))
        with pytest.raises(TextError, match="line 2: the entity 'l0' is refused"):
            list(Corpus([path]))


def test_a_segment_of_some_megabytes_is_refused(write: Write) -> None:
    longest = "x" * MAX_TEXT
    assert sides(Corpus([write("a.tmx", document(unit(longest, "c")))])) == [(longest, "c")]
    path = write("b.tmx.gz", document(unit("a", "b"), unit("x" * (5 << 20), "c")))
    with pytest.raises(TextError, match=rf"b.tmx.gz, line 6: a segment .* longer than {MAX_TEXT:,} characters"):
        list(Corpus([path]))


def test_a_tag_without_end_is_refused(write: Write) -> None:
    path = write("a.tmx.gz", HEAD + '<tu id="' + "x" * (5 << 20))
    with pytest.raises(TextError, match=rf"a.tmx.gz, line 4: a tag longer than {MAX_TEXT:,} bytes. Check"):
        list(Corpus([path]))


def test_deep_nesting_is_read(write: Write) -> None:
    deep = "<hi>" * 200 + "x" + "</hi>" * 200
    assert sides(Corpus([write("a.tmx", document(unit(deep, "c")))])) == [("x", "c")]


def test_memory_does_not_grow_with_the_file(write: Write) -> None:
    path = write("a.tmx.gz", document(*(unit(f"Satz {n} " + "x" * 100, f"s {n}") for n in range(50_000))))
    corpus = Corpus([path])
    for _ in zip(range(100), corpus, strict=False):
        pass
    tracemalloc.start()
    try:
        count = sum(1 for _ in corpus)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 50_000
    assert peak < 2**20  # the text is 10 MB
