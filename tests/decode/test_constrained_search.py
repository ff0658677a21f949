"""Constrained beam search, against an exhaustive search over a toy model."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.decode import BaseScorer, SearchSettings
from ibidem.decode.constrained_search import ConstrainedSearcher, Constraints, Form
from ibidem.model import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

EOS, LIMIT = 0, 4
PIECES = ["</s>", "▁a", "▁b", "c"]


class ToyDecoding:
    """Logits that depend on the last two tokens."""

    def __init__(self, logits: torch.Tensor, rows: int) -> None:
        self.source_means = torch.zeros(1, 2)
        self._logits = logits
        self._last = torch.zeros(rows, 2, dtype=torch.long)

    def step(self, tokens: torch.Tensor) -> Step:
        self._last = torch.cat([self._last[:, 1:], tokens[:, -1:]], dim=1)
        return Step(torch.zeros(len(tokens), 2), self._logits[self._last[:, 0], self._last[:, 1]].clone())

    def reorder(self, rows: torch.Tensor) -> None:
        self._last = self._last[rows]


def toy_model(seed: int) -> Any:
    logits = torch.randn(len(PIECES), len(PIECES), len(PIECES), generator=torch.Generator().manual_seed(seed)) * 2
    tokens = SimpleNamespace(start=[EOS], eos=EOS, max_target_length=100, show=lambda ids: [PIECES[i] for i in ids])
    return SimpleNamespace(
        tokens=tokens,
        vocabulary_size=len(PIECES),
        device=torch.device("cpu"),
        banned=[],
        start=lambda _, rows: ToyDecoding(logits, rows),
        table=logits.log_softmax(dim=2),
    )


def score(model: Any, tokens: Sequence[int]) -> float:
    padded = [EOS, EOS, *tokens, EOS]
    return sum(float(model.table[padded[i], padded[i + 1], padded[i + 2]]) for i in range(len(tokens) + 1))


def contains(tokens: Sequence[int], terms: Sequence[Sequence[Form]]) -> bool:
    """Whether each term has a place of its own, no word of a term continues, and no two places overlap."""
    if not terms:
        return True
    for form in terms[0]:
        size = len(form.tokens)
        for start in range(len(tokens) - size + 1):
            after = tokens[start + size : start + size + 1]
            if tuple(tokens[start : start + size]) == form.tokens and list(after) != [3]:
                rest = [*tokens[:start], -1, *tokens[start + size :]]
                if contains(rest, terms[1:]):
                    return True
    return False


@pytest.mark.parametrize("terms", [[(1,)], [(2, 3)], [(1,), (2,)], [(1,), (1,)], [(1, 3), (2,)]])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_translation_with_the_terms_is_found(terms: list[tuple[int, ...]], seed: int) -> None:
    model = toy_model(seed)
    forms = [[Form(tokens)] for tokens in terms]
    settings = SearchSettings(beam=32, length_penalty=0.0, max_length_ratio=0, max_length_extra=LIMIT + 1)
    found = ConstrainedSearcher(model)([1, 2], Constraints(forms), LIMIT, settings, BaseScorer())
    candidates = [
        tokens for length in range(LIMIT + 1) for tokens in product((1, 2, 3), repeat=length) if contains(tokens, forms)
    ]
    best = max(candidates, key=lambda tokens: score(model, tokens))
    assert tuple(found[0].tokens) == best
    assert found[0].score == pytest.approx(score(model, best), abs=1e-4)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert all(contains(one.tokens, forms) for one in found)


def test_any_of_several_forms_is_enough() -> None:
    model = toy_model(1)
    settings = SearchSettings(beam=32, length_penalty=0.0, max_length_ratio=0, max_length_extra=LIMIT + 1)

    def best(*forms: Form) -> float:
        return ConstrainedSearcher(model)([1], Constraints([forms]), LIMIT, settings, BaseScorer())[0].score

    assert best(Form((1,)), Form((2,))) == pytest.approx(max(best(Form((1,))), best(Form((2,)))), abs=1e-4)


def test_places_where_a_form_may_not_begin() -> None:
    model = toy_model(2)
    settings = SearchSettings(beam=32, length_penalty=0.0, max_length_ratio=0, max_length_extra=LIMIT + 1)
    search = ConstrainedSearcher(model)
    at_start = search([1], Constraints([[Form((1,), inside=False)]]), LIMIT, settings, BaseScorer())
    assert {one.tokens[0] for one in at_start} == {1}
    inside = search([1], Constraints([[Form((1,), at_start=False)]]), LIMIT, settings, BaseScorer())
    assert all(1 in one.tokens[1:] for one in inside)
    not_after = search([1], Constraints([[Form((1,), not_after=frozenset({2, 3}))]]), LIMIT, settings, BaseScorer())
    assert all(
        any(t == 1 and p not in (2, 3) for p, t in zip([0, *one.tokens], one.tokens, strict=False)) for one in not_after
    )


def test_a_prefix_is_kept() -> None:
    model = toy_model(3)
    settings = SearchSettings(beam=8, max_length_ratio=0, max_length_extra=8)
    found = ConstrainedSearcher(model)([1], Constraints([[Form((1,))]]), LIMIT, settings, BaseScorer(), prefix=[2, 3])
    assert all(one.tokens[:2] == [2, 3] and 1 in one.tokens[2:] for one in found)


def test_a_term_that_does_not_fit_into_the_limit() -> None:
    model = toy_model(0)
    settings = SearchSettings(beam=4, max_length_ratio=0, max_length_extra=2)
    found = ConstrainedSearcher(model)([1], Constraints([[Form((1, 2, 1, 2))]]), 1, settings, BaseScorer())
    assert all(len(one.tokens) < 2 for one in found)


def test_the_check_ends_the_search() -> None:
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        ConstrainedSearcher(toy_model(0))(
            [1], Constraints([[Form((1,))]]), 3, SearchSettings(), BaseScorer(), check=stop
        )
