from __future__ import annotations

import pytest

from ibidem.reproduce.bootstrap import Difference
from ibidem.reproduce.tables import open_table, orderings, quality

from ..made_up import cells_of, put_score


def difference(value: float, p_value: float = 0.01, half_width: float = 0.2) -> Difference:
    return Difference(value, p_value, half_width, (1, 1))


@pytest.mark.parametrize(
    ("judge", "found", "verdict"),
    [
        (orderings.above, difference(1), "true"),
        (orderings.above, difference(-1), "false"),
        (orderings.above, difference(1, p_value=0.05), "undecided"),
        (orderings.below, difference(-1), "true"),
        (orderings.below, difference(1), "false"),
        (orderings.below, difference(-1, p_value=0.3), "undecided"),
        (orderings.close, difference(0.7), "true"),
        (orderings.close, difference(-1.5), "false"),
        (orderings.close, difference(0.9), "undecided"),
        (orderings.close, difference(0.0, half_width=3), "undecided"),
    ],
)
def test_one_comparison(judge, found, verdict) -> None:
    assert judge(found) == verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([1.0, 2.0], "true"), ([1.0, None], "true"), ([1.0, -1.0], "false"), ([None, None], "not run"), ([], "not run")],
)
def test_a_claim_holds_where_no_comparison_refutes_it(values, verdict) -> None:
    tests = tuple(orderings.Comparison("somewhere", None if value is None else difference(value)) for value in values)
    assert orderings.Claim("a claim", tests, orderings.above).verdict() == verdict


def test_an_undecided_comparison_leaves_a_claim_undecided() -> None:
    tests = (orderings.Comparison("a", difference(1)), orderings.Comparison("b", difference(1, p_value=0.5)))
    assert orderings.Claim("a claim", tests, orderings.above).verdict() == "undecided"


def test_verdicts_from_the_rows_that_are_there(plan, results) -> None:
    grid = quality.build_domains(plan, "exact")
    put_score(results, grid.lines[quality.NMT]["it"].rows[0], 0.5)
    put_score(results, grid.lines[quality.ADAPTIVE]["it"].rows[0], 0.8)
    text = open_table("orderings").lay_out(plan, results)
    verdict, evidence = cells_of(text, "adaptive kNN-MT > NMT")
    assert verdict == "**true**"
    assert evidence.startswith("it +")
    assert cells_of(text, "CKMT* ≥ adaptive kNN-MT")[0] == "**not run**"
    shares = [claim.text for claim in orderings.claims(plan, results) if claim.text.startswith("graceful")]
    assert len(shares) == len(plan.shares) - 1
    assert quality.name_share(plan.shares[1]) in shares[0]
