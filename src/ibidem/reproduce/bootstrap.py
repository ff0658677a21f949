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


def count_matches(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """What BLEU counts in each sentence: [n, 10] lengths of both, then matches and totals of 1- to 4-grams."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # which changes a sentence's score, not its counts
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = metric.sentence_score(hypothesis, [reference])
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals])
    return np.array(rows, dtype=np.int64).reshape(-1, 10)


def bleu_of(counts: NDArray[np.int64]) -> float:
    """Corpus BLEU of summed counts [10]."""
    from sacrebleu.metrics.bleu import BLEU

    length, reference, *rest = (int(number) for number in counts)
    return float(BLEU.compute_bleu(rest[:4], rest[4:], length, reference, smooth_method="exp").score)


def compare_seeds(
    baseline: Sequence[NDArray[np.int64]],
    system: Sequence[NDArray[np.int64]],
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> Difference:
    """Compare the mean BLEU over the runs of two systems on one test set; each run is counts [n, 10].

    Every resample draws the same sentences for all runs of both systems.
    """
    draws = _draw(len(baseline[0]), samples, seed)
    resampled, real = [], []
    for runs in (baseline, system):
        real.append(float(np.mean([bleu_of(run.sum(axis=0)) for run in runs])))
        resampled.append(np.mean([[bleu_of(counts) for counts in draws @ run] for run in runs], axis=0))
    differences = resampled[1] - resampled[0]
    value = real[1] - real[0]
    spread = np.abs(differences) - np.abs(differences).mean()
    p_value = (int(np.sum(spread > abs(value))) + 1) / (samples + 1) if value else 1.0
    low, high = np.quantile(differences, [0.025, 0.975])
    return Difference(value, p_value, float(high - low) / 2, (len(baseline), len(system)))


@lru_cache(maxsize=8)
def _draw(sentences: int, samples: int, seed: int) -> NDArray[np.int64]:
    """How often each resample draws each sentence, [samples, sentences]; sacreBLEU's own draws."""
    drawn = np.random.default_rng(seed).choice(sentences, size=(samples, sentences), replace=True)
    return np.array([np.bincount(chosen, minlength=sentences) for chosen in drawn])
