"""The table of the paper's claims: each is true, false or undecided with the stored rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ibidem.reproduce.grid import format_difference, markdown
from ibidem.reproduce.tables import Table, compact, pruning, quality

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.reproduce.bootstrap import Difference
    from ibidem.reproduce.grid import Grid
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows import Row

TRUE, FALSE, UNDECIDED, UNTESTED = "true", "false", "undecided", "not run"
CLOSE = 1.0


@dataclass(frozen=True)
class Comparison:
    """One comparison that tests a claim.

    Attributes:
        where: Column of the table.
        difference: Difference between system and baseline; None where it was not run.
    """

    where: str
    difference: Difference | None


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        text: The claim, for the table.
        tests: Comparisons that test it.
        judge: Returns TRUE, FALSE or UNDECIDED for one difference.
    """

    text: str
    tests: tuple[Comparison, ...]
    judge: Callable[[Difference], str]

    def verdict(self) -> str:
        """Return false where one comparison refutes it, true where all that were run confirm it."""
        found = [self.judge(test.difference) for test in self.tests if test.difference is not None]
        if not found:
            return UNTESTED
        for word in (FALSE, UNDECIDED):
            if word in found:
                return word
        return TRUE


def above(difference: Difference) -> str:
    """Return true if the system is significantly above the baseline, false if it is significantly below.

    Args:
        difference: System minus baseline.
    """
    if not difference.significant:
        return UNDECIDED
    return TRUE if difference.value > 0 else FALSE


def below(difference: Difference) -> str:
    """Return true if the system is significantly below the baseline, false if it is significantly above.

    Args:
        difference: System minus baseline.
    """
    return {TRUE: FALSE, FALSE: TRUE}.get(above(difference), UNDECIDED)


def close(difference: Difference) -> str:
    """Return true if the 95 % interval of the difference lies within one BLEU point, false if it lies outside.

    Args:
        difference: System minus baseline.
    """
    low, high = difference.value - difference.half_width, difference.value + difference.half_width
    if low >= -CLOSE and high <= CLOSE:
        return TRUE
    return FALSE if low > CLOSE or high < -CLOSE else UNDECIDED


def claims(plan: Plan, results: Results) -> list[Claim]:
    """Return all tested claims, with exact search; those about the compact space with the paper's index too.

    Args:
        plan: Gives the grids that are compared.
        results: Results folder to read.
    """
    found: list[Claim] = []

    def tests(grid: Grid, baseline: str, system: str, columns: tuple[str, ...] | None = None) -> tuple[Comparison, ...]:
        return tuple(Comparison(c, grid.compare(results, baseline, system, c)) for c in columns or grid.columns)

    for index in plan.indexes:
        grid, suffix = quality.build_domains(plan, index), "" if index == "exact" else f" ({index} index)"
        found += [
            Claim(f"adaptive kNN-MT > NMT{suffix}", tests(grid, quality.NMT, quality.ADAPTIVE), above),
            Claim(f"CKMT* ≥ adaptive kNN-MT{suffix}", tests(grid, quality.ADAPTIVE, quality.CKMT), above),
            Claim(f"G-CKMT* close to CKMT*{suffix}", tests(grid, quality.CKMT, quality.GENERAL), close),
        ]
    grid = compact.build_methods(plan)
    found += [
        Claim("static ≥ dynamic pivots", tests(grid, "[DY] CKMT+NCE+CL", compact.STAR), above),
        Claim("clusters (CL) help", tests(grid, "[DY] CKMT+NCE", "[DY] CKMT+NCE+CL"), above),
        Claim("PCA below CKMT*", tests(grid, compact.STAR, compact.PCA), below),
        Claim("SVD below CKMT*", tests(grid, compact.STAR, compact.SVD), below),
        Claim("distance ranking alone harms", tests(grid, "[DY] CKMT+NCE", "[DY] CKMT+DR"), below),
    ]
    grid = pruning.build_pruning(plan)
    found += [
        Claim("cost clusters ≥ random at 10 %", tests(grid, pruning.RANDOM, pruning.OURS), above),
        Claim("random ≥ spatial at 10 %", tests(grid, pruning.SPATIAL, pruning.RANDOM), above),
    ]
    grid = pruning.build_curve(plan)
    for rate in plan.rates:
        ours, random = (pruning.name_point(label, rate) for label in (pruning.CURVE_OURS, pruning.CURVE_RANDOM))
        text = f"cost clusters ≥ random at {rate * 100:g} %, large memory"
        found.append(Claim(text, tests(grid, random, ours), above))
    grid = quality.build_limited_data(plan)
    whole = quality.name_share(plan.shares[0])
    for share in plan.shares[1:]:
        name = quality.name_share(share)
        found.append(Claim(f"graceful decay: {name} of the data close to all", tests(grid, whole, name), close))
    return found


def _rows(_plan: Plan) -> list[Row]:
    return []


def _lay_out(plan: Plan, results: Results) -> str:
    lines = []
    for claim in claims(plan, results):
        run = [test for test in claim.tests if test.difference is not None]
        evidence = "; ".join(f"{test.where} {format_difference(test.difference)}" for test in run)
        lines.append([claim.text, f"**{claim.verdict()}**", evidence])
    note = (
        "An ordering is true if every comparison that was run is significant (p < 0.05) in its direction, false if one "
        f"is significant against it, else undecided. Close means that the 95 % interval lies within {CLOSE:g} BLEU."
    )
    return f"{markdown(['claim', 'verdict', 'differences in BLEU'], lines)}\n\n{note}"


def _differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
    return [
        {
            "claim": claim.text,
            "verdict": claim.verdict(),
            "tests": [
                {"where": test.where, **test.difference._asdict()}
                for test in claim.tests
                if test.difference is not None
            ],
        }
        for claim in claims(plan, results)
    ]


BY_NAME = {
    "orderings": Table("orderings", "The orderings that the paper claims, on our data", _rows, _lay_out, _differences)
}
