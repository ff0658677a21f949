"""Paired bootstrap (Koehn, 2004) from the n-gram counts of every sentence, over several seeds of each system.

For one seed of each system it is the test of `ibidem.evaluate.compare`, draw for draw. Counts, unlike translations,
hold no text and can be published with the results.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MATCHES = "bleu"
"""Name of the array of counts that is stored with a result."""
SAMPLES = 1000
SEED = 12345
SIGNIFICANT = 0.05


class Difference(NamedTuple):
    """The difference between the mean scores of two systems.

    Attributes:
        value: System minus baseline, in BLEU.
        p_value: As sacreBLEU's paired bootstrap computes it: the share of resamples whose absolute difference, less
            its mean, exceeds |value|.
        half_width: Half of the 95 % bootstrap interval of the difference.
        seeds: Runs of the baseline and of the system.
    """

    value: float
    p_value: float
    half_width: float
    seeds: tuple[int, int]

    @property
    def significant(self) -> bool:
        """Return whether p is below 0.05."""
        return self.p_value < SIGNIFICANT


class Resampled(NamedTuple):
    """A run and its bootstrap resamples.

    Attributes:
        sentences: Number of sentences.
        score: Corpus BLEU.
        samples: Corpus BLEU of each resample, [samples].
    """

    sentences: int
    score: float
    samples: NDArray[np.float64]


def count_matches(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """Count what BLEU counts in each sentence.

    Args:
        hypotheses: The translations.
        references: A reference for each, in the same order.

    Returns:
        [sentences, 10]: length of the hypothesis and of the reference, then matches and totals of 1- to 4-grams.
    """
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # which changes a sentence's score, not its counts
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = metric.sentence_score(hypothesis, [reference])
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals])
    return np.array(rows, dtype=np.int64).reshape(-1, 10)


def bleu_of(counts: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """Compute corpus BLEU from counts.

    Args:
        counts: [10], the sum over all sentences of what `count_matches` returns.

    Examples:
        >>> round(bleu_of(count_matches(["Close the small window."], ["Close the window."]).sum(axis=0)), 1)
        30.2
    """
    from sacrebleu.metrics.bleu import BLEU

    length, reference, *rest = (int(number) for number in counts)
    return float(BLEU.compute_bleu(rest[:4], rest[4:], length, reference, smooth_method="exp").score)


def resample(counts: NDArray[np.int64], *, samples: int = SAMPLES, seed: int = SEED) -> Resampled:
    """Compute the BLEU of a run and of its resamples; runs with the same number of sentences share the draws.

    Args:
        counts: [sentences, 10], as `count_matches` returns them.
        samples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        The number of sentences, the score and the scores of the resamples.
    """
    drawn = _draw(len(counts), samples, seed) @ counts.astype(np.float64)  # whole numbers, exact in floats
    return Resampled(len(counts), bleu_of(counts.sum(axis=0)), np.array([bleu_of(row) for row in drawn]))


def compare_seeds(baseline: Sequence[Resampled], system: Sequence[Resampled]) -> Difference:
    """Compare the mean BLEU over the runs of two systems on one test set.

    Args:
        baseline: Runs of the baseline, one for each seed.
        system: Runs of the system; all runs must have the same sentences and draws.

    Returns:
        The difference of the means, system minus baseline.
    """
    real = [float(np.mean([run.score for run in runs])) for runs in (baseline, system)]
    means = [np.mean([run.samples for run in runs], axis=0) for runs in (baseline, system)]
    differences, value = means[1] - means[0], real[1] - real[0]
    spread = np.abs(differences) - np.abs(differences).mean()
    p_value = (int(np.sum(spread > abs(value))) + 1) / (len(differences) + 1) if value else 1.0
    low, high = np.quantile(differences, [0.025, 0.975])
    return Difference(value, p_value, float(high - low) / 2, (len(baseline), len(system)))


@lru_cache(maxsize=8)
def _draw(sentences: int, samples: int, seed: int) -> NDArray[np.float64]:
    """Count how often each resample draws each sentence, [samples, sentences], with sacreBLEU's draws."""
    drawn = np.random.default_rng(seed).choice(sentences, size=(samples, sentences), replace=True)
    return np.array([np.bincount(chosen, minlength=sentences) for chosen in drawn], dtype=np.float64)
