"""Declared languages, filling and its report."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text import Code, Request, Role, translate_pieces
from ibidem.text import document as document_module
from ibidem.text.document import FillReport, check_languages, fill
from ibidem.text.xliff import read_xliff_document

from .samples import filled
from .translators import backwards

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
