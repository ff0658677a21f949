"""Compare stored translations of several test sets: each set, all sets as one text, and the mean over the sets.

    ibidem translate -m memories/koran -i DATA/koran/test.de -o out/koran.default
    ibidem translate -m memories/koran-pruned -i DATA/koran/test.de -o out/koran.pruned
    python benchmarks/differences.py out --data DATA --sets koran --compare pruned default --output pruned.json

Reads the translations from FOLDER/SET.SYSTEM; where these are fewer lines than the test set, they are its first lines.
A system of several runs (seeds) is given by their names with commas. Differences in BLEU, system minus baseline, have a
two-sided paired bootstrap of 10,000 samples over sentences, and over runs where a system has several: value, ends of
the 95 % interval, p. The sets of the mean are drawn independently. The baseline `rows` is adaptive kNN-MT in the
model's own space with exact search, from the rows of docs/results/tables, for translations of
`benchmarks/row_decoding.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.evaluate import (
    SEED,
    Resampled,
    compare_runs,
    count_bleu,
    describe_machine,
    resample,
    score,
    score_bleu,
)
from ibidem.reproduce.plan import full_plan
from ibidem.reproduce.results import MATCHES, Results
from ibidem.reproduce.rows.translation import Translation
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TABLES = Path(__file__).parents[1] / "docs" / "results" / "tables"
ROWS = "rows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the translations")
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets, each with test.de and test.en")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--part", choices=("test", "dev"), default="test")
    parser.add_argument(
        "--compare", nargs=2, action="append", required=True, metavar=("SYSTEM", "BASELINE"), help="may be repeated"
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"lines": {}, "bleu": {}, "differences [value, low, high, p]": {}}
    pairs = [(system.split(","), baseline.split(",")) for system, baseline in arguments.compare]
    names = list(dict.fromkeys(name for both in pairs for runs in both for name in runs))
    counts = {
        of: count_set(arguments.folder / of, arguments.data / of / arguments.part, names, report)
        for of in arguments.sets
    }
    for system, baseline in pairs:
        found = compare_sets(list(counts.values()), system, baseline)
        title = f"{','.join(system)} - {','.join(baseline)}"
        report["differences [value, low, high, p]"][title] = dict(
            zip([*arguments.sets, "mean", "one text"], found, strict=True)
        )
    report["machine"] = describe_machine()
    print(json.dumps(report, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def count_set(
    stem: Path, text: Path, names: Sequence[str], report: dict[str, Any]
) -> dict[str, list[NDArray[np.int64]]]:
    """Return the n-gram counts of the sentences of a set by system, and note its lines and BLEU in the report."""
    of = stem.name
    references = [pair.target for pair in Corpus([text.with_suffix(".de"), text.with_suffix(".en")])]
    counts: dict[str, list[NDArray[np.int64]]] = {}
    for name in names:
        if name == ROWS:
            counts[name] = stored_counts(of)
            continue
        lines = stem.with_name(f"{of}.{name}").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        known = report["lines"].setdefault(of, len(lines))
        if known != len(lines):
            raise SystemExit(f"{stem}.{name} has {len(lines)} lines, another system of {of} has {known}.")
        counts[name] = [count_bleu(lines, references[:known])]
        report["signature"] = score(lines, references[:known])[0].signature
    report["bleu"][of] = {
        name: [round(float(score_bleu(run.sum(axis=0))), 2) for run in runs] for name, runs in counts.items()
    }
    for scores in report["bleu"][of].values():
        if len(scores) > 1:
            scores.append(f"mean {statistics.mean(scores):.2f}, deviation {statistics.stdev(scores):.2f}")
    return counts


def stored_counts(of: str) -> list[NDArray[np.int64]]:
    """Return the counts of adaptive kNN-MT in the model's own space, one array for each seed of the stored rows."""
    plan, results = full_plan(None), Results(TABLES)
    found = [results.array(Translation(plan.adaptive(of, seed), of), MATCHES) for seed in plan.seeds]
    return [counts.astype(np.int64) for counts in found if counts is not None]


def compare_sets(
    sets: Sequence[dict[str, list[NDArray[np.int64]]]], system: Sequence[str], baseline: Sequence[str]
) -> list[list[float]]:
    """Return the difference of each set, of the mean over the sets, and of all sets as one text."""
    runs = [[[run for name in names for run in of[name]] for names in (system, baseline)] for of in sets]
    resampled = []
    for place, (first, second) in enumerate(runs):
        # Other draws for each set: their sentences have nothing to do with each other.
        found = resample([*first, *second], seed=SEED + place)
        resampled.append((found[: len(first)], found[len(first) :]))
    mean = [[average(found) for found in zip(*(of[side] for of in resampled), strict=True)] for side in (0, 1)]
    joined = [[np.concatenate(found) for found in zip(*(of[side] for of in runs), strict=True)] for side in (0, 1)]
    whole = resample([*joined[0], *joined[1]])
    differences = [
        *(compare_runs(second, first) for first, second in resampled),
        compare_runs(mean[1], mean[0]),
        compare_runs(whole[len(joined[0]) :], whole[: len(joined[0])]),
    ]
    return [
        [round(found.value, 2), round(found.low, 2), round(found.high, 2), round(found.p_value, 4)]
        for found in differences
    ]


def average(runs: Sequence[Resampled]) -> Resampled:
    """Return the mean of one run of each set, as if it were one run."""
    samples = np.mean([run.samples for run in runs], axis=0)
    return Resampled(sum(run.sentences for run in runs), statistics.mean(run.score for run in runs), samples)


if __name__ == "__main__":
    main()
