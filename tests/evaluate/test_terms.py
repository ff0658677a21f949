"""Terms of a training text, and their recall in translations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.evaluate import collect_terms, compare_runs, count_terms, resample, score_terms
from ibidem.evaluate.terms import words_of

GREETINGS = [(f"Guten Morgen {name}", f"Good morning {name}") for name in ("Anna", "Berta")] * 100


def text(*terms: tuple[str, str]) -> list[tuple[str, str]]:
    verbs = (("öffnen", "open"), ("leeren", "clear"), ("prüfen", "check"))
    return [(f"{source} {german}", f"{english} {target}") for german, english in verbs for source, target in terms]


def test_a_word_with_one_translation_is_a_term() -> None:
    assert collect_terms(text(("Zwischenablage", "clipboard"), ("Mandant", "tenant")) + GREETINGS) == {
        "mandant": "tenant",
        "zwischenablage": "clipboard",
    }


@pytest.mark.parametrize(
    "pairs",
    [
        text(("Tab", "clipboard")),  # too short
        text(("Zwischenablage", "clipboard"))[:2],  # too rare
        text(("Firefox", "Firefox")),  # the same in both languages
        [("Die Bank ist offen", word) for word in ("bench", "shore", "money", "house", "store", "place")],  # many
    ],
)
def test_other_words_are_not_terms(pairs: list[tuple[str, str]]) -> None:
    assert collect_terms(pairs + GREETINGS) == {}


def test_common_words_are_not_terms() -> None:
    assert collect_terms(GREETINGS) == {}


def test_no_text_has_no_terms() -> None:
    assert collect_terms([]) == {}


def test_only_terms_of_source_and_reference_count() -> None:
    terms = {"mandant": "tenant", "ablage": "clipboard"}
    sources = ["Der Mandant fehlt", "Der Mandant fehlt", "Die Ablage, der Mandant", "Nichts davon"]
    references = ["The tenant is missing", "The client is missing", "The clipboard, the tenant", "Nothing of it"]
    hypotheses = ["Tenant missing", "The tenant is missing", "Clipboards and tenants; TENANT", "The tenant"]
    assert count_terms(terms, sources, hypotheses, references).tolist() == [[1, 1], [0, 0], [2, 1], [0, 0]]


def test_the_reference_itself_has_recall_100() -> None:
    pairs = text(("Zwischenablage", "clipboard"), ("Mandant", "tenant"))
    terms = collect_terms(pairs + GREETINGS)
    sources, references = [list(side) for side in zip(*pairs, strict=True)]
    counts = count_terms(terms, sources, references, references)
    assert score_terms(counts.sum(axis=0)) == 100
    worse = count_terms(terms, sources, [""] * len(sources), references)
    first, second = resample([worse, counts], score_terms, samples=100)
    difference = compare_runs([first], [second])
    assert (difference.value, difference.low, difference.high) == (100, 100, 100)


def test_lines_must_agree() -> None:
    with pytest.raises(UsageError, match="2 sources, 1 hypotheses and 2 references"):
        count_terms({}, ["a", "b"], ["a"], ["a", "b"])


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=20))
def test_terms_occur_in_the_text(pairs: list[tuple[str, str]]) -> None:
    for source, target in collect_terms(pairs * 3).items():
        assert any(source in words_of(first) and target in words_of(second) for first, second in pairs)


def test_no_terms_score_zero() -> None:
    assert score_terms(np.zeros(2, np.int64)) == 0
