"""Quality, significance and speed of translations, and a description of the machine they were measured on."""

from ibidem.evaluate.bootstrap import (
    SAMPLES,
    SEED,
    SIGNIFICANCE_LEVEL,
    Difference,
    Resampled,
    adjust_p_values,
    compare_runs,
    count_bleu,
    format_p_value,
    resample,
    score_bleu,
)
from ibidem.evaluate.evaluation import Comparison, Score, Speed, SystemResult, compare, evaluate_systems, score
from ibidem.evaluate.machine import describe_machine
from ibidem.evaluate.terms import collect_terms, count_terms, score_terms

__all__ = [
    "SAMPLES",
    "SEED",
    "SIGNIFICANCE_LEVEL",
    "Comparison",
    "Difference",
    "Resampled",
    "Score",
    "Speed",
    "SystemResult",
    "adjust_p_values",
    "collect_terms",
    "compare",
    "compare_runs",
    "count_bleu",
    "count_terms",
    "describe_machine",
    "evaluate_systems",
    "format_p_value",
    "resample",
    "score",
    "score_bleu",
    "score_terms",
]
