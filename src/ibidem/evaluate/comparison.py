"""Is one system better than another? Paired bootstrap resampling on the same test set."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.evaluate.quality import build_metrics, check_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """Two systems under one metric, and how likely their difference is to be chance.

    The half-widths are those of the 95% confidence intervals over the same resamples.
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
        """Whether the difference, in either direction, is unlikely to be chance (p < 0.05)."""
        return self.p_value < SIGNIFICANCE_LEVEL


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the seed where sacreBLEU looks for it, the environment, and put back what was there."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = 1000,
    seed: int = 12345,
) -> list[Comparison]:
    """Compare two systems by BLEU, then chrF, with sacreBLEU's paired bootstrap resampling (Koehn, 2004).

    The test is two-sided. Two systems with the same score have a p value of 1.
    Raises UsageError if the counts differ, there is nothing to compare, or samples or seed is below 1.
    """
    check_lengths(references, baseline=baseline, system=system)
    if samples < 1:
        raise UsageError(f"samples is {samples}: resampling needs at least 1, and 1000 is usual.")
    if seed < 1:
        # sacreBLEU 2.6 takes the seed 0 for "no seed" and would draw differently each time.
        raise UsageError(f"seed is {seed}: sacreBLEU repeats its draws only for seeds of 1 and above.")

    from sacrebleu.significance import PairedTest, Result

    metrics = build_metrics(references)
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
        # the bootstrap test sets all three; mypy cannot know
        assert first.ci is not None
        assert second.ci is not None
        assert second.p_value is not None
        # sacreBLEU counts only resamples that differ by more than the real scores do, and so calls a system
        # compared with itself significant, p = 1 / (samples + 1); but no difference is no evidence at all.
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
