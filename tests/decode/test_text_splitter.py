"""Pieces of long texts fit, hold all of the text, and end where sentences end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.decode.text_splitter import split_text


@pytest.mark.parametrize("line", ["Der Hund läuft. " * 400, "wort " * 800, "x" * 3_000, "ab, cd; ef: " * 300])
@pytest.mark.parametrize("kind", ["marian", "nllb", "t5", "mbart"])
def test_the_parts_of_a_line_fit_and_hold_all_of_it(model_of, line: str, kind: str) -> None:
    tokens = model_of(kind).tokens

    def fits(text: str) -> bool:
        return len(tokens.encode_sources([text])[0]) <= tokens.max_source_length

    parts = split_text(line, fits)
    assert all(fits(part) for part in parts)
    assert "".join("".join(parts).split()) == "".join(line.split())


def test_split_text_tries_few_times() -> None:
    """Word by word, with every attempt of the length of a part, a long line would take seconds."""
    attempts: list[int] = []

    def fits(part: str) -> bool:
        attempts.append(len(part))
        return len(part) <= 400

    parts = split_text("wort " * 10_000, fits)
    assert all(len(part) <= 400 for part in parts)
    assert len(attempts) < 16 * len(parts)
    assert sum(attempts) < 40 * 50_000


def test_split_text_keeps_a_character_that_does_not_fit() -> None:
    assert split_text("ab c", lambda _: False) == ["a", "b", "c"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab .!?;:,–。\u3000\n"), max_size=200), st.integers(1, 20))
def test_split_text_keeps_every_character(text: str, most: int) -> None:
    parts = split_text(text, lambda part: len(part) <= most)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= most for part in parts)


def test_split_text_prefers_ends_of_sentences() -> None:
    text = "Eins, zwei. Drei, vier. Fünf, sechs."
    assert split_text(text, lambda part: len(part) <= 24) == ["Eins, zwei. Drei, vier.", "Fünf, sechs."]
    assert split_text(text, lambda part: len(part) <= 12) == ["Eins, zwei.", "Drei, vier.", "Fünf, sechs."]
    assert split_text(text, lambda part: len(part) <= 6) == [
        "Eins,",
        "zwei.",
        "Drei,",
        "vier.",
        "Fünf,",
        "sechs.",
    ]
    assert split_text(text, lambda _: True) == [text]


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("今天天气很好。我们去公园吧！好吗？", 8, ["今天天气很好。", "我们去公园吧！", "好吗？"]),
        ("今天天气很好。我们去公园吧！好吗？", 14, ["今天天气很好。我们去公园吧！", "好吗？"]),
        ("「行こう。」と言った。", 8, ["「行こう。」", "と言った。"]),
        ("苹果、香蕉，还有许多别的水果。", 9, ["苹果、香蕉，", "还有许多别的水果。"]),
    ],
)
def test_split_text_without_spaces(text: str, most: int, expected: list[str]) -> None:
    """Chinese and Japanese have no space after a full stop or a comma."""
    assert split_text(text, lambda part: len(part) <= most) == expected
