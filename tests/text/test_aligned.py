from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair

from .conftest import Write, sides

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


def test_the_difference_is_told_after_the_pairs_before_it(write: Write) -> None:
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
