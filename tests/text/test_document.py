"""Declared languages, filling and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from ibidem.errors import TextError
from ibidem.text import Code, Request, Role, open_document, translate_pieces
from ibidem.text import document as document_module
from ibidem.text.document import DocumentBuilder, FillReport, FillSettings, check_languages, fill
from ibidem.text.xliff import read_xliff_document

from .samples import filled
from .translators import backwards

if TYPE_CHECKING:
    from pathlib import Path

XLIFF = (
    b'<xliff version="2.0" srcLang="de-CH" trgLang="en-GB"><file><unit><segment><source>a b</source></segment></unit>'
    b"</file></xliff>"
)


def test_declared_languages_are_compared_with_the_model() -> None:
    document = read_xliff_document(XLIFF, "a.xlf", "en")
    check_languages(document, "de", "en")
    check_languages(document, "deu_Latn", None)
    with pytest.raises(TextError, match=r"a\.xlf, line 1: its target language is 'en-GB', but the model's is 'fr'\."):
        check_languages(document, "de", "fr")
    with pytest.raises(TextError, match="its source language is 'de-CH', but the model's is 'en'"):
        check_languages(document, "en", "de")


def test_the_report_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "BATCH_SEGMENTS", 2)
    source = "".join(
        f"<trans-unit translate='{'no' if n == 3 else 'yes'}'><source>a %s {n}</source></trans-unit>" for n in range(6)
    )
    document = read_xliff_document(
        f"<xliff version='1.2'><file><body>{source}</body></file></xliff>".encode(), "a.xlf", "en"
    )
    seen = []
    how = lambda texts: ["" if "4" in text else text for text in texts]  # noqa: E731
    targets, report = fill(document, how, progress=lambda *step: seen.append(step))
    assert set(targets) == {0, 1, 2, 5}
    assert seen == [
        ("Translating", 0.4, 2, "segments"),
        ("Translating", 0.8, 4, "segments"),
        ("Translating", 1.0, 5, "segments"),
    ]
    assert report.describe() == ('a.xlf (XLIFF 1.2): 6 segments, translated 4, kept 1 (1 translate="no"), failed 1')
    assert list(report.lines()) == ["a.xlf, line 1: not translated: the translation is empty"]
    assert report.to_json() == {
        "file": "a.xlf",
        "format": "XLIFF 1.2",
        "segments": 6,
        "translated": 4,
        "kept": {'translate="no"': 1},
        "failed": [{"line": 1, "source": "a %s 4", "reason": "the translation is empty"}],
        "suspicious": [],
        "left_out": [],
        "confidence": None,
    }
    assert FillReport("a", "PO").describe() == "a (PO): 0 segments, translated 0, kept 0, failed 0"


def test_suspicious_translations_are_reported() -> None:
    document = read_xliff_document(XLIFF.replace(b"<source>", b"<source>die Datei ist leer "), "a.xlf", "en")
    _, report = fill(document, lambda texts: texts)
    assert report.translated == len(report.suspicious) == 1
    assert report.describe().endswith("failed 0, suspicious 1")
    assert list(report.warning_lines()) == [
        f"warning: a.xlf, line {report.suspicious[0].line}: the translation is a copy of the source"
    ]
    assert report.to_json()["suspicious"][0]["reason"] == "the translation is a copy of the source"


def test_suspicious_translations_in_a_table_are_named_by_their_cell() -> None:
    builder = DocumentBuilder()
    builder.add(("die Datei ist leer",), 1, place="sheet 1, B2")
    document = builder.build("a.xlsx", "XLSX", b"", lambda _, __: b"")
    _, report = fill(document, lambda texts: texts)
    assert list(report.warning_lines()) == ["warning: a.xlsx, sheet 1, B2: the translation is a copy of the source"]


def test_white_space_between_sentences_is_kept() -> None:
    text = "Eins ist da.  Zwei %s fehlt.\nDrei.   Vier."
    requests = [Request((text,)), Request((Code("<b>", Role.OPEN, "1"), text, Code("</b>", Role.CLOSE, "1")))]
    for request, found in zip(requests, translate_pieces(requests, lambda texts: texts), strict=True):
        assert found == request.pieces


def test_filling_twice_changes_nothing() -> None:
    once, _ = filled(read_xliff_document(XLIFF, "a.xlf", "en"), backwards)
    again, report = filled(read_xliff_document(once, "a.xlf", "en"), backwards)
    assert again == once
    assert report.kept == {"translated already": 1}


def test_a_text_that_the_format_cannot_contain_is_a_failure() -> None:
    data = b'<xliff version="1.2"><file><body><trans-unit><source>1</source></trans-unit></body></file></xliff>'
    document = read_xliff_document(data, "a.xlf", "en")
    object.__setattr__(document, "encode", lambda *_: (_ for _ in ()).throw(ValueError("no room")))
    assert fill(document, list)[1].failed[0].reason == "no room"


FORMATS = {
    "a.po": b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: en\\n"\n\n'
    b'msgid "gut"\nmsgstr ""\n\nmsgid "schlecht"\nmsgstr ""\n',
    "a.xlf": b'<xliff version="1.2"><file source-language="de" target-language="en"><body>'
    b"<trans-unit><source>gut</source></trans-unit><trans-unit><source>schlecht</source></trans-unit>"
    b"</body></file></xliff>",
    "b.xlf": b'<xliff version="2.0" srcLang="de" trgLang="en"><file><unit>'
    b'<segment id="1"><source>gut</source></segment>'
    b'<segment id="2"><source>schlecht</source></segment></unit></file></xliff>',
    "a.html": b"<p>gut</p>\n<p>schlecht</p>\n",
    "a.md": b"gut\n\nschlecht\n",
    "a.tsv": b"gut\nschlecht\n",
    "a.json": b'{"a": "gut", "b": "schlecht"}',
    "a.properties": b"a=gut\nb=schlecht\n",
    "a.strings": b'"a" = "gut";\n"b" = "schlecht";\n',
    "a.srt": b"1\n00:00:01,000 --> 00:00:02,000\ngut\n\n2\n00:00:03,000 --> 00:00:04,000\nschlecht\n",
    "a.resx": b'<root><data name="a"><value>gut</value></data><data name="b"><value>schlecht</value></data></root>',
    "a.yml": b"de:\n  a: gut\n  b: schlecht\n",
}
CONFIDENCES = {"gut": 0.9, "schlecht": 0.2}


@pytest.mark.parametrize("name", FORMATS)
def test_translations_of_low_confidence_are_left_out(name: str, tmp_path: Path) -> None:
    """The file is the same as if only the sure texts had been translated."""
    path = tmp_path / name
    path.write_bytes(FORMATS[name])
    document = open_document(path)
    how = lambda texts: [{"gut": "good", "schlecht": "bad"}.get(text, text) for text in texts]  # noqa: E731
    settings = FillSettings(min_confidence=0.5, mark_confidence=False)
    targets, report = fill(document, how, settings, confidences=CONFIDENCES)
    written = b"".join(document.write(targets))
    assert b"good" in written
    assert b"bad" not in written
    assert (report.translated, [one.source for one in report.unsure]) == (1, ["schlecht"])
    assert [one.reason for one in report.unsure] == ["confidence 0.20"]
    assert report.to_json()["confidence"] == 0.9
    assert report.describe().count("left out 1") == 1
    assert sum("left out: confidence 0.20" in line for line in report.lines()) == 1
    all_targets, all_report = fill(open_document(path), how, FillSettings(min_confidence=0.1), confidences=CONFIDENCES)
    assert all_report.translated == 2
    assert b"bad" in b"".join(document.write(all_targets))
    # A text of unknown confidence is kept.
    assert fill(open_document(path), how, FillSettings(min_confidence=1.0))[1].translated == 2


def test_lines_of_low_confidence_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"gut\nschlecht\ngut\n")
    document = open_document(path, format="plain")
    targets, _ = fill(document, lambda texts: texts, FillSettings(min_confidence=0.5), confidences=CONFIDENCES)
    assert b"".join(document.write(targets)) == b"gut\n\ngut\n"


def test_confidence_of_a_text_is_the_product_of_its_lines() -> None:
    found: list[float | None] = []
    known = {"eins": 0.5, "zwei": 0.5}
    requests = [Request(("eins\nzwei",)), Request(("eins\ndrei",)), Request(("{n, plural, one {a} other {b}}",))]
    translate_pieces(requests, lambda texts: texts, known, found)
    assert found == [0.25, None, None]


def test_confidence_is_written_to_xliff_1() -> None:
    data = b"""<xliff version='1.2' xmlns='urn:oasis:names:tc:xliff:document:1.2'><file source-language='de'><body>
  <trans-unit id='1'><source>gut</source><note>n</note></trans-unit>
  <trans-unit id='2'><source>gut schlecht</source><seg-source><mrk mtype='seg' mid='0'>gut</mrk> <mrk mtype='seg'
   mid='1'>schlecht</mrk></seg-source></trans-unit></body></file></xliff>"""
    document = read_xliff_document(data, "a.xlf", "en")
    targets, _ = fill(document, lambda texts: [f"{text} & b" for text in texts], confidences=CONFIDENCES)
    root = ElementTree.fromstring(b"".join(document.write(targets)))
    name = "{urn:oasis:names:tc:xliff:document:1.2}"
    units = list(root.iter(f"{name}trans-unit"))
    assert [child.tag.removeprefix(name) for child in units[0]] == ["source", "target", "alt-trans", "note"]
    found = [
        (one.get("match-quality"), one.get("mid"), one.findtext(f"{name}target"), one.get("origin"))
        for unit in units
        for one in unit.iter(f"{name}alt-trans")
    ]
    assert found == [
        ("90%", None, "gut & b", "ibidem"),
        ("90%", "0", "gut & b", "ibidem"),
        ("20%", "1", "schlecht & b", "ibidem"),
    ]


@pytest.mark.parametrize(
    "matches", ["", "<m:matches/>", '<m:matches><m:match ref="#1"><source/><target/></m:match></m:matches>']
)
def test_confidence_is_written_to_xliff_2(matches: str) -> None:
    mtc, name = "{urn:oasis:names:tc:xliff:matches:2.0}", "{urn:oasis:names:tc:xliff:document:2.0}"
    data = f"""<xliff version='2.0' srcLang='de' trgLang='en' xmlns='{name[1:-1]}' xmlns:m='{mtc[1:-1]}'><file id='f'>
  <unit id='u'>{matches}<segment id='s"1'><source>gut</source></segment><segment><source>gut</source></segment>
  <segment id='s2'><source>schlecht</source></segment></unit>
  <unit id='v'><segment id='1'><source>unbekannt</source></segment></unit></file></xliff>""".encode()
    document = read_xliff_document(data, "a.xlf", "en")
    targets, _ = fill(document, lambda texts: texts, confidences=CONFIDENCES)
    root = ElementTree.fromstring(b"".join(document.write(targets)))
    units = list(root.iter(f"{name}unit"))
    assert [child.tag for child in units[0]] == [f"{mtc}matches", *[f"{name}segment"] * 3]
    found = [
        (one.get("ref"), one.get("matchQuality"), one.findtext(f"{name}source"), one.findtext(f"{name}target"))
        for one in root.iter(f"{mtc}match")
        if one.get("origin") == "ibidem"
    ]
    assert found == [('#s"1', "90", "gut", "gut"), ("#s2", "20", "schlecht", "schlecht")]
    assert units[1].find(f"{mtc}matches") is None
    unmarked, _ = fill(document, lambda texts: texts, FillSettings(mark_confidence=False), confidences=CONFIDENCES)
    assert b"ibidem" not in b"".join(document.write(unmarked))
