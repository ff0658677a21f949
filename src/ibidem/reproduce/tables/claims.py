"""The paper's claims about quality, and the comparisons of stored rows that test them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ibidem.evaluate import SIGNIFICANCE_LEVEL, adjust_p_values
from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN
from ibidem.reproduce.tables import compact, default, pruning, quality, speed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ibidem.evaluate import Difference
    from ibidem.reproduce.grid import Grid
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results

TRUE, FALSE, UNDECIDED, UNTESTED = "true", "false", "undecided", NOT_RUN
# BLEU points: what "close" and "a large margin" allow, and what "no loss" allows.
CLOSE, NO_LOSS = 1.0, 0.5
AVERAGE = "average"

# What was measured about why a claim fails.
_INDEX = (
    "The gain depends on the index: codes of 64 bytes describe 64 dimensions much better than 512 (recall and error of "
    "distances: [quality](../quality.md)). With exact search adaptive kNN-MT has no such loss."
)
_PRINTED = (
    "As printed, the costs of a token form few, large clusters, and pruning is close to random "
    "([pruning](../pruning.md), one seed)."
)
_CONSISTENT = (
    "Groups of entries whose nearest neighbours have the same token (consistent) lose less at 30 and 50 % "
    "([pruning-curve](pruning-curve.md))."
)
_UNKNOWN = "Why was not measured."


@dataclass(frozen=True)
class Comparison:
    """One comparison that tests a claim.

    Attributes:
        where: Column of the table.
        difference: Difference between system and baseline; None where it was not run.
        adjusted: p value after Holm's correction for the comparisons of its claim.
        table_adjusted: p value after Holm's correction for the comparisons of all claims.
    """

    where: str
    difference: Difference | None
    adjusted: float = 1.0
    table_adjusted: float = 1.0


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Attributes:
        text: The claim, for the table.
        printed: The paper's numbers and where they are.
        tests: Comparisons that test it.
        judge: Returns TRUE, FALSE or UNDECIDED for a difference and its adjusted p value.
        reason: What was measured about why it fails.
    """

    text: str
    printed: str
    tests: tuple[Comparison, ...]
    judge: Callable[[Difference, float], str]
    reason: str = _UNKNOWN

    def verdict(self, *, strict: bool = False) -> str:
        """Return false where one comparison refutes it, true where all that were run confirm it.

        Args:
            strict: Whether p values are corrected for the comparisons of all claims, not only for those of this one.
        """
        found = [
            self.judge(test.difference, test.table_adjusted if strict else test.adjusted)
            for test in self.tests
            if test.difference is not None
        ]
        if not found:
            return UNTESTED
        for word in (FALSE, UNDECIDED):
            if word in found:
                return word
        return TRUE


def above(difference: Difference, adjusted: float) -> str:
    """Return true if the system is significantly above the baseline, false if it is significantly below.

    Args:
        difference: System minus baseline.
        adjusted: Adjusted p value.
    """
    if adjusted >= SIGNIFICANCE_LEVEL:
        return UNDECIDED
    return TRUE if difference.value > 0 else FALSE


def below(difference: Difference, adjusted: float) -> str:
    """Return true if the system is significantly below the baseline, false if it is significantly above.

    Args:
        difference: System minus baseline.
        adjusted: Adjusted p value.
    """
    return {TRUE: FALSE, FALSE: TRUE}.get(above(difference, adjusted), UNDECIDED)


def close(difference: Difference, _: float) -> str:
    """Return true if the 95 % interval of the difference lies within one BLEU point, false if it lies outside.

    Args:
        difference: System minus baseline.
        _: Adjusted p value, which does not matter.
    """
    if difference.low >= -CLOSE and difference.high <= CLOSE:
        return TRUE
    return FALSE if difference.low > CLOSE or difference.high < -CLOSE else UNDECIDED


def kept(difference: Difference, adjusted: float) -> str:
    """Return false if the system is significantly below the baseline, true if the interval excludes a loss of 0.5 BLEU.

    Args:
        difference: System minus baseline.
        adjusted: Adjusted p value.
    """
    if above(difference, adjusted) == FALSE:
        return FALSE
    return TRUE if difference.low >= -NO_LOSS else UNDECIDED


def dropped(difference: Difference, _: float) -> str:
    """Return true if the 95 % interval lies below a loss of one BLEU point, false if it lies above.

    Args:
        difference: System minus baseline.
        _: Adjusted p value, which does not matter.
    """
    if difference.high < -CLOSE:
        return TRUE
    return FALSE if difference.low > -CLOSE else UNDECIDED


def far_above(difference: Difference, _: float) -> str:
    """Return true if the 95 % interval lies above one BLEU point, false if it lies below.

    Args:
        difference: System minus baseline.
        _: Adjusted p value, which does not matter.
    """
    if difference.low > CLOSE:
        return TRUE
    return FALSE if difference.high < CLOSE else UNDECIDED


class _Tests:
    """Make the comparisons of claims."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def columns(self, grid: Grid, baseline: str, system: str) -> tuple[Comparison, ...]:
        """Compare two lines in every column."""
        return tuple(Comparison(c, grid.compare(self.results, baseline, system, c)) for c in grid.columns)

    def average(self, grid: Grid, baseline: str, system: str) -> tuple[Comparison, ...]:
        """Compare the averages of two lines."""
        return (Comparison(AVERAGE, grid.compare_averages(self.results, baseline, system)),)

    def lines(self, grid: Grid, baselines: Iterable[str], system: str, column: str) -> tuple[Comparison, ...]:
        """Compare a line with several in one column."""
        return tuple(Comparison(f"− {b}:", grid.compare(self.results, b, system, column)) for b in baselines)


def claims(plan: Plan, results: Results) -> list[Claim]:
    """Return all claims of the paper about quality, with Holm's corrections of their comparisons.

    Args:
        plan: Gives the grids that are compared.
        results: Results folder to read.
    """
    tests = _Tests(results)
    found = [
        *_domain_claims(plan, tests),
        *_method_claims(plan, tests),
        *_data_claims(plan, tests),
        *_pruning_claims(plan, tests),
        *_curve_claims(plan, tests),
        *_large_claims(plan, tests),
    ]
    return _correct(found)


def default_claims(plan: Plan, results: Results) -> list[Claim]:
    """Return the paper's main claims with the default memory in the place of its systems.

    Their Holm's corrections are apart from those of the paper's claims. `printed` names the claim of the paper.

    Args:
        plan: Gives the domains and the large memory.
        results: Results folder to read.
    """
    grid, columns = default.build_default(plan), default.default_columns(plan)
    own = [column.label for column in columns if column.corpus == (column.test,)]
    large = [column.label for column in columns if column.corpus == plan.large]

    def claim(text: str, of_paper: str, pair: tuple[str, str], judge: Callable[[Difference, float], str]) -> Claim:
        where = [c for c in dict.fromkeys((*own, *large)) if all(c in grid.lines[label] for label in pair)]
        return Claim(text, of_paper, tuple(Comparison(c, grid.compare(results, *pair, c)) for c in where), judge)

    name, pruned = quality.DEFAULT, default.PRUNED
    found = [
        claim(f"{name} > NMT everywhere", "adaptive kNN-MT > NMT", (quality.NMT, name), above),
        claim(f"{name} > adaptive kNN-MT everywhere", "CKMT* > adaptive kNN-MT", (quality.ADAPTIVE, name), above),
        claim(f"{pruned}: no loss", "PCKMT*, 30 % pruned: no loss", (name, pruned), kept),
    ]
    return _correct(found)


def _correct(found: list[Claim]) -> list[Claim]:
    """Add Holm's corrections: for the comparisons of each claim, and for those of all claims."""
    whole = iter(adjust_p_values([p_value for claim in found for p_value in _p_values(claim)]))
    return [replace(claim, tests=_adjust(claim, whole)) for claim in found]


def _p_values(claim: Claim) -> list[float]:
    return [test.difference.p_value for test in claim.tests if test.difference is not None]


def _adjust(claim: Claim, whole: Iterator[float]) -> tuple[Comparison, ...]:
    own = iter(adjust_p_values(_p_values(claim)))
    return tuple(
        test if test.difference is None else replace(test, adjusted=next(own), table_adjusted=next(whole))
        for test in claim.tests
    )


def _domain_claims(plan: Plan, tests: _Tests) -> list[Claim]:
    nmt, adaptive, star, general = quality.NMT, quality.ADAPTIVE, quality.CKMT, quality.GENERAL
    found = []
    for index in plan.indexes:
        grid, search = quality.build_domains(plan, index), "exact search" if index == "exact" else f"{index} index"
        for baseline, system, relation, judge, reason in (
            (nmt, adaptive, ">", above, _UNKNOWN),
            (adaptive, star, ">", above, _INDEX),
            (star, general, "close to", close, _UNKNOWN),
            (adaptive, general, ">", above, _INDEX),
        ):
            printed = [f"{paper.DOMAINS[system][d] - paper.DOMAINS[baseline][d]:+.2f}" for d in paper.DOMAINS[nmt]]
            average = paper.DOMAINS_AVERAGE[system] - paper.DOMAINS_AVERAGE[baseline]
            text = f"{system} {relation} {baseline}"
            found += [
                Claim(
                    f"{text} on average ({search})",
                    f"{average:+.2f} (table `domains`)",
                    tests.average(grid, baseline, system),
                    judge,
                    reason,
                ),
                Claim(
                    f"{text} in every domain ({search})",
                    f"{', '.join(printed)} (table `domains`)",
                    tests.columns(grid, baseline, system),
                    judge,
                    reason,
                ),
            ]
    return found


def _method_claims(plan: Plan, tests: _Tests) -> list[Claim]:
    grid = compact.build_methods(plan)

    def claim(text: str, baseline: str, system: str, judge: Callable[[Difference, float], str], reason: str) -> Claim:
        gain = paper.COMPACT[system] - paper.COMPACT[baseline]
        return Claim(text, f"{gain:+.2f} (table `compact`)", tests.columns(grid, baseline, system), judge, reason)

    nce, clustered = compact.DYNAMIC, "[DY] CKMT+NCE+CL"
    return [
        claim("static > dynamic pivots", clustered, compact.STAR, above, _UNKNOWN),
        claim("clusters (CL) help", nce, clustered, above, _UNKNOWN),
        claim("PCA < adaptive kNN-MT", compact.ADAPTIVE, compact.PCA, below, _INDEX),
        claim("SVD < adaptive kNN-MT", compact.ADAPTIVE, compact.SVD, below, _UNKNOWN),
        claim("PCA < CKMT*", compact.STAR, compact.PCA, below, _UNKNOWN),
        claim("SVD < CKMT*", compact.STAR, compact.SVD, below, _UNKNOWN),
        claim("distance ranking alone harms", nce, "[DY] CKMT+DR", below, _UNKNOWN),
        claim("distance ranking harms NCE", nce, "[DY] CKMT+NCE+DR", below, _UNKNOWN),
        claim("distance ranking does not help CKMT*", compact.STAR, "[ST] CKMT+NCE+CL+DR", below, _UNKNOWN),
        claim("word prediction alone < NCE", nce, "[DY] CKMT+WP", below, _UNKNOWN),
        claim("word prediction does not help NCE", nce, "[DY] CKMT+NCE+WP", below, _UNKNOWN),
        claim("word prediction does not help CKMT*", compact.STAR, "[ST] CKMT+NCE+CL+WP", below, _UNKNOWN),
    ]


def _data_claims(plan: Plan, tests: _Tests) -> list[Claim]:
    grid, column = quality.build_limited_data(plan), quality.COLUMN
    whole = quality.name_share(plan.shares[0])
    found = []
    for share in plan.shares[1:]:
        name = quality.name_share(share)
        gain = paper.LIMITED_DATA[share][1] - paper.LIMITED_DATA[1.0][1]
        text, printed = f"slow decay: {name} of the data close to all", f"{gain:+.2f} (table `limited-data`)"
        found.append(Claim(text, printed, tests.lines(grid, [whole], name, column), close))
    if 0.4 in plan.shares:
        name = quality.name_share(0.4)
        found.append(
            Claim(
                f"{name} of the data > adaptive kNN-MT",
                f"{paper.LIMITED_DATA[0.4][1] - paper.COMPACT[quality.ADAPTIVE]:+.2f} (table `limited-data`)",
                tests.lines(grid, [quality.ADAPTIVE], name, column),
                above,
                "With exact search CKMT* is below adaptive kNN-MT with all of the data too.",
            )
        )
    grid, best = compact.build_dimensions(plan), "CKMT* 64"
    if best in grid.lines:
        bleu = {name: numbers[1] for name, numbers in paper.DIMENSIONS.items()}
        others = [f"CKMT* {dimension}" for dimension in plan.dimensions if dimension != 64]
        found += [
            Claim(
                "64 dimensions are best (dev set)",
                ", ".join(f"{bleu[64] - bleu[d]:+.2f} to {d}" for d in (128, 32, 16)) + " (table `dimensions`)",
                tests.lines(grid, others, best, compact.COLUMN),
                above,
                "The Meta-k loss of 128 dimensions is lower than that of 64 too, here and in the paper "
                "([dimensions](dimensions.md)).",
            ),
            Claim(
                "64 dimensions > adaptive kNN-MT (dev set)",
                f"{bleu[64] - bleu[None]:+.2f} (table `dimensions`)",
                tests.lines(grid, [compact.ADAPTIVE], best, compact.COLUMN),
                above,
                _INDEX,
            ),
        ]
    return found


def _pruning_claims(plan: Plan, tests: _Tests) -> list[Claim]:
    grid, averages = pruning.build_pruning(plan), paper.PRUNING_AVERAGE
    names = {pruning.PRINTED: "CKMT*+Ours", pruning.OURS: "CKMT*+Ours"}
    found = []

    def claim(text: str, baseline: str, system: str, judge: Callable[[Difference, float], str], reason: str) -> None:
        gain = averages[names.get(system, system)] - averages[baseline]
        printed, on_average = f"{gain:+.2f} (table `pruning`)", tests.average(grid, baseline, system)
        found.append(Claim(f"{text} on average", printed, on_average, judge, reason))

    for clusters, setting, reason in (
        (pruning.PRINTED, quality.AS_PRINTED, _PRINTED),
        (pruning.OURS, quality.OUR_SETTINGS, _UNKNOWN),
    ):
        name = f"cost clusters, {setting}"
        for other in pruning.BASELINES:
            claim(f"{name} > {other.removeprefix('CKMT*+')} at 10 %", other, clusters, above, reason)
        claim(f"{name} lose some BLEU at 10 %", pruning.CKMT, clusters, below, _UNKNOWN)
        spatial = paper.PRUNING[pruning.SPATIAL]
        gains = [paper.PRUNING["CKMT*+Ours"][d] - spatial[d] for d in spatial]
        found += [
            Claim(
                f"{name} > SP at 10 % in every domain",
                f"{', '.join(f'{gain:+.2f}' for gain in gains)} (table `pruning`)",
                tests.columns(grid, pruning.SPATIAL, clusters),
                above,
                reason,
            ),
            Claim(
                f"{name} > RP at 10 % in every domain",
                "not so on law and medical (table `pruning`)",
                tests.columns(grid, pruning.RANDOM, clusters),
                above,
                reason,
            ),
        ]
    for other in (pruning.SPATIAL, pruning.LOW, pruning.HIGH):
        claim(f"RP > {other.removeprefix('CKMT*+')} at 10 %", other, pruning.RANDOM, above, _UNKNOWN)
    gains = [paper.PRUNING[pruning.RANDOM][d] - paper.PRUNING[pruning.SPATIAL][d] for d in paper.PRUNING[pruning.CKMT]]
    found.append(
        Claim(
            "RP > SP at 10 % in every domain",
            f"{', '.join(f'{gain:+.2f}' for gain in gains)} (table `pruning`)",
            tests.columns(grid, pruning.SPATIAL, pruning.RANDOM),
            above,
        )
    )
    if "koran" in grid.columns:
        gain = paper.PRUNING[pruning.HIGH]["koran"] - paper.PRUNING[pruning.CKMT]["koran"]
        compared = Comparison("koran", grid.compare(tests.results, pruning.CKMT, pruning.HIGH, "koran"))
        found.append(
            Claim("HTP at 10 % > unpruned CKMT* on Koran", f"{gain:+.2f} (table `pruning`)", (compared,), above)
        )
    grid = pruning.build_redundancy(plan)
    others = [pruning.name_length(n) for n in pruning.LENGTHS if n != 2]
    found.append(
        Claim(
            "bigrams are the best n-grams (dev set, 10 %)",
            "chosen by grid search, no numbers (section 4.3)",
            tests.lines(grid, others, pruning.name_length(2), pruning.DEV),
            above,
            "Longer n-grams recur less often ([redundancy](redundancy.md)), so entries are compared only within a "
            "longer equal context.",
        )
    )
    return found


def _curve_claims(plan: Plan, tests: _Tests) -> list[Claim]:
    grid, figure = pruning.build_curve(plan), "figure of the pruning rates, no numbers"
    found = []

    def claim(
        text: str, rate: float, baseline: str, label: str, judge: Callable[[Difference, float], str], reason: str
    ) -> None:
        first = pruning.name_point(baseline, rate) if baseline in pruning.CURVE_STRATEGIES else baseline
        second = pruning.name_point(label, rate)
        text = f"{text} at {rate * 100:g} %, large memory"
        found.append(Claim(text, figure, tests.columns(grid, first, second), judge, reason))

    random, base, whole = pruning.CURVE_RANDOM, pruning.NMT, pruning.CKMT
    unpruned = grid.compare(tests.results, base, whole, grid.columns[len(grid.columns) // 2])
    height = "" if unpruned is None else f" by {unpruned.value:.1f} BLEU"
    useful = f"The unpruned memory is above the base model{height} here, and a tenth of it still helps."
    for clusters, setting, reason in (
        (pruning.CURVE_PRINTED, quality.AS_PRINTED, _PRINTED),
        (pruning.CURVE_OURS, quality.OUR_SETTINGS, _CONSISTENT),
    ):
        name = f"cost clusters, {setting}"
        for rate in plan.rates:
            claim(f"{name} > random", rate, random, clusters, above, _UNKNOWN)
        for rate in (rate for rate in plan.rates if rate <= 0.4):
            claim(f"{name} lose nothing against CKMT*", rate, whole, clusters, kept, reason)
        for rate in (rate for rate in plan.rates if 0.4 < rate < 0.7):
            claim(f"{name} lose no more than 1 BLEU", rate, whole, clusters, close, reason)
        for rate in (rate for rate in plan.rates if rate >= 0.8):
            claim(f"{name} far above NMT", rate, base, clusters, far_above, _UNKNOWN)
    for rate in (rate for rate in plan.rates if rate >= 0.5):
        claim("random loses more than 1 BLEU", rate, whole, random, dropped, _UNKNOWN)
    for rate in (rate for rate in plan.rates if rate >= 0.8):
        claim("random < NMT", rate, base, random, below, useful)
    return found


def _large_claims(plan: Plan, tests: _Tests) -> list[Claim]:
    grid, column = speed.build_latency(plan), speed.COLUMN
    found = []
    for k in sorted(plan.ks, reverse=True):
        adaptive, star = quality.Variant(quality.LARGE_ADAPTIVE, k).label, quality.Variant(quality.CKMT, k).label
        gain = paper.OPTIMAL[quality.CKMT, k][0] - paper.OPTIMAL[quality.LARGE_ADAPTIVE, 4][0]
        found.append(
            Claim(
                f"CKMT* not below adaptive kNN-MT at k = {k}, large memory",
                f"{gain:+.2f} (table `optimal`)",
                tests.lines(grid, [adaptive], star, column),
                kept,
                _INDEX,
            )
        )
        best, rate = quality.optimal_rate(k), paper.LATENCY_RATES[k]
        for printed, reason in ((True, _PRINTED), (False, _CONSISTENT)):
            pruned = quality.Variant(quality.PCKMT, k, best, printed).label
            bleu = paper.OPTIMAL[quality.PCKMT, k][0]
            over = [bleu - paper.OPTIMAL[quality.CKMT, k][0], bleu - paper.OPTIMAL[quality.LARGE_ADAPTIVE, 4][0]]
            if k == 8:
                found.append(
                    Claim(
                        f"{pruned} > CKMT* and > adaptive kNN-MT",
                        f"{over[0]:+.2f}, {over[1]:+.2f} (table `optimal`)",
                        tests.lines(grid, [star, adaptive], pruned, column),
                        above,
                        reason,
                    )
                )
            pruned = quality.Variant(quality.PCKMT, k, rate, printed).label
            found.append(
                Claim(
                    f"{pruned}: no loss against adaptive kNN-MT",
                    "no BLEU degradation (table `latency`)",
                    tests.lines(grid, [adaptive], pruned, column),
                    kept,
                    reason,
                )
            )
    return found
