"""Neighbours and the base model's distribution into one distribution: pure functions on tensors, no I/O."""

from ibidem.combine.adaptive import AdaptiveCombiner, MetaK, neighbour_counts, spread_choices
from ibidem.combine.blending import average_weights, overlay_weights
from ibidem.combine.candidates import Candidates, best_candidates, score_tokens
from ibidem.combine.fading import BANDWIDTH, SHORT_BANDWIDTH, DistanceDecayCombiner, typical_distance
from ibidem.combine.fixed import FixedCombiner
from ibidem.combine.mixing import Combiner, Weights, aggregate, distance_kernel, first_occurrences, mix
from ibidem.combine.native import NativeCombiner, to_native
from ibidem.combine.storing import StoredCombiner, restore_adaptive, restore_fixed, store_adaptive, store_fixed

__all__ = [
    "BANDWIDTH",
    "SHORT_BANDWIDTH",
    "AdaptiveCombiner",
    "Candidates",
    "Combiner",
    "DistanceDecayCombiner",
    "FixedCombiner",
    "MetaK",
    "NativeCombiner",
    "StoredCombiner",
    "Weights",
    "aggregate",
    "average_weights",
    "best_candidates",
    "distance_kernel",
    "first_occurrences",
    "mix",
    "neighbour_counts",
    "overlay_weights",
    "restore_adaptive",
    "restore_fixed",
    "score_tokens",
    "spread_choices",
    "store_adaptive",
    "store_fixed",
    "to_native",
    "typical_distance",
]
