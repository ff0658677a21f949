"""Invalid settings are rejected, and auto is the paper's choice."""

from __future__ import annotations

from typing import Any

import pytest

from ibidem.errors import UsageError
from ibidem.learn.cluster import ClusterSettings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "kmeans"}, "'kmeans': use one of auto, dbscan, birch, none"),
        ({"eps": 0.0}, "Invalid eps 0.0"),
        ({"eps": float("inf")}, "Invalid eps inf"),
        ({"threshold": -1.0}, "Invalid threshold -1.0"),
        ({"min_samples": 0}, "Invalid min_samples 0.*1 or more"),
        ({"family_bound": 1}, "Invalid family_bound 1.*2 or more"),
        ({"smallest": 0}, "Invalid smallest 0"),
        ({"seed": -1}, "Invalid seed -1"),
        ({"eps_quantile": 0.0}, "Invalid eps_quantile 0.0"),
        ({"eps_quantile": 1.5}, "Invalid eps_quantile 1.5"),
    ],
)
def test_errors_name_the_setting_and_its_range(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ClusterSettings(**wrong)


def test_auto_is_the_papers_choice() -> None:
    assert ClusterSettings().choose_method(99_999_999) == "dbscan"
    assert ClusterSettings().choose_method(100_000_000) == "birch"
    assert ClusterSettings(method="birch").choose_method(5) == "birch"
    assert ClusterSettings(method="none").choose_method(10**9) == "none"
