"""Combiners in native code on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.combine.combiners import (
    AGREEMENT,
    SLOPE,
    TEMPERATURE,
    AdaptiveCombiner,
    Combiner,
    DistanceDecayCombiner,
    FixedCombiner,
)
from ibidem.combine.mixture import Weights
from ibidem.native import CombinerKernel, native

if TYPE_CHECKING:
    from torch import Tensor


class NativeCombiner:
    """A combiner whose weights native code computes; they are those of the combiner in torch."""

    def __init__(self, kernel: CombinerKernel) -> None:
        """Take the native form of a combiner."""
        self.kernel = kernel
        self.k = kernel.k

    def weigh(self, distances: Tensor, values: Tensor) -> Weights:
        """Compute the weights for squared distances [r, K], ascending, and values [r, K]."""
        return Weights(*self.kernel.weigh(distances, values))


def to_native(combiner: Combiner) -> Combiner:
    """Return the native form of a combiner on the CPU; the combiner itself where there is none."""
    kernel = None if native() is None else _make_kernel(combiner)
    return combiner if kernel is None else NativeCombiner(kernel)


def _make_kernel(combiner: Combiner) -> CombinerKernel | None:
    # A subclass may weigh otherwise.
    if type(combiner) is FixedCombiner:
        return CombinerKernel.fixed(combiner.k, combiner.weight, combiner.temperature)
    if type(combiner) is DistanceDecayCombiner:
        return CombinerKernel.distance_decay(
            combiner.k,
            bandwidth=combiner.bandwidth,
            slope=SLOPE * combiner.bandwidth,
            temperature=TEMPERATURE * combiner.bandwidth,
            weight=combiner.weight,
            agreement=AGREEMENT,
        )
    if type(combiner) is AdaptiveCombiner and combiner.network.scale.is_cpu:
        network = combiner.network
        inner, outer = ((layer.weight, layer.bias) for layer in (network.inner, network.outer))
        return CombinerKernel.meta_k(inner, outer, scale=float(network.scale), temperature=combiner.temperature)
    return None
