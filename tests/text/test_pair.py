from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.text.pair import join_lines


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
def test_it_keeps_all_but_whitespace_and_is_stable(text: str) -> None:
    line = join_lines(text)
    assert "\n" not in line
    assert "\t" not in line
    assert [letter for letter in line if letter in "ab\x00"] == [letter for letter in text if letter in "ab\x00"]
    assert join_lines(line) == line == line.strip()
