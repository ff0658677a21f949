"""Opening by format, languages, and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError, UsageError
from ibidem.text.documents import FillReport, check_languages, fill, filling, format_of, open_document
from ibidem.text.documents.xliff import read_xliff

from ..inline.translators import backwards
from .samples import filled

if TYPE_CHECKING:
    from pathlib import Path

XLIFF = (
    b'<xliff version="2.0" srcLang="de-CH" trgLang="en-GB"><file><unit><segment><source>a b</source></segment></unit>'
    b"</file></xliff>"
)


def test_formats_by_ending_and_by_name(tmp_path: Path) -> None:
    names = {
        "A.XLF": "xliff",
        "a.xliff": "xliff",
        "a.po": "po",
        "a.pot": "po",
        "a.tmx": "tmx",
        "a.tsv": "tsv",
        "a.jsonl": "jsonl",
    }
    assert {name: format_of(name) for name in names} == names
    assert format_of("a.txt") is None
    assert format_of("-") is None
    assert format_of("a.txt", "plain") == "plain"
    with pytest.raises(UsageError, match=r"'docx' is no format of a document\. Choose one with --format: xliff, po"):
        format_of("a", "docx")
    with pytest.raises(UsageError, match="Unpack it first"):
        format_of("a.po.gz")
    with pytest.raises(UsageError, match="msgunfmt"):
        format_of("a.mo")
    with pytest.raises(UsageError, match="names no known format"):
        open_document(tmp_path / "a.txt")
    with pytest.raises(TextError, match=r"a\.po: cannot be read \(No such file or directory\)"):
        open_document(tmp_path / "a.po")
    (tmp_path / "a.txt").write_bytes(XLIFF)
    assert open_document(tmp_path / "a.txt", format="xliff").format == "XLIFF 2.0"


def test_languages_are_compared_with_the_models() -> None:
    document = read_xliff(XLIFF, "a.xlf", "en")
    check_languages(document, "de", "en")
    check_languages(document, "deu_Latn", None)
    with pytest.raises(TextError, match=r"a\.xlf, line 1: its target language is 'en-GB', but the model's is 'fr'\."):
        check_languages(document, "de", "fr")
    with pytest.raises(TextError, match="its source language is 'de-CH', but the model's is 'en'"):
        check_languages(document, "en", "de")


def test_the_report_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "WINDOW", 2)
    source = "".join(
        f"<trans-unit translate='{'no' if n == 3 else 'yes'}'><source>a %s {n}</source></trans-unit>" for n in range(6)
    )
    document = read_xliff(f"<xliff version='1.2'><file><body>{source}</body></file></xliff>".encode(), "a.xlf", "en")
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
    assert list(report.lines()) == ["a.xlf, line 1: not translated: the translation came back empty"]
    assert report.to_json() == {
        "file": "a.xlf",
        "format": "XLIFF 1.2",
        "segments": 6,
        "translated": 4,
        "kept": {'translate="no"': 1},
        "failed": [{"line": 1, "source": "a %s 4", "reason": "the translation came back empty"}],
    }
    assert FillReport("a", "PO").describe() == "a (PO): 0 segments, translated 0, kept 0, failed 0"


def test_filling_twice_changes_nothing() -> None:
    once, _ = filled(read_xliff(XLIFF, "a.xlf", "en"), backwards)
    again, report = filled(read_xliff(once, "a.xlf", "en"), backwards)
    assert again == once
    assert report.kept == {"translated already": 1}


def test_a_text_the_format_cannot_hold_is_a_failure() -> None:
    data = b'<xliff version="1.2"><file><body><trans-unit><source>1</source></trans-unit></body></file></xliff>'
    document = read_xliff(data, "a.xlf", "en")
    object.__setattr__(document, "encode", lambda *_: (_ for _ in ()).throw(ValueError("no room")))
    assert fill(document, list)[1].failed[0].reason == "no room"
