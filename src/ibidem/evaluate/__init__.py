"""Quality, significance and speed of translations, and a description of the machine they were measured on."""

from ibidem.evaluate.evaluation import Speed, SystemResult, evaluate_systems
from ibidem.evaluate.machine import describe_machine
from ibidem.evaluate.quality import Comparison, Score, compare, score

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
