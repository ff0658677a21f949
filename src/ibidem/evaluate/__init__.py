"""Quality, significance and speed of translations, and the machine they were measured on."""

from ibidem.evaluate.comparison import Comparison, compare
from ibidem.evaluate.machine import describe_machine
from ibidem.evaluate.quality import Score, score
from ibidem.evaluate.speed import Speed
from ibidem.evaluate.systems import SystemResult, evaluate_systems

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
