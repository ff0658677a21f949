"""Sentences are found as a reader would find them, and all of the text is in them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.text import find_sentences

from .sentence_cases import ENGLISH, GERMAN, OTHER, parse_cases

# A single letter before a full stop is taken for an initial unless the next word often begins sentences.
UNDECIDED = ["It is vitamin C. Take it daily."]


def split(text: str, language: str | None) -> list[str]:
    return [text[start:end] for start, end in find_sentences(text, language)]


@pytest.mark.parametrize(("text", "expected"), parse_cases(GERMAN))
def test_german(text: str, expected: list[str]) -> None:
    assert split(text, "de-AT") == expected


@pytest.mark.parametrize(("text", "expected"), parse_cases(ENGLISH))
def test_english(text: str, expected: list[str]) -> None:
    assert split(text, "en") == ([text] if text in UNDECIDED else expected)


@pytest.mark.parametrize("line", OTHER.strip().splitlines())
def test_other_languages(line: str) -> None:
    language, _, case = line.partition("|")
    [(text, expected)] = parse_cases(case)
    assert split(text, language) == expected


@pytest.mark.parametrize(("text", "_"), parse_cases(GERMAN) + parse_cases(ENGLISH))
def test_an_unknown_language_has_no_more_boundaries(text: str, _: list[str]) -> None:
    known = {language: {end for _, end in find_sentences(text, language)} for language in ("de", "en")}
    assert {end for _, end in find_sentences(text)} <= known["de"] | known["en"]


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_a_blank_text_has_no_sentence(text: str) -> None:
    assert find_sentences(text, "de") == []


@given(st.text(st.sampled_from("aBz1 .!?…;:,\"'„“”»)(][{}<>/%-•\n\t。！」中।؟9A"), max_size=150))
def test_sentences_cover_the_text(text: str) -> None:
    last = 0
    for start, end in find_sentences(text, "de"):
        assert last <= start < end
        assert not text[last:start].strip()
        assert text[start:end] == text[start:end].strip()
        last = end
    assert not text[last:].strip()


@given(st.lists(st.sampled_from(["Der Hund bellt.", "Wer kommt?", "Nein!", "Das ist am 3. Mai so."]), max_size=20))
def test_joined_sentences_are_found_again(sentences: list[str]) -> None:
    assert split(" ".join(sentences), "de") == sentences


@pytest.mark.parametrize(
    "unit",
    [". ", ".", "!?", "(", ")", "((", '." ', "A. ", "1. ", "{1} ", "<b> ", "</a", "。", ". (", "z. B. ", "...(.) "],
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    """Quadratic time would be minutes for these; the limit is generous, since the machine may be busy."""
    started = time.process_time()
    find_sentences(unit * (400_000 // len(unit)), "de")
    assert time.process_time() - started < 20
