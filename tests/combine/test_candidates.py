"""The best tokens against the whole mixture in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import Weights, best_candidates, mix, score_tokens
from ibidem.combine.candidates import Candidates, plain_candidates


def draw(seed: int, rows: int, vocabulary: int, k: int) -> tuple[torch.Tensor, Weights, torch.Tensor]:
    """Logits, weights and values with many neighbours of one value, some of them absent (weight 0)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(rows, vocabulary, generator=generator)
    values = torch.randint(min(vocabulary, 5), (rows, k), generator=generator)
    shares = torch.rand(rows, k + 1, generator=generator) * (torch.rand(rows, k + 1, generator=generator) < 0.7)
    shares[:, 0] += 1e-3
    shares /= shares.sum(dim=1, keepdim=True)
    return logits, Weights(shares[:, 0], shares[:, 1:]), values


def dense(logits: torch.Tensor, weights: Weights, values: torch.Tensor) -> torch.Tensor:
    wide = Weights(weights.base.double(), weights.neighbours.double())
    return mix(logits.double().log_softmax(dim=1), wide, values)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.sampled_from([3, 7, 60]),
    st.sampled_from([0, 1, 8]),
    st.sampled_from([1, 4, 10]),
    st.lists(st.integers(0, 2), max_size=2, unique=True),
)
def test_the_best_are_those_of_the_whole_mixture(
    seed: int, rows: int, vocabulary: int, k: int, count: int, banned: list[int]
) -> None:
    logits, weights, values = draw(seed, rows, vocabulary, k)
    mixture = dense(logits, weights, values)
    mixture[:, banned] = -torch.inf
    for best in (best_candidates, plain_candidates):
        found = best(logits.clone(), weights, values, count, torch.tensor(banned) if banned else None)
        check(found, mixture, count)


def check(found: Candidates, mixture: torch.Tensor, count: int) -> None:
    expected = mixture.topk(min(count, mixture.shape[1]), dim=1).values[:, : found.tokens.shape[1]]
    # Where fewer tokens are allowed than were asked for, the rest may be missing.
    assert found.tokens.shape == expected.shape
    torch.testing.assert_close(found.log_probs.double(), expected, atol=1e-5, rtol=1e-5)
    shown = found.log_probs > -torch.inf
    torch.testing.assert_close(
        mixture.gather(1, found.tokens)[shown], found.log_probs.double()[shown], atol=1e-5, rtol=1e-5
    )
    for tokens, real in zip(found.tokens.tolist(), shown.tolist(), strict=True):
        named = [token for token, there in zip(tokens, real, strict=True) if there]
        assert len(set(named)) == len(named)


@pytest.mark.parametrize("k", [0, 8])
def test_the_score_of_a_given_token(k: int) -> None:
    logits, weights, values = draw(3, 9, 20, k)
    tokens = torch.arange(9)
    expected = dense(logits, weights, values).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(score_tokens(logits, weights, values, tokens).double(), expected, atol=1e-5, rtol=1e-5)
