"""Plain text and TSV."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text import Corpus, FillSettings, Pair
from ibidem.text.plain import read_plain_document, read_tsv_document
from ibidem.text.stream import MAX_TEXT

from .conftest import Write, sides
from .samples import filled
from .translators import backwards, return_empty

ENDINGS = ["", ".gz", ".xz"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_lines_are_paired(write: Write, ending: str) -> None:
    source = write(f"a.de{ending}", "Haus \r\n\nTür\nGarten")
    target = write(f"a.en{ending}", "house\nempty\n \ngarden\n")
    corpus = Corpus([source, target])
    assert list(corpus) == [Pair("Haus", "house", source, 1), Pair("Garten", "garden", source, 4)]
    assert corpus.counts.describe() == "read 4 pairs, kept 2, dropped 2 (1 empty source, 1 empty target)"


def test_a_tab_inside_a_line_becomes_a_space(write: Write) -> None:
    assert sides(Corpus([write("a", "ein\tHaus\n"), write("b", "a house\n")])) == [("ein Haus", "a house")]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("short", "long"), [(3, 5), (0, 1), (2, 3000)])
def test_files_of_different_length_are_named_with_both_counts(write: Write, ending: str, short: int, long: int) -> None:
    first = write(f"short{ending}", "x\n" * short)
    second = write(f"long{ending}", "x\n" * long)
    with pytest.raises(TextError) as error:
        list(Corpus([first, second]))
    assert f"{first} has {short:,} lines but {second} has {long:,}." in str(error.value)
    assert "align them" in str(error.value)
    with pytest.raises(TextError) as error:
        list(Corpus([second, first]))
    assert f"{second} has {long:,} lines but {first} has {short:,}." in str(error.value)


def test_the_difference_is_reported_after_the_pairs_before_it(write: Write) -> None:
    pairs = iter(Corpus([write("a", "1\n2\n"), write("b", "x\n")]))
    assert next(pairs).target == "x"
    with pytest.raises(TextError, match="has 2 lines but"):
        next(pairs)


def test_a_bad_byte_beyond_the_shorter_file_does_not_hide_the_difference(write: Write) -> None:
    with pytest.raises(TextError, match=r"a has 1 lines but .*b has 3\."):
        list(Corpus([write("a", "1\n"), write("b", b"x\ny\n\xff\n")]))


def test_a_last_line_needs_no_newline_and_an_empty_one_counts(write: Write) -> None:
    assert len(sides(Corpus([write("a", "1\n2"), write("b", "x\ny\n")]))) == 2
    with pytest.raises(TextError, match="has 3 lines"):
        list(Corpus([write("a", "1\n2\n\n"), write("b", "x\ny\n")]))


def test_two_empty_files_are_an_empty_corpus(write: Write) -> None:
    corpus = Corpus([write("a", ""), write("b", "")])
    assert list(corpus) == []
    assert corpus.counts.describe() == "read 0 pairs, kept 0"


def test_a_document_keeps_its_lines() -> None:
    text = "\ufeffeins %s zwei\r\n\r\n  drei vier \nfünf {x} sechs"
    found, report = filled(read_plain_document(text.encode(), "a.txt"), backwards)
    assert found.decode() == "\ufeffzwei %s eins\r\n\r\n  vier drei \nsechs {x} fünf"
    assert report.kept == {"a blank line": 1}
    # The translation replaces the source, so a line without a translation is empty.
    found, report = filled(read_plain_document(text.encode(), "a.txt"), return_empty)
    assert found.decode() == "\ufeff\r\n\r\n\n"
    assert [failure.line for failure in report.failed] == [1, 3, 4]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)))
def test_a_document_keeps_its_number_of_lines(lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    found, _ = filled(read_plain_document(data, "a.txt"), backwards)
    assert found.count(b"\n") == data.count(b"\n")


def test_invalid_bytes_and_long_lines_of_documents_are_refused() -> None:
    for read in (read_plain_document, read_tsv_document):
        with pytest.raises(TextError, match="a, line 2: byte 0xFF is not UTF-8"):
            read(b"a\n\xff\n", "a")
        with pytest.raises(TextError, match="a, line 1: longer than"):
            read(b"a" * (MAX_TEXT + 1), "a")


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
