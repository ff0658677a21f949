"""What every objective is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Triplet(NamedTuple):
    """A batch of triplets in the compact space, and the tokens (values) they stand for.

    pivot, positive, negative: f_alpha(v*), f_alpha(v+), f_alpha(v-), each [B, c].
    words: [B] int64, of pivot and positive alike, as they share a cluster; negative_words: [B] int64.
    """

    pivot: Tensor
    positive: Tensor
    negative: Tensor
    words: Tensor
    negative_words: Tensor
