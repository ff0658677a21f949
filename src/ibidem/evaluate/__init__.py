"""Quality, significance and speed of translations, and a description of the machine they were measured on."""

from ibidem.evaluate.evaluation import Comparison, Score, Speed, SystemResult, compare, evaluate_systems, score
from ibidem.evaluate.machine import describe_machine

__all__ = [
    "Comparison",
    "Score",
    "Speed",
    "SystemResult",
    "compare",
    "describe_machine",
    "evaluate_systems",
    "score",
]
