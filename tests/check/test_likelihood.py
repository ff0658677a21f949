"""The check of a sample with the shipped model."""

from __future__ import annotations

import numpy as np
import pytest

from ibidem.check import Action, CheckReport, check_sample, score_pairs
from ibidem.check.text_check import Sampled
from ibidem.text import Pair


@pytest.fixture(scope="module")
def model():
    from ibidem.model import load_model

    return load_model(device="cpu")


@pytest.fixture(scope="module")
def texts(sentences) -> list[tuple[str, str]]:
    return [(one.german, one.english) for one in sentences[:24]]


def check(model, texts: list[tuple[str, str]]) -> CheckReport:
    report = CheckReport("a", len(texts), len(texts), True, [])
    pairs = [Pair(source, target, "a.tsv", number) for number, (source, target) in enumerate(texts)]
    check_sample(report, [Sampled(number, pair) for number, pair in enumerate(pairs)], model)
    return report


def test_scores_are_those_of_the_model(model, texts: list[tuple[str, str]]) -> None:
    sources, targets = [text[0] for text in texts[:5]], [text[1] for text in texts[:5]]
    scores = score_pairs(model, sources, targets)
    for row in range(5):
        wanted = model.tokens.encode_targets(targets[row : row + 1])
        _, found = model.force_decode(model.tokens.encode_sources(sources[row : row + 1]), wanted)
        assert scores.tokens[row] == len(wanted[0])
        assert np.isclose(scores.total[row], float(found.sum()), rtol=1e-3)
        assert np.isclose(scores.least[row], float(found.min()), rtol=1e-3)


def test_good_pairs_pass(model, texts: list[tuple[str, str]]) -> None:
    report = check(model, texts)
    assert (report.sample["misaligned"], report.sample["swapped"]) == (0, 0)
    assert not report.refused


def test_exchanged_and_misaligned_pairs_are_refused(model, texts: list[tuple[str, str]]) -> None:
    report = check(model, [(target, source) for source, target in texts])
    assert report.sample["swapped"] > 20
    assert report.refused
    targets = [target for _, target in texts]
    report = check(
        model, [(source, target) for (source, _), target in zip(texts, targets[7:] + targets[:7], strict=True)]
    )
    assert report.sample["misaligned"] > 12
    assert [finding.name for finding in report.findings if finding.action is Action.REFUSE] == ["misaligned"]


def test_too_few_pairs_are_not_scored(model, texts: list[tuple[str, str]]) -> None:
    assert check(model, texts[:1]).sample == {}
