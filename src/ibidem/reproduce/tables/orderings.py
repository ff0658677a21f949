"""The table of the paper's claims: each is true, false or undecided with the stored rows."""

from __future__ import annotations

from collections import Counter
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from ibidem.evaluate import SIGNIFICANCE_LEVEL
from ibidem.reproduce import paper
from ibidem.reproduce.grid import TEST_NOTE, format_difference, markdown
from ibidem.reproduce.tables import Table, compact, description, pruning, quality, speed
from ibidem.reproduce.tables.claims import CLOSE, FALSE, NO_LOSS, TRUE, UNDECIDED, UNTESTED, claims, default_claims

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows import Row
    from ibidem.reproduce.tables.claims import Claim


def other_claims(plan: Plan, results: Results) -> list[list[str]]:
    """Return the paper's claims about speed, size and space: claim, printed, verdict, ours. They have no test.

    Args:
        plan: Gives the systems.
        results: Results folder to read.
    """
    lines = []

    def add(text: str, printed: str, holds: bool | None, ours: str) -> None:
        lines.append([text, printed, UNTESTED if holds is None else f"**{TRUE if holds else FALSE}**", ours])

    found = results.find(speed.intro_timing(plan))
    ratio = None if found is None else found["speeds"][1]["tokens_per_second"] / found["speeds"][0]["tokens_per_second"]
    slower = paper.INTRO_SPEED["adaptive"][0] / paper.INTRO_SPEED["base"][0]
    add(
        "adaptive kNN-MT is slower than the base model",
        f"{slower:.2f} of its tokens/s (table `intro-speed`)",
        None if ratio is None else ratio < 1,
        "" if ratio is None else f"{ratio:.2f}",
    )
    savings = [
        saved.sentences
        for batch in speed.BATCHES
        if (speeds := quality.large_speeds(plan, results, batch))
        for k in plan.ks
        if (
            saved := speed.saving(
                speeds[quality.BASE],
                speeds[quality.Variant(quality.LARGE_ADAPTIVE, k).label],
                speeds[quality.Variant(quality.PCKMT, k, paper.LATENCY_RATES[k]).label],
            )
        )
    ]
    add(
        "PCKMT* saves latency at the rates of `latency`",
        "27 to 57 %",
        min(savings) > 0 if savings else None,
        f"{min(savings):.0%} to {max(savings):.0%} in sentences/s, our settings" if savings else "",
    )
    timed = quality.large_speeds(plan, results, quality.OPTIMAL_BATCH)
    if 8 in plan.ks:
        rates = [
            timed[label]["tokens_per_second"] if timed else None
            for label in (
                quality.Variant(quality.PCKMT, 8, quality.optimal_rate(8)).label,
                quality.Variant(quality.LARGE_ADAPTIVE, 8).label,
            )
        ]
        ratio = None if rates[0] is None or rates[1] is None else rates[0] / rates[1]
        add(
            "PCKMT* (k = 8, 30 %) is faster than adaptive kNN-MT",
            "1.56 times (table `optimal`)",
            None if ratio is None else ratio > 1,
            "" if ratio is None else f"{ratio:.1f} times, exact search, our settings",
        )
    parameters = results.find(description.parameter_count(plan))
    sums = None if parameters is None else description.sum_parameters(parameters)
    added = None if sums is None else sums["CKMT*"] / sums["MT"] - 1
    add(
        "CKMT* adds few parameters",
        "+0.1 %: 269.7M and 270.0M (table `parameters`)",
        None if added is None else added < 0.01,
        "" if added is None else f"{added:+.2%} of a model of {sums['MT'] / 1e6:.1f}M" if sums else "",
    )
    counted = results.find(pruning.ngram_counts(plan))
    mean = None if counted is None else counted["ngrams"]["2"]["mean_occurrences"]
    add(
        f"a bigram of the IT memory occurs no more than {paper.REDUNDANCY['occurrences']} times on average",
        f"{paper.REDUNDANCY['entries']} entries, more than {paper.REDUNDANCY['bigrams']} bigrams",
        None if mean is None else mean <= paper.REDUNDANCY["occurrences"],
        "" if mean is None else f"{mean:.1f}",
    )
    space = results.find(description.tsne_projection(plan))
    add(
        "tokens are more separate in the compact space",
        "a figure of 10 tokens",
        None if space is None else bool(space["purity_after"] > space["purity_before"]),
        ""
        if space is None
        else "nearest neighbours of the same token: "
        f"{space['purity_before']:.1%} before, {space['purity_after']:.1%} after",
    )
    return lines


def _rows(_plan: Plan) -> list[Row]:
    return []


def _lay_out(plan: Plan, results: Results) -> str:
    found = claims(plan, results)
    verdicts = Counter(claim.verdict() for claim in found)
    run = [claim for claim in found if claim.verdict() != UNTESTED]
    failed = dict.fromkeys(claim.reason for claim in run if claim.verdict() != TRUE)
    letters = dict(zip(failed, ascii_lowercase, strict=False))
    counts = ", ".join(f"{verdicts[word]} {word}" for word in (TRUE, FALSE, UNDECIDED, UNTESTED))
    parts = [
        f"{len(found)} claims about quality: {counts}.",
        markdown(
            ["claim", "the paper", "verdict", "our differences in BLEU", "why not"],
            [[*_format_claim(claim), "" if claim.verdict() == TRUE else f"({letters[claim.reason]})"] for claim in run],
        ),
        *(f"({letter}) {reason}" for reason, letter in letters.items()),
        "A claim is true if every comparison that was run is significant in its direction (two-sided p < "
        f"{SIGNIFICANCE_LEVEL:g} after Holm's correction for the comparisons of the claim), false if one is "
        "significant against it, else undecided. The verdict is bold if it is the same with Holm's correction for all "
        f"comparisons of this table; * marks comparisons that are significant then. Close: the 95 % interval lies "
        f"within {CLOSE:g} BLEU; far above, and more than 1 BLEU: it lies beyond {CLOSE:g}; no loss: it lies above "
        f"-{NO_LOSS:g}, and the difference is not significantly negative. {TEST_NOTE}",
    ]
    if verdicts[UNTESTED]:
        missing = "; ".join(claim.text for claim in found if claim.verdict() == UNTESTED)
        parts.append(f"Not run, so without a verdict: {missing}.")
    parts += [
        "Claims about speed, size and space (medians of one process or counts, no test):",
        markdown(["claim", "the paper", "verdict", "ours"], other_claims(plan, results)),
        "Three of these claims with the default configuration of this software in the place of the paper's systems, "
        "from the rows of the table [default](default.md):",
        markdown(
            ["claim", "of the paper", "verdict", "our differences in BLEU"],
            [_format_claim(claim) for claim in default_claims(plan, results)],
        ),
        "These rows need the exact search and the decoding of the other rows. What was measured on a CPU with the "
        "settings that users have (int8, approximate index, one seed) is in [reproduction]"
        "(../reproduction.md#the-default-configuration): it is no row, since the counts of sentences were not kept.",
        f"{quality.SETTINGS_NOTE} {compact.INDEX_NOTE}",
    ]
    return "\n\n".join(parts)


def _format_claim(claim: Claim) -> list[str]:
    run = [test for test in claim.tests if test.difference is not None]
    evidence = "; ".join(f"{test.where} {format_difference(test.difference, test.table_adjusted)}" for test in run)
    verdict = claim.verdict()
    strict = verdict != UNTESTED and verdict == claim.verdict(strict=True)
    return [claim.text, claim.printed, f"**{verdict}**" if strict else verdict, evidence]


def _differences(plan: Plan, results: Results) -> list[dict[str, Any]]:
    return [
        {
            "claim": claim.text,
            "printed": claim.printed,
            "verdict": claim.verdict(),
            "tests": [
                {
                    "where": test.where,
                    **test.difference._asdict(),
                    "p_value_holm": test.adjusted,
                    "p_value_holm_table": test.table_adjusted,
                }
                for test in claim.tests
                if test.difference is not None
            ],
        }
        for claim in claims(plan, results)
    ]


BY_NAME = {"orderings": Table("orderings", "The paper's claims on our data", _rows, _lay_out, _differences)}
