"""BLEU and chrF of translations, each with the signature that makes the number reproducible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sacrebleu.metrics.base import Metric


@dataclass(frozen=True)
class Score:
    """One metric's value, 0 to 100, and sacreBLEU's full signature of how it was computed."""

    name: str
    value: float
    signature: str


def build_metrics(references: Sequence[str]) -> dict[str, Metric]:
    """Build the metrics of this room by name, with one reference a sentence already counted in each.

    BLEU is sacreBLEU's default: 13a tokenisation, case-sensitive, exponential smoothing.
    chrF is sacreBLEU's default too: chrF2, character 6-grams, no words.
    """
    # sacrebleu brings numpy and takes a noticeable moment to load: only those who measure should wait for it.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"BLEU": BLEU(references=[references]), "chrF": CHRF(references=[references])}


def check_lengths(references: Sequence[str], **systems: Sequence[str]) -> None:
    """Raise UsageError unless every system has one hypothesis for each of one or more references."""
    for name, hypotheses in systems.items():
        if isinstance(hypotheses, str) or isinstance(references, str):
            raise UsageError(f"{name} and references must be lists of sentences: split one string into its lines.")
        if len(hypotheses) != len(references):
            raise UsageError(
                f"{name} has {len(hypotheses)} sentences but there are {len(references)} references: "
                "give one line of each for every source sentence, in the same order."
            )
    if not references:
        raise UsageError("There is nothing to score: 0 hypotheses, 0 references. Give at least one line of each.")


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Score hypotheses against one reference each: corpus BLEU, then corpus chrF.

    Raises UsageError if the counts differ or there is nothing to score.
    """
    check_lengths(references, hypotheses=hypotheses)
    scores = []
    for name, metric in build_metrics(references).items():
        value = metric.corpus_score(hypotheses, None).score
        scores.append(Score(name, float(value), str(metric.get_signature())))
    return scores
