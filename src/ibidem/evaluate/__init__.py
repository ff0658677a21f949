"""Quality, significance and speed of translations, and the machine they were measured on."""

from ibidem.evaluate.comparison import Comparison, compare
from ibidem.evaluate.machine import describe_machine
from ibidem.evaluate.quality import Score, score
from ibidem.evaluate.speed import Speed

__all__ = ["Comparison", "Score", "Speed", "compare", "describe_machine", "score"]
