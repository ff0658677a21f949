"""Invalid settings are refused, with the valid ones."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

from ibidem.errors import UsageError
from ibidem.learn.prune import PruneSettings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"strategy": "magic"},
            "use one of cost-clusters, redundant, random, low-probability, high-probability, spatial.",
        ),
        ({"groups": "word"}, "use one of token, ngram, consistent."),
        ({"method": "kmeans"}, "use one of greedy, dbscan, birch."),
        ({"rule": "ceil"}, "use one of exact, floor."),
        ({"rate": 1.0}, "from 0 to below 1, not 1.0"),
        ({"rate": -0.1}, "from 0 to below 1, not -0.1"),
        ({"rate": float("nan")}, "from 0 to below 1, not nan"),
        ({"epsilon": 0.0}, "above 0, not 0.0"),
        ({"epsilon": float("inf")}, "above 0, not inf"),
        ({"n": 0}, "n must be a whole number from 1 up, not 0"),
        ({"group_n": 0}, "group_n must be a whole number from 1 up, not 0"),
        ({"consistent_neighbours": 0}, "consistent_neighbours must be a whole number from 1 up, not 0"),
        ({"consistent_neighbours": 17}, "consistent_neighbours is at most 16"),
        ({"min_samples": 0}, "min_samples must be a whole number from 1 up, not 0"),
        ({"seed": -1}, "seed must be a whole number from 0 up, not -1"),
        ({"n": 1.5}, "n must be a whole number from 1 up, not 1.5"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        PruneSettings(**wrong)


def test_the_share_kept_is_exact() -> None:
    assert PruneSettings(rate=0.9).kept_share == Fraction(1, 10)
    assert PruneSettings(rate=0.123456).kept_share == Fraction(876544, 10**6)
    assert PruneSettings(rate=0.0).kept_share == 1


def test_groups_share_one_token_or_more() -> None:
    assert PruneSettings().grouped_tokens == 3
    assert PruneSettings(strategy="random").grouped_tokens == 1
    assert PruneSettings(groups="token").grouped_tokens == 1
    assert PruneSettings(strategy="random", groups="ngram", group_n=2).grouped_tokens == 2
