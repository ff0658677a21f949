"""Quantisers on a GPU: k-means (coarse), int8 codes (scalar) and product codes.

All of them give the same result on every run: sums of k-means are sums of integers, which do not depend on the order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# The squared length of the code of a place without a key. A score of at least half of it is infinite.
NO_CODE = 1 << 28
PQ_CENTRES = 256

_LARGEST_CODE = 127
# One component in this many is clipped by its code.
_CLIPPED = 2000
_INT8_SAMPLE = 1 << 16
_INT8_ROWS = 1 << 20
_KMEANS_ROUNDS = 8
# Sums are exact in steps of 2^-20.
_FIXED_POINT = 1 << 20
_PQ_SAMPLE = PQ_CENTRES * 256
_PQ_ROUNDS = 25
# Distances in memory at once.
_DISTANCES = 1 << 26
_PQ_DISTANCES = 1 << 27


class Int8Codes(NamedTuple):
    """Keys as int8 codes: half the bytes of float16, and twice the rate of matrix products.

    A code is a component, less the mean of all keys, in steps of one size for all components. Distances between codes
    are integers and differ from true ones only by rounding.

    Attributes:
        codes: [n, d] int8.
        squares: [n] int32, squared lengths of the codes, NO_CODE where there is no key.
        mean: [d] float32.
        scale: [1] float32, steps in a unit.
    """

    codes: Tensor
    squares: Tensor
    mean: Tensor
    scale: Tensor

    def encode(self, vectors: Tensor) -> Tensor:
        """Encode vectors like the keys.

        Args:
            vectors: [n, d].

        Returns:
            [n, d] int8.
        """
        return _encode(vectors, self.mean, self.scale)


def encode_keys(keys: Tensor, squares: Tensor) -> Int8Codes:
    """Encode keys as int8.

    Args:
        keys: [n, d].
        squares: [n], squared lengths, inf where there is no key.

    Returns:
        The codes, whose mean and scale are fitted to the keys.
    """
    mean, scale = _fit_int8(keys[torch.isfinite(squares)])
    codes = torch.empty(keys.shape, dtype=torch.int8, device=keys.device)
    lengths = torch.empty(len(keys), dtype=torch.int32, device=keys.device)
    for start in range(0, len(keys), _INT8_ROWS):
        rows = slice(start, start + _INT8_ROWS)
        codes[rows] = _encode(keys[rows].float(), mean, scale)
        lengths[rows] = codes[rows].int().square().sum(1, dtype=torch.int32)
    return Int8Codes(codes, lengths.masked_fill_(torch.isinf(squares), NO_CODE), mean, scale)


def cluster(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Compute k-means centres.

    Args:
        points: [n, d] float32 in random order, n >= count; the first ones are the initial centres.
        count: the number of centres.
        generator: draws a new point for a centre that has none.

    Returns:
        [count, d] float32.
    """
    centres = points[:count].clone()
    every = torch.arange(len(points), device=points.device)
    for _ in range(_KMEANS_ROUNDS if len(points) > count else 0):
        others = torch.randint(len(points), (count,), generator=generator).to(points.device)
        centres = _means(points, assign(points, every, centres), points[others])
    return centres


def assign(keys: Tensor, entries: Tensor, centres: Tensor) -> Tensor:
    """Find the nearest centre of some keys.

    Args:
        keys: [all, d].
        entries: [n] int64, the keys to assign.
        centres: [m, d] float32.

    Returns:
        [n] int64, numbers of centres.
    """
    if len(entries) == 0:
        return entries
    half_squares = centres.square().sum(1) / 2
    parts = torch.split(entries, max(1, _DISTANCES // len(centres)))
    return torch.cat([torch.addmm(half_squares, keys[own].float(), centres.T, alpha=-1).argmin(1) for own in parts])


def apply_product_codes(keys: Tensor, centroids: Tensor, lists: Tensor, code_bytes: int, seed: int) -> Tensor:
    """Encode keys by a product quantiser and decode them again.

    Every part of the difference of a key from its centroid becomes the nearest of 256 trained ones. A search of product
    codes finds what exact search finds among the decoded keys; a GPU has room for those, and then needs no tables.

    Args:
        keys: [n, d].
        centroids: [m, d], of the lists.
        lists: [n] int64, the list of each key, -1 where there is no key.
        code_bytes: parts of a key, each coded in one byte; must divide d.
        seed: of training.

    Returns:
        [n, d], in the type of the keys, zeros where there is no key.
    """
    entries = (lists >= 0).nonzero()[:, 0]
    decoded = torch.zeros_like(keys)
    if len(entries) == 0:
        return decoded
    generator = torch.Generator().manual_seed(seed)
    drawn = entries[torch.randperm(len(entries), generator=generator)[:_PQ_SAMPLE].to(keys.device)]
    centres = _train_parts(_split(keys[drawn].float() - centroids[lists[drawn]], code_bytes), generator)
    for own in torch.split(entries, max(1, _PQ_DISTANCES // (code_bytes * PQ_CENTRES))):
        own_centroids = centroids[lists[own]]
        nearest = _assign_parts(_split(keys[own].float() - own_centroids, code_bytes), centres)
        chosen = centres.gather(1, nearest[:, :, None].expand(-1, -1, centres.shape[2]))
        decoded[own] = (own_centroids + chosen.transpose(0, 1).flatten(1)).to(keys.dtype)
    return decoded


def _encode(vectors: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return ((vectors - mean) * scale + 0.5).floor().clamp(-_LARGEST_CODE, _LARGEST_CODE).to(torch.int8)


def _fit_int8(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean [d] of keys [n, d], and a scale [1] for which nearly all components fit into int8."""
    some = keys[:: max(1, len(keys) // _INT8_SAMPLE)].float()
    if len(some) == 0:
        return torch.zeros(keys.shape[1], device=keys.device), torch.ones(1, device=keys.device)
    mean = some.mean(0)
    deviations = (some - mean).abs().flatten().sort().values
    span = deviations[-1 - len(deviations) // _CLIPPED]
    span = torch.where(span > 0, span, deviations[-1])
    return mean, (_LARGEST_CODE / torch.where(span > 0, span, 1.0)).view(1)


def _means(points: Tensor, assigned: Tensor, otherwise: Tensor) -> Tensor:
    """Return the mean of the points [n, d] assigned [n] to each centre, and `otherwise` [m, d] where there are none."""
    counts = torch.bincount(assigned, minlength=len(otherwise))[:, None]
    sums = torch.zeros(otherwise.shape, dtype=torch.long, device=points.device)
    sums.index_add_(0, assigned, (points.double() * _FIXED_POINT).round().long())
    return torch.where(counts > 0, (sums / counts.clamp_min(1) / _FIXED_POINT).float(), otherwise)


def _split(differences: Tensor, parts: int) -> Tensor:
    """Split [n, d] into [parts, n, d / parts]."""
    return differences.view(len(differences), parts, -1).transpose(0, 1).contiguous()


def _train_parts(points: Tensor, generator: torch.Generator) -> Tensor:
    """Compute k-means in every part: points [parts, n, w], in random order -> centres [parts, at most 256, w]."""
    centres = points[:, :PQ_CENTRES].clone()
    for _ in range(_PQ_ROUNDS if points.shape[1] > PQ_CENTRES else 0):
        nearest = _assign_parts(points, centres)
        others = torch.randint(points.shape[1], (centres.shape[1],), generator=generator).to(points.device)
        centres = torch.stack([_means(own, nearest[part], own[others]) for part, own in enumerate(points)])
    return centres


def _assign_parts(points: Tensor, centres: Tensor) -> Tensor:
    """Return the nearest centre [parts, n] of points [parts, n, w] among [parts, m, w]."""
    half_squares = centres.square().sum(2)[:, None, :] / 2
    return torch.baddbmm(half_squares, points, centres.transpose(1, 2), alpha=-1).argmin(2)
