"""Estimate bytes, machines, time of a step and cost of large memories from measured constants.

    python benchmarks/scale_model.py

The constants of a search are fitted to searches that were measured with native indexes over real text (`FILES` of
docs/results/data, 5 queries at a time, one or two threads) by non-negative least squares of relative errors:

    microseconds a query = base + list * nprobe + code * nprobe * keys of a list

The nprobe for a recall@16 of 0.98 grows slowly with the number of lists: it is interpolated between the measured
indexes, and extended with their last slope. The fit covers 78 to 305 keys a list and 65,536 lists; all else is an
extrapolation, and pruning skips a larger share of long lists than the formula assumes, so that times of long lists are
too high rather than too low. A query is compared with the centres of all regions, one for about 170 lists: the formula
has the time of that at up to 65,536 lists only. An index of a billion keys was never built.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ibidem.retrieve.index_settings import native_lists

DATA = Path(__file__).resolve().parents[1] / "docs" / "results" / "data"
FILES = ("search-it-10k.json", "search-it-30k.json", "search-it-100k.json", "growth-cpu.json")
QUERIES = 5
# Bytes of a key: in the index (docs/results/search.md), as int8 key of 64 dimensions, and of value, log-probability,
# offsets and texts. The last assumes 20 tokens and 150 bytes of text a pair.
INDEX_BYTES, KEY_BYTES, REST_BYTES = 54, 64, 16
# Half of extraction-cpu.json, which used two threads.
TOKENS_A_CORE = 1_017
SECONDS_A_DAY = 86_400
BUDGET_MILLISECONDS = 2.0


class Row(NamedTuple):
    """A measured search.

    Attributes:
        keys: Number of keys.
        lists: Number of lists.
        nprobe: Lists searched for each query.
        microseconds: Time of a query.
    """

    keys: int
    lists: int
    nprobe: int
    microseconds: float


class Fit(NamedTuple):
    """The constants of the module's formula in microseconds, and the largest relative error of a row."""

    base: float
    list: float
    code: float
    error: float


def main() -> None:
    """Print the fit and the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--price", type=float, default=0.04, help="of a core for an hour, in any currency")
    arguments = parser.parse_args()
    rows = read_rows()
    print_tables(rows, fit(rows), arguments.price)


def read_rows() -> list[Row]:
    """Read the measured searches of native indexes."""
    rows = []
    for name in FILES:
        document = json.loads((DATA / name).read_text("utf-8"))
        if "growth" in document:
            rows += [_read_row(one["description"], one["microseconds"]["5"]) for one in document["growth"]]
        else:
            found = document["indexes"]["native"]
            rows.append(_read_row(found["description"], found["microseconds_a_query"]["5"]["cpu"]))
    return rows


def _read_row(description: str, microseconds: float) -> Row:
    found = re.search(r"of (\d+) lists.* (\d+) keys.*nprobe (\d+)", description)
    assert found is not None, description
    return Row(int(found[2]), int(found[1]), int(found[3]), microseconds)


def fit(rows: list[Row]) -> Fit:
    """Fit the constants of the module's formula; each is at least 0.

    Args:
        rows: Measured searches.
    """
    design = np.array([[1.0, row.nprobe, row.nprobe * row.keys / row.lists] for row in rows])
    wanted = np.array([row.microseconds for row in rows])
    best: tuple[float, Any] | None = None
    for chosen in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        part = torch.from_numpy(design[:, chosen] / wanted[:, None])
        solved = torch.linalg.lstsq(part, torch.ones(len(rows), 1, dtype=torch.float64)).solution[:, 0].numpy()
        constants = np.zeros(3)
        constants[chosen] = solved
        loss = float((((design @ constants) / wanted - 1) ** 2).sum())
        if (constants >= 0).all() and (best is None or loss < best[0]):
            best = loss, constants
    assert best is not None
    errors = np.abs(design @ best[1] / wanted - 1)
    base, per_list, per_code = best[1].tolist()
    return Fit(base, per_list, per_code, float(errors.max()))


def probes(rows: list[Row], lists: int) -> float:
    """Estimate the nprobe that a recall@16 of 0.98 needs.

    Args:
        rows: Measured searches.
        lists: The number of lists.
    """
    known = sorted((math.log(row.lists), math.log(row.nprobe)) for row in rows)
    slope, start = np.polyfit([x for x, _ in known], [y for _, y in known], 1)
    return math.exp(float(start + slope * math.log(lists)))


def step_milliseconds(rows: list[Row], fitted: Fit, keys: float, lists: int, queries: int = QUERIES) -> float:
    """Estimate the time of a step on one core.

    Args:
        rows: Measured searches.
        fitted: The constants.
        keys: Keys of the shard.
        lists: Lists of the shard.
        queries: Queries of the step.
    """
    probed = probes(rows, lists)
    return queries * (fitted.base + probed * (fitted.list + fitted.code * keys / lists)) / 1_000


def print_tables(rows: list[Row], fitted: Fit, price: float) -> None:
    """Print the fit, the cost of a step over the number of lists, and bytes, machines and cost of three sizes.

    Args:
        rows: Measured searches.
        fitted: The constants.
        price: The price of a core for an hour.
    """
    print(
        f"{len(rows)} searches: base {fitted.base:.2f} µs, list {1_000 * fitted.list:.1f} ns, "
        f"code {1_000 * fitted.code:.3f} ns, largest relative error {fitted.error:.2f}\n"
    )
    print("| keys a shard | lists | keys a list | nprobe | ms a step |\n|---|---|---|---|---|")
    for keys in (20e6, 154e6, 1e9):
        for lists in sorted({1 << 16, 1 << 18, 1 << 19, 1 << 20, 1 << 22, native_lists(int(keys))}):
            cost = step_milliseconds(rows, fitted, keys, lists)
            print(f"| {keys:,.0f} | {lists:,} | {keys / lists:,.0f} | {probes(rows, lists):.0f} | {cost:.2f} |")
    million = 10**6
    within = [
        k
        for k in range(million, 1000 * million, million)
        if step_milliseconds(rows, fitted, k, native_lists(k)) <= BUDGET_MILLISECONDS
    ]
    lists = native_lists(within[-1])
    print(
        f"\nWith the default number of lists, a shard stays within {BUDGET_MILLISECONDS} ms up to {within[-1]:,} keys, "
        f"of {lists:,} lists; a billion keys with {native_lists(10**9):,} lists need "
        f"{step_milliseconds(rows, fitted, 1e9, native_lists(10**9)):.1f} ms.\n"
    )
    print("| entries | keys GB | index GB | the rest GB | extraction, core-days | its price |")
    print("|---|---|---|---|---|---|")
    for entries in (154e6, 1e9, 10e9):
        sizes = [entries * one / 1e9 for one in (KEY_BYTES, INDEX_BYTES, REST_BYTES)]
        days = entries / TOKENS_A_CORE / SECONDS_A_DAY
        cells = [f"{entries:,.0f}", *(f"{size:,.0f}" for size in sizes), f"{days:.1f}", f"{days * 24 * price:,.1f}"]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
