"""Paired bootstrap (Koehn, 2004) from the counts of every sentence, over several seeds of each system at once.

For one seed of each it is the test of `ibidem.evaluate.compare`, draw for draw; but the counts, unlike the
translations, hold no text and can travel with the results.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MATCHES = "bleu"
SAMPLES = 1000
SEED = 12345
SIGNIFICANT = 0.05


class Difference(NamedTuple):
    """By how much the mean score of one system is above another's, how likely that is chance, and over how many runs.

    half_width: half of the 95 % interval of the difference.
    """

    value: float
    p_value: float
    half_width: float
    seeds: tuple[int, int]

    @property
    def significant(self) -> bool:
        return self.p_value < SIGNIFICANT


class Resampled(NamedTuple):
    """The BLEU of one run of so many sentences, and of each of its resamples [samples]."""

    sentences: int
    score: float
    samples: NDArray[np.float64]


def count_matches(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """What BLEU counts in each sentence: [n, 10] lengths of both, then matches and totals of 1- to 4-grams."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # which changes a sentence's score, not its counts
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = metric.sentence_score(hypothesis, [reference])
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals])
    return np.array(rows, dtype=np.int64).reshape(-1, 10)


def bleu_of(counts: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """Corpus BLEU of summed counts [10]."""
    from sacrebleu.metrics.bleu import BLEU

    length, reference, *rest = (int(number) for number in counts)
    return float(BLEU.compute_bleu(rest[:4], rest[4:], length, reference, smooth_method="exp").score)


def resample(counts: NDArray[np.int64], *, samples: int = SAMPLES, seed: int = SEED) -> Resampled:
    """The BLEU of a run, counts [n, 10], and of its resamples; runs of as many sentences draw the same ones."""
    drawn = _draw(len(counts), samples, seed) @ counts.astype(np.float64)  # whole numbers, exact in floats
    return Resampled(len(counts), bleu_of(counts.sum(axis=0)), np.array([bleu_of(row) for row in drawn]))


def compare_seeds(baseline: Sequence[Resampled], system: Sequence[Resampled]) -> Difference:
    """Compare the mean BLEU over the runs of two systems on one test set, all resampled alike."""
    real = [float(np.mean([run.score for run in runs])) for runs in (baseline, system)]
    means = [np.mean([run.samples for run in runs], axis=0) for runs in (baseline, system)]
    differences, value = means[1] - means[0], real[1] - real[0]
    spread = np.abs(differences) - np.abs(differences).mean()
    p_value = (int(np.sum(spread > abs(value))) + 1) / (len(differences) + 1) if value else 1.0
    low, high = np.quantile(differences, [0.025, 0.975])
    return Difference(value, p_value, float(high - low) / 2, (len(baseline), len(system)))


@lru_cache(maxsize=8)
def _draw(sentences: int, samples: int, seed: int) -> NDArray[np.float64]:
    """How often each resample draws each sentence, [samples, sentences]; sacreBLEU's own draws."""
    drawn = np.random.default_rng(seed).choice(sentences, size=(samples, sentences), replace=True)
    return np.array([np.bincount(chosen, minlength=sentences) for chosen in drawn], dtype=np.float64)
