"""All formats whose texts are replaced: what they share, and how they behave with damaged files."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text import replacement
from ibidem.text.document import Document, fill
from ibidem.text.formats import FORMATS
from ibidem.text.language import Languages
from ibidem.text.replacement import TextFile

from .office.archives import docx, odt, xlsx
from .samples import filled
from .translators import damage, return_empty, shout

LANGUAGES = Languages("de", "en")
DOCX = docx(
    "<w:p><w:r><w:t>ein </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>wort</w:t></w:r></w:p>"
    '<w:p><w:hyperlink w:id="1"><w:r><w:t>verweis</w:t></w:r></w:hyperlink><w:r><w:t> dort</w:t></w:r></w:p>'
)
SAMPLES: dict[str, bytes] = {
    "docx": DOCX,
    "xlsx": xlsx("<si><t>der preis</t></si><si><r><t>zwei </t></r><r><rPr><b/></rPr><t>worte</t></r></si>"),
    "odt": odt("<text:p>ein <text:span>fettes</text:span> wort</text:p>"),
    "html": b"<p>ein <b>fettes</b> wort &amp; mehr</p><img alt='ein bild'><pre>code</pre><p>zwei</p>",
    "markdown": b"# titel\n\nein *betontes* [wort](http://x) und `code`\nweiter\n\n"
    b"- punkt\n- zwei\n\n| a | b |\n|---|---|\n",
    "subtitles": b"1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>hallo du</i>\r\nda\r\n\r\n"
    b"2\r\n00:00:03,000 --> 00:00:04,000\r\nja\r\n",
    "json": b'{"a": "hallo {name}", "b": {"c": ["zwei worte", 3, true, null]}}',
    "yaml": b"x:\n  a: ein wort # k\n  b: 'zwei %{n}'\n  c: |\n    drei\n    vier\n  d: [a b, {e: f g}]\n",
    "android": b'<resources><string name="a">it\\\'s <b>ein</b> %1$s</string>'
    b'<plurals name="p"><item>zwei</item></plurals></resources>',
    "strings": b'/* k */\n"a" = "hallo \\"du\\" %@";\nb = "zwei";\n',
    "properties": b"# k\na=hallo {0} it''s\nb : zwei \\\n  drei\n",
    "resx": b'<root><data name="a"><value>hallo {0} &lt;b&gt;</value></data></root>',
    "csv": b'a;b\n"hallo; du";zwei\n',
    "text": b"ein absatz der hier ziemlich lang ist und weiter\ngeht.\n\nzwei\r\n",
}


def read(format: str, data: bytes) -> Document:
    reader = FORMATS[format].read_document
    assert reader is not None
    return reader(data, f"a.{format}", LANGUAGES, True)


def test_every_format_that_replaces_has_a_sample() -> None:
    translating = {"tsv", "jsonl", "tmx", "xliff", "xcstrings", "qt", "po", "mo", "plain"}
    assert set(SAMPLES) == set(FORMATS) - translating


@pytest.mark.parametrize("format", SAMPLES)
def test_a_translation_equal_to_the_source_changes_no_byte(format: str) -> None:
    data = SAMPLES[format]
    found, report = filled(read(format, data), list)
    assert found == data
    assert report.translated == len(read(format, data).segments) > 0


@pytest.mark.parametrize("format", SAMPLES)
def test_only_texts_change(format: str) -> None:
    document = read(format, SAMPLES[format])
    found, report = filled(document, shout)
    assert report.failed == []
    assert found != document.data
    again = read(format, found)
    assert len(again.segments) == len(document.segments)
    # Translated back, the file is what it was, up to the way in which the texts are written.
    targets, _ = fill(again, lambda texts: [text.lower() for text in texts])
    back = read(format, b"".join(again.write(targets)))
    assert [one.source for one in back.segments] == [one.source for one in document.segments]


@pytest.mark.parametrize("format", SAMPLES)
def test_without_a_translation_the_text_stays(format: str) -> None:
    document = read(format, SAMPLES[format])
    found, report = filled(document, return_empty)
    assert found == document.data
    assert len(report.failed) == len(document.segments)


@pytest.mark.parametrize("format", SAMPLES)
@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_bad_translations_never_break_the_file(format: str, seed: int) -> None:
    document = read(format, SAMPLES[format])
    extras = ["{1}", "<b>", '"', "\\", "&", "'", ";", "#", "- x", "1.", "--> ", ": ", "*", "`", "]]>", "@", "%s"]
    worse = damage(seed, extras)
    # A text without letters would be no segment.
    found, _ = filled(document, lambda texts: [f"{text} xy" for text in worse(texts)])
    assert len(read(format, found).segments) == len(document.segments)


@pytest.mark.parametrize("format", SAMPLES)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_files_give_a_document_or_a_text_error(format: str, data: st.DataObject) -> None:
    raw = bytearray(SAMPLES[format])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                raw[place] = data.draw(st.integers(0, 255))
            case 1:
                del raw[place : place + data.draw(st.integers(1, 30))]
            case 2:
                raw[place:place] = data.draw(st.binary(min_size=1, max_size=8))
        if not raw:
            return
    with suppress(TextError):
        document = read(format, bytes(raw))
        filled(document, shout)


@pytest.mark.parametrize("format", sorted(set(SAMPLES) - {"docx", "xlsx", "odt", "android", "resx"}))
def test_office_documents_and_other_encodings_are_refused_by_name(format: str) -> None:
    with pytest.raises(TextError, match=f"a.{format}: it is a zip archive or an office document"):
        read(format, DOCX)
    with pytest.raises(TextError, match=f"a.{format}: it is a PDF"):
        read(format, b"%PDF-1.7\n\xe2\xe3")
    if format not in ("properties",):
        with pytest.raises(TextError, match=rf"a.{format}, line 2: byte 0xFC is not UTF-8"):
            read(format, b"x\n\xfc")


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@given(text=st.text(st.characters(codec="utf-8"), min_size=1), data=st.data())
def test_places_in_text_files(codec: str, text: str, data: st.DataObject) -> None:
    raw = ("\ufeff" if codec == "utf-16-le" else "").encode(codec) + text.encode(codec)
    try:
        file = TextFile(raw, "a")
    except TextError:
        return
    if file.text != text:  # a byte order mark of its own
        return
    places = data.draw(st.lists(st.integers(0, len(text)), min_size=1))
    for place in places:
        position = file.position(place)
        assert raw[position:].decode(file.codec) == text[place:]
        assert file.line_of(place) == text.count("\n", 0, place) + 1
    assert file.encode(text) == text.encode(file.codec)


def test_the_number_of_texts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "MAX_TEXTS", 3)
    assert len(read("csv", b"a;b\nc;1\n").segments) == 3
    with pytest.raises(TextError, match=r"a\.csv: more than 3 texts\. Divide it"):
        read("csv", b"a;b\nc;d\n")
