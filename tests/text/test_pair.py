"""Counts of pairs, and segments as single lines."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.text.pair import Counts, join_lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  plain \u00a0", "plain"),
        ("two\nlines", "two lines"),
        ("two\r\nlines", "two lines"),
        ("indented\n      by XML", "indented by XML"),
        ("tab\there", "tab here"),
        ("a\n\t\n b", "a b"),
        ("\n\t", ""),
        ("double  space", "double  space"),
        ("a\u2028b\x0bc\x85d\x00e", "a\u2028b\x0bc\x85d\x00e"),
    ],
)
def test_a_segment_becomes_one_line(text: str, line: str) -> None:
    assert join_lines(text) == line


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab \t\n\r\u2028\x00")))
def test_joining_lines_keeps_all_but_white_space_and_is_idempotent(text: str) -> None:
    line = join_lines(text)
    assert "\n" not in line
    assert "\t" not in line
    assert [letter for letter in line if letter in "ab\x00"] == [letter for letter in text if letter in "ab\x00"]
    assert join_lines(line) == line == line.strip()


def test_counts_are_described_in_one_line() -> None:
    counts = Counts(read=1200, kept=1180, dropped={"fuzzy": 8, "empty source": 12})
    assert counts.describe() == "read 1,200 pairs, kept 1,180, dropped 20 (12 empty source, 8 fuzzy)"


def test_counts_without_drops_do_not_mention_them() -> None:
    counts = Counts()
    counts.keep()
    assert counts.describe() == "read 1 pair, kept 1"


def test_counts_become_json() -> None:
    counts = Counts()
    counts.keep()
    counts.drop("fuzzy")
    counts.drop("fuzzy")
    assert json.loads(json.dumps(asdict(counts))) == {"read": 3, "kept": 1, "dropped": {"fuzzy": 2}}
