"""Settings that cannot be meant, and what auto means."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.errors import UsageError
from ibidem.learn.cluster import ClusterSettings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "kmeans"}, "'kmeans': use one of auto, dbscan, birch, none"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"eps": float("inf")}, "eps is inf"),
        ({"threshold": -1.0}, "threshold is -1.0"),
        ({"min_samples": 0}, "min_samples is 0.*1 or more"),
        ({"family_bound": 1}, "family_bound is 1.*2 or more"),
        ({"smallest": 0}, "smallest is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"eps_quantile": 0.0}, "eps_quantile is 0.0"),
        ({"eps_quantile": 1.5}, "eps_quantile is 1.5"),
    ],
)
def test_errors_say_what_to_give(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClusterSettings(**wrong)


def test_auto_is_the_papers_choice() -> None:
    assert ClusterSettings().choose_method(99_999_999) == "dbscan"
    assert ClusterSettings().choose_method(100_000_000) == "birch"
    assert ClusterSettings(method="birch").choose_method(5) == "birch"
    assert ClusterSettings(method="none").choose_method(10**9) == "none"
