"""TSV as parallel text and as a document."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus, FillSettings, Pair
from ibidem.text.tsv import read_tsv_document

from .conftest import Write, sides
from .samples import filled
from .translators import backwards, return_empty


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_two_columns_are_a_pair(write: Write, ending: str) -> None:
    path = write(f"a.tsv{ending}", "Haus\t house \r\n\n  \nTür\t\n\tdoor\n\t\nGarten\tgarden")
    corpus = Corpus([path])
    assert list(corpus) == [Pair("Haus", "house", path, 1), Pair("Garten", "garden", path, 7)]
    assert corpus.counts.dropped == {"blank line": 2, "empty target": 1, "empty source": 2}
    assert corpus.counts.read == 7


@pytest.mark.parametrize(("line", "count"), [("one", "1 column "), ("a\tb\tc", "3 columns"), ("\t\t", "3 columns")])
def test_another_number_of_columns_is_refused(write: Write, line: str, count: str) -> None:
    path = write("a.tsv", f"a\tb\n{line}\n")
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line 2: {count}")
    assert "Put exactly one tab" in str(error.value)


def test_quotes_are_text(write: Write) -> None:
    assert sides(Corpus([write("a.tsv", '"a\tb"\n')])) == [('"a', 'b"')]


def test_missing_targets_of_a_document_are_filled() -> None:
    text = "eins zwei\ndrei vier\t\r\n\nfünf sechs\tfive\n\tnichts\nsieben acht"
    found, report = filled(read_tsv_document(text.encode(), "a.tsv"), backwards)
    assert (
        found.decode()
        == "eins zwei\tzwei eins\ndrei vier\tvier drei\r\n\nfünf sechs\tfive\n\tnichts\nsieben acht\tacht sieben"
    )
    assert report.kept == {"an empty source": 2, "translated already": 1}
    found, _ = filled(read_tsv_document(text.encode(), "a.tsv"), backwards, FillSettings(overwrite=True))
    assert "fünf sechs\tsechs fünf\n" in found.decode()
    assert filled(read_tsv_document(text.encode(), "a.tsv"), return_empty)[0].decode() == text
    with pytest.raises(TextError, match=r"a\.tsv, line 2: 3 columns where there must be 1 or 2"):
        read_tsv_document(b"a\tb\nc\td\te", "a.tsv")
