"""Product codes, as what they stand for: every part of a key's distance from its centroid is the nearest of 256.

An index that searches codes finds what exact search finds among the keys that the codes stand for. On a GPU there is
room for those, and none of the reading of tables.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibidem.retrieve.partition import mean_of_each

CENTRES = 256

_SAMPLES = CENTRES * 256
_ROUNDS = 25
# Elements of distances held at once.
_ELEMENTS = 1 << 27


def code_and_decode(keys: Tensor, centroids: Tensor, lists: Tensor, parts: int, seed: int) -> Tensor:
    """What product codes of so many bytes say of keys [n, d]: centroids [m, d], lists [n] of the keys, -1 for none."""
    entries = (lists >= 0).nonzero()[:, 0]
    decoded = torch.zeros_like(keys)
    if len(entries) == 0:
        return decoded
    generator = torch.Generator().manual_seed(seed)
    drawn = entries[torch.randperm(len(entries), generator=generator)[:_SAMPLES].to(keys.device)]
    centres = _train(_parts_of(keys[drawn].float() - centroids[lists[drawn]], parts), generator)
    for own in torch.split(entries, max(1, _ELEMENTS // (parts * CENTRES))):
        own_centroids = centroids[lists[own]]
        nearest = _assign(_parts_of(keys[own].float() - own_centroids, parts), centres)
        chosen = centres.gather(1, nearest[:, :, None].expand(-1, -1, centres.shape[2]))
        decoded[own] = (own_centroids + chosen.transpose(0, 1).flatten(1)).to(keys.dtype)
    return decoded


def _parts_of(differences: Tensor, parts: int) -> Tensor:
    """[n, d] -> [parts, n, d / parts]."""
    return differences.view(len(differences), parts, -1).transpose(0, 1).contiguous()


def _train(points: Tensor, generator: torch.Generator) -> Tensor:
    """k-means in every part: points [parts, n, w], in random order -> centres [parts, at most 256, w]."""
    centres = points[:, :CENTRES].clone()
    for _ in range(_ROUNDS if points.shape[1] > CENTRES else 0):
        nearest = _assign(points, centres)
        others = torch.randint(points.shape[1], (centres.shape[1],), generator=generator).to(points.device)
        centres = torch.stack([mean_of_each(own, nearest[part], own[others]) for part, own in enumerate(points)])
    return centres


def _assign(points: Tensor, centres: Tensor) -> Tensor:
    """The nearest centre [parts, n] of points [parts, n, w] among [parts, m, w]."""
    half_squares = centres.square().sum(2)[:, None, :] / 2
    return torch.baddbmm(half_squares, points, centres.transpose(1, 2), alpha=-1).argmin(2)
