"""Neighbours and the base model's distribution into one distribution: pure functions on tensors, no I/O."""

from ibidem.combine.adaptive import AdaptiveCombiner, MetaK
from ibidem.combine.blending import blend, overlay
from ibidem.combine.fading import FadingCombiner, typical_distance
from ibidem.combine.fixed import FixedCombiner
from ibidem.combine.mixing import Combiner, Weights, aggregate, mix

__all__ = [
    "AdaptiveCombiner",
    "Combiner",
    "FadingCombiner",
    "FixedCombiner",
    "MetaK",
    "Weights",
    "aggregate",
    "blend",
    "mix",
    "overlay",
    "typical_distance",
]
