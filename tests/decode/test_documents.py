"""Whole documents through a translator: where they go, and in which languages."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import translate_document
from ibidem.errors import TextError, UsageError
from ibidem.text import FillSettings

if TYPE_CHECKING:
    from pathlib import Path


def translator(source: str | None = "deu_Latn", target: str | None = "eng_Latn", **more: Any) -> Any:
    """Something that translates by turning words around."""
    model = SimpleNamespace(tokens=SimpleNamespace(source_language=source, target_language=target), name="turn")
    how = lambda texts: [" ".join(reversed(text.split())) for text in texts]  # noqa: E731
    return SimpleNamespace(model=model, **{"translate": how, **more})


def test_to_a_file_and_to_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("eins zwei\nvier fünf\tx\n", "utf-8")
    stream = io.BytesIO()
    report = translate_document(translator(), path, stream)
    assert stream.getvalue().decode() == "eins zwei\tzwei eins\nvier fünf\tx\n"
    assert (report.translated, report.kept) == (1, {"translated already": 1})
    translate_document(translator(), path, path, settings=FillSettings(overwrite=True))
    assert path.read_text("utf-8") == "eins zwei\tzwei eins\nvier fünf\tfünf vier\n"


def test_a_missing_folder_is_found_before_the_work(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("eins zwei", "utf-8")
    with pytest.raises(FileNotFoundError):
        translate_document(translator(translate=pytest.fail), path, tmp_path / "missing" / "a.tsv")


def test_languages_must_be_known_and_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text('msgid ""\nmsgstr "Language: en_GB\\n"\n\nmsgid "eins zwei"\nmsgstr ""\n', "utf-8")
    stream = io.BytesIO()
    assert translate_document(translator(), path, stream, mark_fuzzy=False).translated == 1
    assert b'msgstr "zwei eins"\n' in stream.getvalue()
    with pytest.raises(TextError, match=r"a\.po, line 1: its target language is 'en_GB', but the model's is 'de'"):
        translate_document(translator("en", "de"), path, stream)
    with pytest.raises(UsageError, match="The model turn does not say which languages it translates"):
        translate_document(translator(None), path, stream)
