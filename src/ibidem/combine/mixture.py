"""The mixture of the base model's distribution with weighted neighbours.

p(y) = w_0 p_NMT(y) + sum of w_j over the neighbours j whose value is y. The mixture is sparse: apart from the factor
w_0, only the probabilities of the neighbours' values change, so no distribution of the neighbours over the vocabulary
is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.native import best_of_mixture, native, runs_triton

if TYPE_CHECKING:
    from collections.abc import Sequence


class Weights(NamedTuple):
    """Weights of the base model and of the neighbours, which sum to 1 in each row.

    Attributes:
        base: The weight of the base model, [r].
        neighbours: The weight of each neighbour, [r, K].
    """

    base: Tensor
    neighbours: Tensor


class Candidates(NamedTuple):
    """The most probable next tokens of each row, best first.

    Attributes:
        log_probs: Their log-probabilities [r, m], -inf where a row has fewer tokens.
        tokens: Their ids [r, m].
        normalisers: The log-sum-exp of the logits of each row [r]; None where it was not computed.
    """

    log_probs: Tensor
    tokens: Tensor
    normalisers: Tensor | None = None


def mix(log_probs: Tensor, weights: Weights, values: Tensor) -> Tensor:
    """Compute the log-probabilities of the mixture over the whole vocabulary.

    Args:
        log_probs: Log-probabilities of the base model, [r, V].
        weights: The weights of base model and neighbours; an absent neighbour has weight 0.
        values: Token ids of the neighbours, [r, K]; any id in range for an absent neighbour.

    Returns:
        Log-probabilities [r, V].

    Examples:
        >>> import torch
        >>> base = torch.tensor([[0.5, 0.25, 0.25]]).log()
        >>> weights = Weights(torch.tensor([0.5]), torch.tensor([[0.25, 0.25]]))
        >>> mix(base, weights, torch.tensor([[2, 2]])).exp()
        tensor([[0.2500, 0.1250, 0.6250]])
    """
    mixed = log_probs + weights.base.log()[:, None]
    if values.shape[1] == 0:
        return mixed
    with_neighbours = torch.logaddexp(mixed.gather(1, values), aggregate(weights.neighbours, values).log())
    return mixed.scatter_(1, values, with_neighbours)


def best_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None = None
) -> Candidates:
    """Find the most probable tokens of the mixture without computing the whole mixture.

    Tokens that no neighbour has keep the order of the base model's logits. The m best tokens of the mixture are
    therefore among the m best logits and the neighbours' values, and only these are scored.

    Args:
        logits: Logits of the base model, [r, V]; they may be overwritten at the banned tokens.
        weights: The weights of base model and neighbours.
        values: Token ids of the neighbours, [r, K].
        count: How many tokens to return; all where the vocabulary is smaller.
        banned: Ids of tokens to leave out [b]. The probabilities of the others do not change.

    Returns:
        The best tokens [r, count] of each row.

    Examples:
        >>> import torch
        >>> weights = Weights(torch.tensor([0.5]), torch.tensor([[0.5]]))
        >>> best_candidates(torch.zeros(1, 5), weights, torch.tensor([[3]]), count=1).tokens
        tensor([[3]])
    """
    if runs_triton(logits):
        from ibidem.combine import kernels

        if max(count, values.shape[1]) <= kernels.MOST:
            return Candidates(*kernels.best_of_mixture(logits, weights, values, min(count, logits.shape[1]), banned))
    if logits.is_cpu and logits.dtype == torch.float32 and native() is not None:
        return _native_candidates(logits, weights, values, count, banned)
    return candidates_in_torch(logits, weights, values, count, banned)


def _native_candidates(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None
) -> Candidates:
    left_out = () if banned is None else tuple(banned.tolist())
    wanted = min(count, logits.shape[1] - len(left_out))
    neighbours = {} if values.shape[1] == 0 else {"base": weights.base, "weights": weights.neighbours, "values": values}
    normalisers = torch.empty(len(logits), dtype=torch.float32)
    found = best_of_mixture(logits, wanted, banned=left_out, normalisers=normalisers, **neighbours)
    return Candidates(found.scores, found.tokens, normalisers)


def candidates_in_torch(
    logits: Tensor, weights: Weights, values: Tensor, count: int, banned: Tensor | None = None
) -> Candidates:
    """Find the most probable tokens of the mixture in torch, on any device; see `best_candidates`.

    Args:
        logits: Logits of the base model, [r, V]; they may be overwritten at the banned tokens.
        weights: The weights of base model and neighbours.
        values: Token ids of the neighbours, [r, K].
        count: How many tokens to return; all where the vocabulary is smaller.
        banned: Ids of tokens to leave out, [b].

    Returns:
        The best tokens [r, count] of each row.
    """
    logits = logits.float()
    shift = weights.base.log()[:, None] - logits.logsumexp(dim=1, keepdim=True)
    if banned is not None:
        logits.index_fill_(1, banned, -torch.inf)
    top, tokens = logits.topk(min(count, logits.shape[1]), dim=1)
    plain = top + shift
    if values.shape[1] == 0:
        return Candidates(plain, tokens)
    retrieved = torch.logaddexp(logits.gather(1, values) + shift, aggregate(weights.neighbours, values).log())
    left_out = ~first_occurrences(values)
    if banned is not None:
        left_out |= torch.isin(values, banned)
    known = (tokens[:, :, None] == values[:, None, :]).any(dim=2)
    scores = torch.cat([plain.masked_fill(known, -torch.inf), retrieved.masked_fill(left_out, -torch.inf)], dim=1)
    best, places = scores.topk(tokens.shape[1], dim=1)
    return Candidates(best, torch.cat([tokens, values], dim=1).gather(1, places))


def score_tokens(logits: Tensor, weights: Weights, values: Tensor, tokens: Tensor) -> Tensor:
    """Compute the log-probability [r] in the mixture of one given token [r] in each row.

    Args:
        logits: Logits of the base model, [r, V].
        weights: The weights of base model and neighbours.
        values: Token ids of the neighbours, [r, K].
        tokens: One token id a row, [r].

    Returns:
        Log-probabilities [r].
    """
    base = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(dim=1) + weights.base.log()
    if values.shape[1] == 0:
        return base
    return torch.logaddexp(base, (weights.neighbours * (values == tokens[:, None])).sum(dim=1).log())


def average_weights(weights: Sequence[Weights], memory_weights: Sequence[float]) -> Weights:
    """Average the weights of several memories to those of one mixture.

    p = sum over the memories m of a_m p_m, where p_m = w_m0 p_NMT + sum of w_mj over the neighbours of m. At every
    step a_m is proportional to s_m (1 - w_m0), where s_m is the weight that the user gave the memory. With constant
    a_m, a memory without near neighbours would weaken one that has them. The same memory given twice counts once.

    Args:
        weights: The weights of each memory's own mixture, [r] and [r, K_m].
        memory_weights: s_m, above 0.

    Returns:
        One weight of the base model [r], and the neighbours [r, K_1 + K_2 + …] of all memories in their order.

    Examples:
        >>> import torch
        >>> near, none = (Weights(torch.tensor([1 - w]), torch.tensor([[w]])) for w in (0.5, 0.0))
        >>> average_weights([near, none], [1.0, 1.0])
        Weights(base=tensor([0.5000]), neighbours=tensor([[0.5000, 0.0000]]))
    """
    pairs = zip(weights, memory_weights, strict=True)
    scaled = torch.stack([own.neighbours.sum(dim=1) * memory_weight for own, memory_weight in pairs], dim=1)
    total = scaled.sum(dim=1, keepdim=True)
    parts = torch.where(total > 0, scaled / total.clamp_min(torch.finfo(scaled.dtype).tiny), 0.0)
    base = (parts * torch.stack([own.base for own in weights], dim=1)).sum(dim=1)
    neighbours = torch.cat([own.neighbours * parts[:, m : m + 1] for m, own in enumerate(weights)], dim=1)
    return Weights(torch.where(total.squeeze(1) > 0, base, 1.0), neighbours)


def overlay_weights(under: Weights, over: Weights) -> Weights:
    """Compute the weights of `over` with the mixture of `under` in the place of the base model.

    Args:
        under: The weights of the mixture that takes the place of the base model, [r] and [r, K_under].
        over: The weights of the mixture above it, [r] and [r, K_over].

    Returns:
        One weight of the base model [r], and the neighbours of `under`, then of `over`, [r, K_under + K_over].

    Examples:
        >>> import torch
        >>> half = Weights(torch.tensor([0.5]), torch.tensor([[0.5]]))
        >>> overlay_weights(half, half)
        Weights(base=tensor([0.2500]), neighbours=tensor([[0.2500, 0.5000]]))
    """
    return Weights(over.base * under.base, torch.cat([over.base[:, None] * under.neighbours, over.neighbours], dim=1))


def same_values(values: Tensor) -> Tensor:
    """Return which neighbours of a row have the same value, [r, K, K].

    Args:
        values: Token ids of the neighbours, [r, K].
    """
    return values[:, :, None] == values[:, None, :]


def first_occurrences(values: Tensor) -> Tensor:
    """Return which neighbours are the nearest of their value, [r, K].

    Args:
        values: Token ids of the neighbours, nearest first, [r, K].

    Examples:
        >>> import torch
        >>> first_occurrences(torch.tensor([[7, 9, 7]]))
        tensor([[ True,  True, False]])
    """
    width = values.shape[1]
    earlier = torch.ones(width, width, dtype=torch.bool, device=values.device).tril(-1)
    return ~(same_values(values) & earlier).any(dim=2)


def aggregate(weights: Tensor, values: Tensor) -> Tensor:
    """Sum the weights of all neighbours in a row that have the same value.

    Args:
        weights: The weight of each neighbour, [r, K].
        values: Token ids of the neighbours, [r, K].

    Returns:
        For each neighbour the sum over its value, [r, K].

    Examples:
        >>> import torch
        >>> aggregate(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[7, 9, 7]]))
        tensor([[0.7500, 0.2500, 0.7500]])
    """
    return (same_values(values).to(weights.dtype) @ weights[:, :, None]).squeeze(2)


def present(distances: Tensor) -> Tensor:
    """Return which neighbours exist, [r, K]: those at a finite distance.

    Args:
        distances: Squared distances of the neighbours, [r, K].
    """
    return torch.isfinite(distances)


def distance_kernel(distances: Tensor, temperature: float) -> Tensor:
    """Compute exp(-d / T) up to one factor a row.

    Args:
        distances: Squared distances of the neighbours, [r, K]; infinite for an absent neighbour.
        temperature: T, above 0.

    Returns:
        Kernel values [r, K], 1 for the nearest neighbour and 0 for an absent one.
    """
    there = present(distances)
    scaled = torch.where(there, -distances / temperature, -torch.inf)
    nearest = scaled.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0) if scaled.shape[1] else scaled
    return torch.where(there, (scaled - nearest).exp(), 0.0)
