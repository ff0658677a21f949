"""BLEU and chrF of translations with sacreBLEU's signatures, and paired bootstrap resampling of two systems."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sacrebleu.metrics.base import Metric

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class Score:
    """Hold the value of a metric.

    Args:
        name: "BLEU" or "chrF".
        value: From 0 to 100.
        signature: sacreBLEU's signature of how it was computed.
    """

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Comparison:
    """Hold the comparison of two systems by one metric.

    Args:
        metric: "BLEU" or "chrF".
        baseline: Score of the baseline.
        system: Score of the system.
        baseline_half_width: Half-width of the baseline's 95% confidence interval over the resamples.
        system_half_width: The same of the system.
        p_value: Probability of such a difference by chance, two-sided.
        samples: Number of resamples.
        seed: Seed of the resamples.
        signature: sacreBLEU's signature of how it was computed.
    """

    metric: str
    baseline: float
    system: float
    baseline_half_width: float
    system_half_width: float
    p_value: float
    samples: int
    seed: int
    signature: str

    @property
    def significant(self) -> bool:
        """Whether the difference, in either direction, is significant (p < 0.05)."""
        return self.p_value < SIGNIFICANCE_LEVEL


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Score hypotheses against one reference each.

    Args:
        hypotheses: The translations.
        references: A reference for each, in the same order.

    Returns:
        Corpus BLEU, then corpus chrF.

    Raises:
        UsageError: The numbers of lines differ, or there are none.

    Examples:
        >>> [f"{found.name} {found.value:.1f}" for found in score(["Paste the text here."], ["Paste the text here."])]
        ['BLEU 100.0', 'chrF 100.0']
    """
    _check_lengths(references, hypotheses=hypotheses)
    scores = []
    for name, metric in _build_metrics(references).items():
        value = metric.corpus_score(hypotheses, None).score
        scores.append(Score(name, float(value), str(metric.get_signature())))
    return scores


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = 1000,
    seed: int = 12345,
) -> list[Comparison]:
    """Compare two systems with sacreBLEU's paired bootstrap resampling (Koehn 2004), two-sided.

    Args:
        baseline: Translations of the baseline.
        system: Translations of the system, in the same order.
        references: A reference for each, in the same order.
        samples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The comparison by BLEU, then by chrF; systems of equal score have a p value of 1.

    Raises:
        UsageError: The numbers of lines differ, there are none, or samples or seed is below 1.
    """
    _check_lengths(references, baseline=baseline, system=system)
    if samples < 1:
        raise UsageError(f"Invalid samples {samples}: give 1 or more; 1000 is usual.")
    if seed < 1:
        # sacreBLEU 2.6 reads the seed 0 as "no seed", and its draws are then different each time.
        raise UsageError(f"Invalid seed {seed}: give 1 or more; sacreBLEU does not repeat its draws for 0.")

    from sacrebleu.significance import PairedTest, Result

    metrics = _build_metrics(references)
    with _sacrebleu_seed(seed):
        test = PairedTest(
            [("baseline", baseline), ("system", system)],
            metrics,
            references=None,
            test_type="bs",
            n_samples=samples,
        )
    signatures, table = test()

    comparisons = []
    # sacreBLEU renames the metrics ("chrF2") but keeps their order.
    for name, (renamed, signature) in zip(metrics, signatures.items(), strict=True):
        first, second = (result for result in table[renamed] if isinstance(result, Result))
        # The bootstrap test sets all three, though their types allow None.
        assert first.ci is not None
        assert second.ci is not None
        assert second.p_value is not None
        # sacreBLEU counts only resamples that differ by more than the scores do, so a system compared with itself
        # would be significant, with p = 1 / (samples + 1).
        p_value = second.p_value if first.score != second.score else 1.0
        comparisons.append(
            Comparison(
                metric=name,
                baseline=float(first.score),
                system=float(second.score),
                baseline_half_width=float(first.ci),
                system_half_width=float(second.ci),
                p_value=float(p_value),
                samples=samples,
                seed=seed,
                signature=str(signature),
            )
        )
    return comparisons


def _build_metrics(references: Sequence[str]) -> dict[str, Metric]:
    """Build sacreBLEU's default metrics by name, with one reference a sentence already counted in each.

    BLEU has 13a tokenisation, case and exponential smoothing; chrF is chrF2, character 6-grams without words.
    """
    # sacrebleu imports numpy and takes long to load, so it is imported only to measure.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"BLEU": BLEU(references=[references]), "chrF": CHRF(references=[references])}


def _check_lengths(references: Sequence[str], **systems: Sequence[str]) -> None:
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


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set sacreBLEU's seed, which it reads from the environment, and restore the environment afterwards."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
