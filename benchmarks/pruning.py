"""Measure time and memory of translation costs and of pruning on synthetic entries.

    python benchmarks/pruning.py [--entries 4000000] [--rounds 3] [--json]

Values follow Zipf's law over 16,000 families, in sentences of about 15 tokens. Times are medians over the rounds.
Memory is the growth of the peak of a round's process, without the input arrays. scikit-learn's DBSCAN stores every pair
of neighbours, so it runs on a random part of the groups, of at most 3,000 entries each; ours also runs on this part,
and the labels are compared. Most n-gram groups have one or two entries: there the ratio compares thousands of calls
with one. All code runs in one thread.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ibidem.evaluate import describe_machine
from ibidem.learn import (
    PAPER_SETTINGS,
    PruneEntries,
    PruneSettings,
    group_entries,
    label_dbscan,
    prune_entries,
    translation_costs,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from numpy.typing import NDArray

FAMILIES = 16_000
EPSILON = 1.5
LARGEST_GROUP = 3_000
COMPARED_ENTRIES = 60_000


@dataclass(frozen=True)
class Measured:
    """Time, memory and result of one task."""

    seconds: float
    extra_mib: float
    result: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args()
    log_probs, values, offsets = make_corpus(arguments.entries, arguments.seed)
    costs = translation_costs(log_probs, offsets)
    entries = PruneEntries(costs, values, offsets, np.arange(len(values)))
    work: dict[str, Callable[[], dict[str, float]]] = {"costs": partial(costs_of, log_probs, offsets)}
    for groups in ("token", "ngram"):
        for method in ("greedy", "dbscan"):
            settings = replace(PAPER_SETTINGS, groups=groups, method=method)
            work[f"prune, {groups} groups, {method}"] = partial(prune_with, entries, settings)
    work["prune, default settings"] = partial(prune_with, entries, PruneSettings())
    for groups in ("token", "ngram"):
        settings = replace(PAPER_SETTINGS, groups=groups)
        chosen = choose_groups(entries, settings, arguments.seed)
        work[f"dbscan of a part, {groups} groups"] = partial(dbscan_ours, *chosen, settings)
        work[f"dbscan of a part, {groups} groups, scikit-learn"] = partial(dbscan_scikit_learn, *chosen, settings)
    measured = {name: measure(task, arguments.rounds) for name, task in work.items()}
    report(measured, arguments.entries, as_json=arguments.json)


def make_corpus(tokens: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int64]]:
    """Draw log-probabilities [tokens], most near 0 and with a long tail, values [tokens] and offsets [pairs + 1]."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, FAMILIES + 1)
    values = generator.choice(FAMILIES, size=tokens, p=weights / weights.sum()).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(generator.integers(5, 26, size=tokens // 5 + 1))])
    offsets = np.append(offsets[offsets < tokens], tokens)
    surprises = generator.exponential(1, size=tokens) ** 1.5
    return -surprises.astype(np.float32), values, offsets


def choose_groups(
    entries: PruneEntries, settings: PruneSettings, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return costs and bounds of random groups of at most LARGEST_GROUP entries, with a total near COMPARED_ENTRIES."""
    groups = group_entries(entries.values, entries.offsets, entries.rows, settings.grouped_tokens)
    candidates = np.random.default_rng(seed).permutation(np.flatnonzero(groups.sizes <= LARGEST_GROUP))
    taken = candidates[: 1 + int(np.searchsorted(np.cumsum(groups.sizes[candidates]), COMPARED_ENTRIES))]
    costs = [entries.costs[groups.order[groups.bounds[group] : groups.bounds[group + 1]]] for group in taken]
    return np.concatenate(costs), np.concatenate([[0], np.cumsum(groups.sizes[taken])])


def costs_of(log_probs: NDArray[np.float32], offsets: NDArray[np.int64]) -> dict[str, float]:
    """Compute translation costs with the default n."""
    return {"highest": float(translation_costs(log_probs, offsets).max())}


def prune_with(entries: PruneEntries, settings: PruneSettings) -> dict[str, float]:
    """Group the entries, cluster their costs, and choose the entries to keep."""
    pruned = prune_entries(entries, settings)
    return {"groups": pruned.groups, "clusters": pruned.clusters, "rate": pruned.rate}


def dbscan_ours(costs: NDArray[np.float32], bounds: NDArray[np.int64], settings: PruneSettings) -> dict[str, float]:
    """Run our DBSCAN by sorting on all groups at once."""
    return _describe(label_dbscan(costs, bounds, EPSILON, settings.min_samples), bounds)


def dbscan_scikit_learn(
    costs: NDArray[np.float32], bounds: NDArray[np.int64], settings: PruneSettings
) -> dict[str, float]:
    """Run scikit-learn's DBSCAN on each group."""
    from sklearn.cluster import DBSCAN

    labels = np.empty(len(costs), dtype=np.int64)
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found = DBSCAN(eps=EPSILON, min_samples=settings.min_samples).fit_predict(costs[start:end, None])
        labels[start:end] = found
    return _describe(labels, bounds)


def _describe(labels: NDArray[np.int64], bounds: NDArray[np.int64]) -> dict[str, float]:
    """Return sizes, and a hash of the labels."""
    label_hash = np.random.default_rng(1).integers(0, 2**20, size=len(labels)) @ (labels + 2)
    return {"entries": len(labels), "groups": len(bounds) - 1, "labels": int(label_hash)}


def measure(task: Callable[[], dict[str, float]], rounds: int) -> Measured:
    """Return median seconds and greatest extra memory over the rounds, each in its own process."""
    results = [_measure_once(task) for _ in range(rounds)]
    return Measured(
        statistics.median(result.seconds for result in results),
        max(result.extra_mib for result in results),
        results[0].result,
    )


def _measure_once(task: Callable[[], dict[str, float]]) -> Measured:
    context = multiprocessing.get_context("fork")  # shares the arrays and has its own memory peak
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_measure, args=(task, sender))
    process.start()
    sender.close()
    result: Measured = receiver.recv()
    process.join()
    return result


def _send_measure(task: Callable[[], dict[str, float]], sender: Connection) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    result = task()
    seconds = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sender.send(Measured(seconds, grown / (2**20 if sys.platform == "darwin" else 2**10), result))


def report(measured: dict[str, Measured], entries: int, *, as_json: bool) -> None:
    """Print all figures, and the speed-up over scikit-learn on the same groups."""
    ratios = {}
    for name, ours in measured.items():
        theirs = measured.get(f"{name}, scikit-learn")
        if theirs:
            ratios[name] = {"ratio": theirs.seconds / ours.seconds, "same_labels": ours.result == theirs.result}
    if as_json:
        figures = {name: vars(one) for name, one in measured.items()}
        print(
            json.dumps(
                {"entries": entries, "measured": figures, "ratios": ratios, "machine": describe_machine()}, indent=2
            )
        )
        return
    print(f"{entries:,} entries; {describe_machine()}")
    for name, one in measured.items():
        result = ", ".join(f"{key} {round(value, 4):,}" for key, value in one.result.items() if key != "labels")
        print(f"{name}: {one.seconds:.3f} s, {one.extra_mib:.0f} MiB ({result})")
    for name, ratio in ratios.items():
        same = "the same labels" if ratio["same_labels"] else "OTHER LABELS"
        print(f"{name}: {ratio['ratio']:.0f} times as fast as scikit-learn, {same}")


if __name__ == "__main__":
    main()
