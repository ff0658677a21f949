from __future__ import annotations

import random

import pytest

from ibidem.evaluate import compare, score
from ibidem.reproduce.bootstrap import bleu_of, compare_seeds, count_matches, resample

from .made_up import make_counts


def garble(lines: list[str], share: float, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(word for word in line.split() if draw.random() > share) or "x" for line in lines]


@pytest.fixture(scope="module")
def references(sentences) -> list[str]:
    return [sentence.english for sentence in sentences[:120]]


def test_counts_add_up_to_the_score_of_the_corpus(references: list[str]) -> None:
    hypotheses = garble(references, 0.2, 1)
    assert bleu_of(count_matches(hypotheses, references).sum(axis=0)) == pytest.approx(
        score(hypotheses, references)[0].value
    )


def test_nothing_translated_scores_nothing() -> None:
    assert bleu_of(count_matches([""], ["A reference."]).sum(axis=0)) == 0


@pytest.mark.parametrize(("first", "second"), [(0.2, 0.3), (0.21, 0.2), (0.2, 0.2)])
def test_one_run_each_is_the_test_of_evaluate(references: list[str], first: float, second: float) -> None:
    systems = [garble(references, share, seed) for seed, share in enumerate((first, second))]
    oracle = compare(*systems, references, samples=200)[0]
    found = compare_seeds(*([resample(count_matches(system, references), samples=200)] for system in systems))
    assert found.value == pytest.approx(oracle.system - oracle.baseline)
    assert found.p_value == pytest.approx(oracle.p_value)


def test_a_system_does_not_differ_from_itself() -> None:
    run = resample(make_counts(0.6), samples=50)
    found = compare_seeds([run], [run])
    assert (found.value, found.p_value, found.half_width) == (0, 1, 0)


def test_several_runs_count_by_their_mean() -> None:
    counts = [make_counts(quality, seed) for quality, seed in ((0.5, 1), (0.6, 2), (0.7, 3))]
    low, middle, high = (resample(run, samples=100) for run in counts)
    found = compare_seeds([middle], [low, high])
    scores = [bleu_of(run.sum(axis=0)) for run in counts]
    assert found.value == pytest.approx((scores[0] + scores[2]) / 2 - scores[1])
    assert found.seeds == (1, 2)
    back = compare_seeds([low, high], [middle])
    assert (back.value, back.p_value) == pytest.approx((-found.value, found.p_value))
