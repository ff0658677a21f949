from __future__ import annotations

import pytest

from ibidem.evaluate import Difference, adjust_p_values
from ibidem.reproduce import paper
from ibidem.reproduce.results import digest
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables import claims, default, open_table, quality

from ..made_up import cells_of, put_all, put_score


def difference(value: float, p_value: float = 0.01, half_width: float = 0.2) -> Difference:
    return Difference(value, value - half_width, value + half_width, p_value, (1, 1))


@pytest.mark.parametrize(
    ("judge", "found", "verdict"),
    [
        (claims.above, difference(1), "true"),
        (claims.above, difference(-1), "false"),
        (claims.above, difference(1, p_value=0.05), "undecided"),
        (claims.below, difference(-1), "true"),
        (claims.below, difference(1), "false"),
        (claims.below, difference(-1, p_value=0.3), "undecided"),
        (claims.close, difference(0.7), "true"),
        (claims.close, difference(-1.5), "false"),
        (claims.close, difference(0.9), "undecided"),
        (claims.close, difference(0.0, half_width=3), "undecided"),
        (claims.kept, difference(0.1, p_value=0.6), "true"),
        (claims.kept, difference(1.0), "true"),
        (claims.kept, difference(-0.3), "false"),
        (claims.kept, difference(-0.4, p_value=0.06), "undecided"),
        (claims.dropped, difference(-1.3), "true"),
        (claims.dropped, difference(-0.7), "false"),
        (claims.dropped, difference(-1.1), "undecided"),
        (claims.far_above, difference(1.3), "true"),
        (claims.far_above, difference(0.7), "false"),
        (claims.far_above, difference(1.1), "undecided"),
    ],
)
def test_one_comparison(judge, found, verdict) -> None:
    assert judge(found, found.p_value) == verdict


def make_claim(values: list[tuple[float, float] | None]) -> claims.Claim:
    """A claim whose comparisons have these values and adjusted p values."""
    tests = tuple(
        claims.Comparison("somewhere", None)
        if value is None
        else claims.Comparison("somewhere", difference(value[0]), value[1], min(1.0, 10 * value[1]))
        for value in values
    )
    return claims.Claim("a claim", "+1", tests, claims.above)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([(1, 0.01), (2, 0.01)], "true"),
        ([(1, 0.01), None], "true"),
        ([(1, 0.01), (-1, 0.01)], "false"),
        ([(1, 0.01), (1, 0.5)], "undecided"),
        ([None, None], "not run"),
        ([], "not run"),
    ],
)
def test_a_claim_holds_where_no_comparison_refutes_it(values, verdict) -> None:
    assert make_claim(values).verdict() == verdict


def test_the_strict_verdict_has_the_correction_for_all_claims() -> None:
    claim = make_claim([(1, 0.01)])
    assert (claim.verdict(), claim.verdict(strict=True)) == ("true", "undecided")


def test_both_corrections_are_those_of_holm(plan, results) -> None:
    grid = quality.build_domains(plan, "exact")
    for label, score in ((quality.NMT, 0.5), (quality.ADAPTIVE, 0.53), (quality.CKMT, 0.54)):
        for domain in ("it", "koran"):
            put_score(results, grid.lines[label][domain].rows[0], score + 0.01 * (domain == "it"))
    found = claims.claims(plan, results)
    run = [test for claim in found for test in claim.tests if test.difference is not None]
    assert len(run) == 6  # two pairs of systems in two domains, and the two averages
    assert [test.table_adjusted for test in run] == adjust_p_values([test.difference.p_value for test in run])
    for claim in found:
        tests = [test for test in claim.tests if test.difference is not None]
        assert [test.adjusted for test in tests] == adjust_p_values([test.difference.p_value for test in tests])


def test_verdicts_from_the_rows_that_are_there(plan, results) -> None:
    grid = quality.build_domains(plan, "exact")
    put_score(results, grid.lines[quality.NMT]["it"].rows[0], 0.5)
    put_score(results, grid.lines[quality.ADAPTIVE]["it"].rows[0], 0.8)
    text = open_table("orderings").lay_out(plan, results)
    printed, verdict, evidence, why = cells_of(text, "adaptive kNN-MT > NMT in every domain (exact search)")
    assert printed.startswith("+8.85, +3.13")
    assert verdict == "**true**"
    assert evidence.startswith("it +")
    assert why == ""
    missing = text[text.index("Not run, so without a verdict") :]
    assert "CKMT* > adaptive kNN-MT in every domain (exact search)" in missing
    shares = [claim.text for claim in claims.claims(plan, results) if claim.text.startswith("slow decay")]
    assert len(shares) == len(plan.shares) - 1
    assert quality.name_share(plan.shares[1]) in shares[0]


def test_an_average_is_that_of_the_domains(plan, results) -> None:
    grid = quality.build_domains(plan, "exact")
    scores = {}
    for label, shift in ((quality.NMT, 0.0), (quality.ADAPTIVE, 0.1)):
        for domain, score in (("it", 0.5), ("law", 0.7)):
            scores[label, domain] = put_score(results, grid.lines[label][domain].rows[0], score + shift)
    found = grid.compare_averages(results, quality.NMT, quality.ADAPTIVE)
    gains = [scores[quality.ADAPTIVE, domain] - scores[quality.NMT, domain] for domain in ("it", "law")]
    assert found.value == pytest.approx(sum(gains) / 2)
    assert found.low < found.value < found.high
    assert grid.compare_averages(results, quality.ADAPTIVE, quality.CKMT) is None


def test_every_claim_can_be_tested(plan, results) -> None:
    tables = ("domains", "compact", "limited-data", "dimensions", "pruning", "redundancy", "pruning-curve", "latency")
    rows = {digest(row): row for name in tables for row in open_table(name).rows(plan)}
    put_all(results, [row for row in rows.values() if isinstance(row, Translation)])
    assert {claim.verdict() for claim in claims.claims(plan, results)} <= {"true", "false", "undecided"}


def test_the_papers_differences_are_those_of_its_numbers(plan, results) -> None:
    found = {claim.text: claim.printed for claim in claims.claims(plan, results)}
    assert found["word prediction does not help NCE"].startswith("-0.16")
    assert found["40 % of the data > adaptive kNN-MT"].startswith("+0.09")
    assert found["64 dimensions are best (dev set)"].startswith("+0.07 to 128")
    assert found["PCKMT*, k = 8, 30 % pruned, as printed > CKMT* and > adaptive kNN-MT"].startswith("+0.29, +0.36")
    assert paper.LATENCY_RATES == {16: 0.2, 8: 0.7, 4: 0.4}


def test_the_default_memory_has_claims_of_its_own(plan, results) -> None:
    grid = default.build_default(plan)
    before = claims.claims(plan, results)
    assert {claim.verdict() for claim in claims.default_claims(plan, results)} == {"not run"}
    put_score(results, grid.lines[quality.NMT]["it"].rows[0], 0.5)
    put_score(results, grid.lines[quality.DEFAULT]["it"].rows[0], 0.8)
    put_score(results, grid.lines[default.PRUNED]["it"].rows[0], 0.6)
    above, rival, pruned = claims.default_claims(plan, results)
    assert (above.verdict(), rival.verdict(), pruned.verdict()) == ("true", "not run", "false")
    assert [test.where for test in pruned.tests] == list(grid.lines[default.PRUNED])
    assert {test.where for test in above.tests} == {*plan.domains, "it (it+it-large)"}
    text = open_table("orderings").lay_out(plan, results)
    assert cells_of(text, "default memory > NMT everywhere")[:2] == ["adaptive kNN-MT > NMT", "**true**"]
    assert cells_of(text, "default memory > adaptive kNN-MT everywhere")[1:] == ["not run", ""]
    # they play no part in the corrections of the paper's claims
    assert [claim.text for claim in claims.claims(plan, results)] == [claim.text for claim in before]
