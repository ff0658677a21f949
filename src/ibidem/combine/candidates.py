"""The best tokens of the mixture, without the mixture: what beam search needs of a distribution.

Tokens that no neighbour has keep the order of the base model's logits, so the m best of the mixture are among the m
best logits and the neighbours' values. Only these are scored; nothing of the vocabulary's size is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.combine.mixing import aggregate, first_occurrences
from ibidem.native import best_of_mixture, native, runs_triton

if TYPE_CHECKING:
    from ibidem.combine.mixing import Weights


class Candidates(NamedTuple):
    """Log-probabilities and tokens [r, m] of a row's best tokens, best first; -inf where there is none."""

    log_probs: Tensor
    tokens: Tensor


def best_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None = None
) -> Candidates:
    """The `count` most probable tokens of each row [r, count], all where the vocabulary is smaller.

    logits: [r, V] of the base model, which may be overwritten at the banned tokens [b]; values: [r, K] of the
    neighbours. Banned tokens are left out, and the others' probabilities stay what they were.
    """
    if runs_triton(logits):
        from ibidem.combine.kernels import mixture

        if max(count, values.shape[1]) <= mixture.MOST:
            return Candidates(
                *mixture.best_of_mixture(logits, weights, values, min(count, logits.shape[1]), banned),
            )
    if logits.is_cpu and logits.dtype == torch.float32 and native() is not None:
        return _native_candidates(logits, weights, values, count, banned)
    return plain_candidates(logits, weights, values, count, banned)


def _native_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None
) -> Candidates:
    """In one pass over the logits."""
    left_out = () if banned is None else tuple(banned.tolist())
    wanted = min(count, logits.shape[1] - len(left_out))
    voting = {} if values.shape[1] == 0 else {"base": weights.base, "weights": weights.neighbours, "values": values}
    found = best_of_mixture(logits, wanted, banned=left_out, **voting)
    return Candidates(found.scores, found.tokens)


def plain_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None = None
) -> Candidates:
    """The same on any device, without the native library or Triton."""
    logits = logits.float()
    shift = weights.base.log()[:, None] - logits.logsumexp(dim=1, keepdim=True)
    if banned is not None:
        logits.index_fill_(1, banned, -torch.inf)
    top, tokens = logits.topk(min(count, logits.shape[1]), dim=1)
    plain = top + shift
    if values.shape[1] == 0:
        return Candidates(plain, tokens)
    voted = torch.logaddexp(logits.gather(1, values) + shift, aggregate(weights.neighbours, values).log())
    hidden = ~first_occurrences(values)
    if banned is not None:
        hidden |= torch.isin(values, banned)
    known = (tokens[:, :, None] == values[:, None, :]).any(dim=2)
    scores = torch.cat([plain.masked_fill(known, -torch.inf), voted.masked_fill(hidden, -torch.inf)], dim=1)
    best, places = scores.topk(tokens.shape[1], dim=1)
    return Candidates(best, torch.cat([tokens, values], dim=1).gather(1, places))


def score_tokens(logits: Tensor, weights: Weights, values: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability [r] in the mixture of one token [r] in each row."""
    base = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(dim=1) + weights.base.log()
    if values.shape[1] == 0:
        return base
    return torch.logaddexp(base, (weights.neighbours * (values == tokens[:, None])).sum(dim=1).log())
