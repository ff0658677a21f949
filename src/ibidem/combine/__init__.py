"""Neighbours and the base model's distribution into one distribution: pure functions on tensors, no I/O."""

from ibidem.combine.adaptive import AdaptiveCombiner, MetaK
from ibidem.combine.blending import blend, overlay
from ibidem.combine.candidates import Candidates, best_candidates, score_tokens
from ibidem.combine.fading import FadingCombiner, typical_distance
from ibidem.combine.fixed import FixedCombiner
from ibidem.combine.mixing import Combiner, Weights, aggregate, mix

__all__ = [
    "AdaptiveCombiner",
    "Candidates",
    "Combiner",
    "FadingCombiner",
    "FixedCombiner",
    "MetaK",
    "Weights",
    "aggregate",
    "best_candidates",
    "blend",
    "mix",
    "overlay",
    "score_tokens",
    "typical_distance",
]
