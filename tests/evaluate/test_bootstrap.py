"""The paired bootstrap against sacreBLEU's resamples, against all possible resamples, and on simulated data."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import _bootstrap_resample

from ibidem.errors import UsageError
from ibidem.evaluate import adjust_p_values, bootstrap, compare, compare_runs, count_bleu, resample, score_bleu
from ibidem.evaluate.bootstrap import Resampled, count_chrf, score_chrf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SENTENCES = Path(__file__).parents[2] / "src" / "ibidem" / "reproduce" / "sentences.tsv"
REFERENCES = [line.split("\t")[2] for line in SENTENCES.read_text(encoding="utf-8").splitlines()[:120]]


def garble(lines: Sequence[str], share: float, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() > share) or "x" for line in lines]


def mean_of(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """A metric whose distribution is known: the mean of the first column over the sentences counted in the second."""
    found: NDArray[np.float64] = sums[..., 0] / sums[..., 1]
    return found


def as_counts(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([values, np.ones_like(values)], axis=1)


@pytest.mark.parametrize(
    ("count", "score", "metric"), [(count_bleu, score_bleu, BLEU()), (count_chrf, score_chrf, CHRF())]
)
def test_resamples_are_those_of_sacrebleu(count, score, metric) -> None:
    hypotheses = garble(REFERENCES, 0.3, 1)
    [run] = resample([count(hypotheses, REFERENCES)], score, samples=50)
    assert run.score == pytest.approx(metric.corpus_score(hypotheses, [REFERENCES]).score)
    # sacreBLEU's function returns the real score and the resamples as score objects.
    _, theirs = _bootstrap_resample(metric._extract_corpus_statistics(hypotheses, [REFERENCES]), metric, 50)
    assert run.samples == pytest.approx([found.score for found in theirs])


@given(
    lines=st.lists(st.text("ab .", max_size=12), min_size=1, max_size=4),
    references=st.lists(st.text("ab .", max_size=12), min_size=4, max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_scores_of_odd_texts_are_those_of_sacrebleu(lines: list[str], references: list[str]) -> None:
    references = references[: len(lines)]
    for count, score, metric in ((count_bleu, score_bleu, BLEU()), (count_chrf, score_chrf, CHRF())):
        found = float(score(count(lines, references).sum(axis=0)))
        assert found == pytest.approx(metric.corpus_score(lines, [references]).score, abs=1e-9)


def test_p_and_interval_are_those_of_all_possible_resamples() -> None:
    baseline, system = np.array([3, 1, 4, 1, 5, 9]), np.array([4, 3, 3, 2, 7, 10])
    every = np.array(
        [[values[list(drawn)].mean() for values in (baseline, system)] for drawn in product(range(6), repeat=6)]
    )
    differences = every[:, 1] - every[:, 0]
    found = compare_runs(
        *([run] for run in resample([as_counts(baseline), as_counts(system)], mean_of, samples=50_000))
    )
    assert found.value == pytest.approx((system - baseline).mean())
    exact = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    assert 0.01 < exact < 0.2
    assert found.p_value == pytest.approx(exact, rel=0.1)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])), abs=0.2)


def simulate(rounds: int, seeds: int, effect: float, between: float, alone: float = 14.0) -> list[bootstrap.Difference]:
    """Compare two systems whose sentences and runs are drawn from populations with a known difference.

    The systems differ by sentence (standard deviation 14); runs differ as a whole (`between`) and in each sentence
    (`alone`).
    """
    random = np.random.default_rng(seeds)
    found = []
    for _ in range(rounds):
        shared = random.normal(0, 20, size=200)  # some sentences are harder for both systems
        groups = []
        for mean, own in ((1000.0, shared), (1000.0 + effect, shared + random.normal(0, 14, size=200))):
            runs = [
                np.rint(mean + random.normal(0, between) + own + random.normal(0, alone, size=200)).astype(np.int64)
                for _ in range(seeds)
            ]
            groups.append(resample([as_counts(run) for run in runs], mean_of, samples=400))
        found.append(compare_runs(*groups))
    return found


@pytest.mark.parametrize(("seeds", "between", "alone"), [(1, 0.0, 7.0), (3, 0.0, 2.0), (3, 0.6, 7.0), (5, 1.5, 7.0)])
def test_under_no_difference_p_is_uniform_and_the_interval_covers_zero(
    seeds: int, between: float, alone: float
) -> None:
    found = simulate(500, seeds, 0.0, between, alone)
    p_values = np.array([difference.p_value for difference in found])
    assert 0.92 <= np.mean([difference.low <= 0 <= difference.high for difference in found]) <= 0.98
    for level in (0.1, 0.25, 0.5, 0.75):
        assert (p_values <= level).mean() == pytest.approx(level, abs=0.06)


def test_pairs_of_runs_that_share_their_training_are_compared_as_pairs() -> None:
    random = np.random.default_rng(1)
    covered, widths = [], []
    for _ in range(400):
        shared, easier = random.normal(0, 20, size=200), random.normal(0, 14, size=200)
        trained = random.normal(0, 5, size=3)  # what a seed's compactor adds to both systems
        groups = [
            resample(
                [as_counts(np.rint(1000 + own + seed + random.normal(0, 3, 200)).astype(np.int64)) for seed in trained],
                mean_of,
                samples=400,
            )
            for own in (shared, shared + easier)
        ]
        paired, alone = (compare_runs(*groups, paired=choice) for choice in (True, False))
        assert paired.value == alone.value
        covered.append(paired.low <= 0 <= paired.high)
        widths.append((paired.high - paired.low, alone.high - alone.low))
    assert 0.91 <= np.mean(covered) <= 0.98
    assert np.mean(widths, axis=0)[0] < 0.6 * np.mean(widths, axis=0)[1]
    with pytest.raises(UsageError, match="cannot be paired"):
        compare_runs(groups[0], groups[1][:2], paired=True)


def test_the_interval_covers_a_true_difference() -> None:
    found = simulate(400, 3, 4.0, 0.6)
    assert 0.92 <= np.mean([difference.low <= 4.0 <= difference.high for difference in found]) <= 0.985
    assert np.mean([difference.significant for difference in found]) > 0.5


def test_the_variance_over_seeds_counts() -> None:
    widths = [np.mean([d.high - d.low for d in simulate(40, 3, 0.0, between)]) for between in (0.0, 4.0)]
    assert widths[1] > 1.5 * widths[0]


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=4), st.lists(st.floats(-3, 3), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_p_is_below_a_level_only_where_the_interval_excludes_zero(first: list[float], second: list[float]) -> None:
    noise = np.random.default_rng(0).normal(size=999)
    baseline, system = ([Resampled(10, mean, mean + noise) for mean in means] for means in (first, second))
    found = compare_runs(baseline, system)
    assert 0 < found.p_value <= 1
    assert found.low <= found.high
    if found.p_value < 0.05:
        assert found.low > 0 or found.high < 0
    if found.low > 0 or found.high < 0:
        assert found.p_value < 0.055
    back = compare_runs(system, baseline)
    assert back.value == pytest.approx(-found.value)
    assert back.p_value == pytest.approx(found.p_value, abs=0.25)


def test_a_system_does_not_differ_from_itself() -> None:
    [run] = resample([count_bleu(garble(REFERENCES, 0.2, 1), REFERENCES)], samples=50)
    assert compare_runs([run], [run]) == (0, 0, 0, 1, (1, 1))


def test_several_runs_count_by_their_mean() -> None:
    counts = [count_bleu(garble(REFERENCES, share, seed), REFERENCES) for seed, share in enumerate((0.1, 0.2, 0.3))]
    low, middle, high = resample(counts, samples=100)
    found = compare_runs([middle], [low, high])
    assert found.value == pytest.approx((low.score + high.score) / 2 - middle.score)
    assert found.seeds == (1, 2)


def test_one_run_each_is_the_test_of_evaluate() -> None:
    systems = [garble(REFERENCES, share, seed) for seed, share in enumerate((0.2, 0.22))]
    oracle = compare(*systems, REFERENCES, samples=200)[0]
    first, second = resample([count_bleu(system, REFERENCES) for system in systems], samples=200)
    found = compare_runs([first], [second])
    assert (found.value, found.low, found.high, found.p_value) == (
        oracle.difference,
        oracle.low,
        oracle.high,
        oracle.p_value,
    )


def test_large_sets_are_drawn_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count_bleu(garble(REFERENCES, 0.2, 1), REFERENCES)
    [whole] = resample([counts], samples=300, seed=3)
    monkeypatch.setattr(bootstrap, "_CACHED_DRAWS", 0)
    monkeypatch.setattr(bootstrap, "_BLOCK_DRAWS", 120 * 7)
    monkeypatch.setattr(bootstrap, "_EXACT", 0)
    [blocks] = resample([counts], samples=300, seed=3)
    assert blocks.samples == pytest.approx(whole.samples)


def test_the_adjusted_p_values_are_those_of_holm() -> None:
    assert adjust_p_values([]) == []
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_p_values([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_holm_holds_the_error_of_a_family() -> None:
    random = np.random.default_rng(0)
    wrong = [min(adjust_p_values(random.uniform(size=12).tolist())) < 0.05 for _ in range(2000)]
    assert np.mean(wrong) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(
    ("runs", "options"),
    [([], {}), ([np.zeros((0, 10), int)], {}), ([np.ones((2, 10), int), np.ones((3, 10), int)], {})],
)
def test_what_cannot_be_resampled_is_refused(runs, options) -> None:
    with pytest.raises(UsageError, match="equal length"):
        resample(runs, **options)


def test_runs_that_were_resampled_differently_cannot_be_compared() -> None:
    [run] = resample([np.ones((2, 10), int)], samples=5)
    [other] = resample([np.ones((2, 10), int)], samples=6)
    with pytest.raises(UsageError, match="same number of resamples"):
        compare_runs([run], [other])
    with pytest.raises(UsageError, match="one run or more"):
        compare_runs([run], [])
