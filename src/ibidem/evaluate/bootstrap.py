"""Paired bootstrap resampling (Koehn, 2004) from the counts of every sentence: two-sided p, 95 % interval, Holm.

Counts, unlike translations, hold no text and can be published with results. Systems with several runs (seeds) are
compared by their mean score; both sentences and runs are drawn, so that p and interval cover both sources of variance.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

SAMPLES = 10_000
SEED = 12345
SIGNIFICANCE_LEVEL = 0.05
CONFIDENCE = 0.95
# Drawn sentences that are kept in memory for the next run of the same length (4 bytes each), and those of one block.
_CACHED_DRAWS = 1 << 25
_BLOCK_DRAWS = 1 << 22
# Whole numbers up to here are exact in single precision.
_EXACT = 1 << 24
_BLEU_ORDER, _CHRF_ORDER, _CHRF_FACTOR = 4, 6, 4


class Difference(NamedTuple):
    """The difference between the scores of two systems.

    Attributes:
        value: Mean score of the system minus that of the baseline.
        low: Lower end of the 95 % interval of the difference.
        high: Upper end of it.
        p_value: Two-sided: twice the share of resamples in which the difference is zero or has the other sign.
        seeds: Runs of the baseline and of the system. Where a number is 1, the variance of that system over seeds is
            unknown, and interval and p cover the sentences only.
    """

    value: float
    low: float
    high: float
    p_value: float
    seeds: tuple[int, int]

    @property
    def significant(self) -> bool:
        """Whether p is below 0.05, without a correction for other comparisons."""
        return self.p_value < SIGNIFICANCE_LEVEL


class Resampled(NamedTuple):
    """A run and its bootstrap resamples.

    Attributes:
        sentences: Number of sentences.
        score: Score of the corpus.
        samples: [samples] score of each resample.
    """

    sentences: int
    score: float
    samples: NDArray[np.float64]


def count_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """Count what BLEU counts in each sentence.

    Args:
        hypotheses: The translations.
        references: A reference for each, in the same order.

    Returns:
        [sentences, 10]: length of the hypothesis and of the reference, then matches and totals of 1- to 4-grams.
    """
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)  # which changes a sentence's score, not its counts
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found = metric.sentence_score(hypothesis, [reference])
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals])
    return np.array(rows, dtype=np.int64).reshape(-1, 2 + 2 * _BLEU_ORDER)


def count_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """Count what chrF counts in each sentence.

    Args:
        hypotheses: The translations.
        references: A reference for each, in the same order.

    Returns:
        [sentences, 18]: for character 1- to 6-grams the number in the hypothesis, in the reference, and of matches.
    """
    import numpy as np
    from sacrebleu.metrics.chrf import CHRF

    # sacreBLEU has no public function that returns the counts of chrF.
    counts = CHRF()._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(counts, dtype=np.int64).reshape(-1, 3 * _CHRF_ORDER)


def score_bleu(counts: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute corpus BLEU with exponential smoothing, as sacreBLEU does.

    Args:
        counts: [..., 10] sums over the sentences of a corpus of what `count_bleu` returns.

    Returns:
        [...] BLEU from 0 to 100.

    Examples:
        >>> float(score_bleu(count_bleu(["Close the small window."], ["Close the window."]).sum(axis=0)).round(1))
        30.2
    """
    import numpy as np

    length, reference = counts[..., 0].astype(np.float64), counts[..., 1].astype(np.float64)
    matches = counts[..., 2 : 2 + _BLEU_ORDER].astype(np.float64)
    totals = counts[..., 2 + _BLEU_ORDER :].astype(np.float64)
    # The j-th order without a match counts 1 / 2^j matches.
    missing = np.cumsum(matches == 0, axis=-1)
    smoothed = np.where(matches > 0, matches, 0.5**missing)
    defined = (matches > 0).any(axis=-1) & (totals > 0).all(axis=-1)
    precisions = np.log(smoothed / np.maximum(totals, 1)).mean(axis=-1)
    brevity = np.minimum(0.0, 1 - reference / np.maximum(length, 1))
    return np.where(defined, 100 * np.exp(precisions + brevity), 0.0)


def score_chrf(counts: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute corpus chrF2 as sacreBLEU does.

    Args:
        counts: [..., 18] sums over the sentences of a corpus of what `count_chrf` returns.

    Returns:
        [...] chrF from 0 to 100.
    """
    import numpy as np

    hypothesis, reference, matches = (counts[..., place::3].astype(np.float64) for place in range(3))
    known = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(known.sum(axis=-1), 1)
    precision = np.where(known, matches / np.maximum(hypothesis, 1), 0).sum(axis=-1) / orders
    recall = np.where(known, matches / np.maximum(reference, 1), 0).sum(axis=-1) / orders
    weighted = _CHRF_FACTOR * precision + recall
    found: NDArray[np.float64] = 100 * (1 + _CHRF_FACTOR) * precision * recall / np.where(weighted > 0, weighted, 1)
    return found


def resample(
    runs: Sequence[NDArray[np.int64]],
    score: Callable[[NDArray[np.float64]], NDArray[np.float64]] = score_bleu,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Resampled]:
    """Score runs on one test set and their resamples; runs with as many sentences share the draws, which pairs them.

    Args:
        runs: [sentences, counts] of each run, as `count_bleu` or `count_chrf` returns them.
        score: The metric, `score_bleu` or `score_chrf`.
        samples: Number of resamples.
        seed: Seed of the draws, which are those of sacreBLEU.

    Returns:
        The number of sentences, the score and the scores of the resamples of each run.

    Raises:
        UsageError: The runs have different numbers of sentences, there are none, or samples or seed is too small.
    """
    import numpy as np

    if not runs or len({len(counts) for counts in runs}) != 1 or not len(runs[0]):
        raise UsageError("Runs can be compared on one test set of one or more sentences: give runs of equal length.")
    if samples < 1:
        raise UsageError(f"Invalid samples {samples}: give 1 or more; {SAMPLES:,} is usual.")
    if seed < 0:
        raise UsageError(f"Invalid seed {seed}: give 0 or more.")
    sentences, width = runs[0].shape
    counts = np.concatenate(list(runs), axis=1)
    single = sentences * int(counts.max(initial=0)) < _EXACT
    counts = counts.astype(np.float32 if single else np.float64)
    sums = np.concatenate([drawn @ counts for drawn in _draw(sentences, samples, seed)]).astype(np.float64)
    return [
        Resampled(sentences, float(score(run.sum(axis=0))), score(sums[:, number * width : (number + 1) * width]))
        for number, run in enumerate(runs)
    ]


def compare_runs(
    baseline: Sequence[Resampled], system: Sequence[Resampled], *, paired: bool = False, seed: int = SEED
) -> Difference:
    """Compare the mean scores of two systems over their runs.

    Sentences and runs are drawn independently. To the resampled difference of the mean scores comes, for each system of
    n > 1 runs, the deviation of the mean of n drawn scores from that of all, times √(n / (n − 1)), without which the
    variance over runs would be underestimated. Drawing runs inside each resample would count three times what differs
    between runs in single sentences; so it is counted twice, and the interval is rather too wide than too short,
    unless the runs of a system differ much more than sentences explain.

    Args:
        baseline: Runs of the baseline, one for each seed.
        system: Runs of the system; all runs must have the same sentences and draws.
        paired: Whether the n-th runs of both systems share what was trained with their seed; then pairs of runs are
            drawn, and the deviation is that of their differences.
        seed: Seed of the draws of runs.

    Returns:
        The difference of the means, system minus baseline, with its interval and p value.

    Raises:
        UsageError: A system has no run, the runs were resampled differently, or paired systems have different numbers
            of runs.
    """
    import numpy as np

    if not baseline or not system:
        raise UsageError("Both systems need one run or more.")
    if len({(run.sentences, len(run.samples)) for run in (*baseline, *system)}) != 1:
        raise UsageError("Runs can be compared only on the same sentences with the same number of resamples.")
    if paired and len(baseline) != len(system):
        raise UsageError(f"{len(baseline)} and {len(system)} runs cannot be paired: give as many of each system.")
    scores = [np.array([run.score for run in runs]) for runs in (baseline, system)]
    means = [np.mean([run.samples for run in runs], axis=0) for runs in (baseline, system)]
    value = float(scores[1].mean() - scores[0].mean())
    differences = means[1] - means[0]
    if paired:
        differences = differences + _draw_deviations(scores[1] - scores[0], len(differences), (seed, 0))
    else:
        for place, sign in enumerate((-1, 1)):
            differences = differences + sign * _draw_deviations(scores[place], len(differences), (seed, place))
    opposite = min(int(np.sum(differences <= 0)), int(np.sum(differences >= 0)))
    p_value = min(1.0, 2 * (opposite + 1) / (len(differences) + 1))
    low, high = np.quantile(differences, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Difference(value, float(low), float(high), p_value, (len(baseline), len(system)))


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Adjust the p values of several comparisons with Holm's method.

    Args:
        p_values: The p values of one family of comparisons, in any order.

    Returns:
        The adjusted p values in the same order: with these below 0.05, the chance that one or more of the family is
        significant by chance is below 5 %.

    Examples:
        >>> adjust_p_values([0.02, 0.01, 0.9])
        [0.04, 0.03, 0.9]
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def format_p_value(p_value: float) -> str:
    """Format a p value with three digits.

    Args:
        p_value: From 0 to 1.

    Examples:
        >>> format_p_value(0.0321), format_p_value(0.0002), format_p_value(0.99996)
        ('0.032', '< 0.001', '1.000')
    """
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _draw_deviations(scores: NDArray[np.float64], samples: int, seed: tuple[int, int]) -> NDArray[np.float64]:
    """Return the deviation of the mean of drawn scores from that of all in each resample, [samples], scaled."""
    import numpy as np

    if len(scores) == 1:
        return np.zeros(samples)
    drawn = np.random.default_rng(seed).integers(len(scores), size=(samples, len(scores)))
    scale = np.sqrt(len(scores) / (len(scores) - 1))
    deviations: NDArray[np.float64] = scale * (scores[drawn].mean(axis=1) - scores.mean())
    return deviations


def _draw(sentences: int, samples: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """Yield blocks of how often each resample draws each sentence, [block, sentences]."""
    small = sentences * samples <= _CACHED_DRAWS
    yield from _draw_once(sentences, samples, seed) if small else _draw_blocks(sentences, samples, seed)


@lru_cache(maxsize=2)
def _draw_once(sentences: int, samples: int, seed: int) -> tuple[NDArray[np.float32], ...]:
    return tuple(_draw_blocks(sentences, samples, seed))


def _draw_blocks(sentences: int, samples: int, seed: int) -> Iterator[NDArray[np.float32]]:
    import numpy as np

    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK_DRAWS // sentences)
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        drawn = generator.choice(sentences, size=(rows, sentences), replace=True)
        drawn += np.arange(rows)[:, None] * sentences
        counted = np.bincount(drawn.ravel(), minlength=rows * sentences)
        yield counted.reshape(rows, sentences).astype(np.float32)
