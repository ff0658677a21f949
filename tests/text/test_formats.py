"""Formats of documents by ending and by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError, UsageError
from ibidem.text.formats import format_of, open_document

if TYPE_CHECKING:
    from pathlib import Path

XLIFF = b'<xliff version="2.0" srcLang="de-CH" trgLang="en-GB"><file/></xliff>'


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
    with pytest.raises(
        UsageError,
        match=r"'pdf' is no format of a document\. .* --format: tsv, jsonl, tmx, xliff, po, csv, docx, .*plain",
    ):
        format_of("a", "pdf")
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
