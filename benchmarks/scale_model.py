"""Estimate bytes, machines, time of a step and cost of large memories from measured constants.

    python benchmarks/scale_model.py measure --keys 400000 --out docs/results/data/scale-model.json
    python benchmarks/scale_model.py simulate --data docs/results/data/scale-model.json

`measure` builds native indexes of synthetic keys (a mixture of Gaussians) with few to many lists, and times searches
with several nprobe in processor time of one thread, rounds interleaved. It fits

    microseconds a query = base + list * nprobe + code * nprobe * codes of a list

by non-negative least squares of relative errors; a list has 2 n / lists codes, since every key is in two lists.
`simulate` applies the fit to shards of a billion keys. The nprobe for a recall@16 of 0.98 grows slowly with the number
of lists: it is interpolated between the measured indexes of real text that docs/results/data has (PROBES), and extended
with their slope. Both are extrapolations: an index of a billion keys was never built.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ibidem.evaluate import describe_machine
from ibidem.retrieve import ArrayKeys, build_index

# Lists and nprobe of native indexes with a recall@16 of 0.98 to 0.99: search-it-10k, -30k, -100k and growth-cpu
# (20 million keys) of docs/results/data.
PROBES = ((128, 99), (512, 141), (2_048, 218), (65_536, 310))
QUERIES = 5
# Bytes of a key: in the index (docs/results/search.md), as int8 key of 64 dimensions, and of value, log-probability,
# offsets and texts.
INDEX_BYTES, KEY_BYTES, REST_BYTES = 54, 64, 10
TOKENS_A_CORE = 1_300
SECONDS_A_DAY = 86_400


def main() -> None:
    """Run a subcommand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="time searches, and fit the constants")
    measuring.add_argument("--keys", type=int, default=400_000)
    measuring.add_argument("--dimension", type=int, default=64)
    measuring.add_argument("--lists", type=int, nargs="+", default=[64, 512, 4_096])
    measuring.add_argument("--nprobe", type=int, nargs="+", default=[4, 16])
    measuring.add_argument("--rounds", type=int, default=7)
    measuring.add_argument("--seed", type=int, default=0)
    measuring.add_argument("--commit", default="unknown")
    measuring.add_argument("--out", type=Path)
    simulating = commands.add_parser(
        "simulate", help="print the cost of a step over the number of lists, and the table"
    )
    simulating.add_argument("--data", type=Path, required=True)
    simulating.add_argument("--price", type=float, default=0.04, help="of a core for an hour, in any currency")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        found = measure(arguments)
        text = json.dumps(found, indent=1)
        print(text)
        if arguments.out is not None:
            arguments.out.write_text(text + "\n", encoding="utf-8")
    else:
        simulate(json.loads(arguments.data.read_text("utf-8"))["fit"], arguments.price)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time searches with all settings, and fit the constants.

    Args:
        arguments: The options of the command.
    """
    torch.set_num_threads(1)
    random = np.random.default_rng(arguments.seed)
    centres = random.standard_normal((arguments.keys // 200, arguments.dimension)).astype(np.float32)
    keys = _draw(centres, arguments.keys, random)
    queries = torch.from_numpy(_draw(centres, 1_000, random).astype(np.float32))
    stored = ArrayKeys(keys)
    indexes = {}
    for lists in arguments.lists:
        for nprobe in arguments.nprobe:
            if nprobe < lists:
                setting = f"native;lists={lists};nprobe={nprobe};prune_ratio=100"
                indexes[lists, nprobe] = build_index(stored, setting, seed=arguments.seed, threads=1)
    times: dict[tuple[int, int], list[float]] = {setting: [] for setting in indexes}
    for _ in range(arguments.rounds):
        for setting, index in indexes.items():
            began = time.process_time()
            for start in range(0, len(queries), QUERIES):
                index.search(queries[start : start + QUERIES], 16)
            times[setting].append((time.process_time() - began) * 1e6 / len(queries))
    rows = [
        {
            "lists": lists,
            "nprobe": nprobe,
            "codes a list": 2 * arguments.keys / lists,
            "microseconds": round(statistics.median(found), 2),
        }
        for (lists, nprobe), found in times.items()
    ]
    return {
        "provenance": {
            "command": f"python benchmarks/scale_model.py measure --keys {arguments.keys} --rounds {arguments.rounds}",
            "commit": arguments.commit,
            "seed": str(arguments.seed),
            "signature": "none: no score of translations",
            "machine": "`machine` in this file; other work ran on it, processor time of one thread",
        },
        "keys": arguments.keys,
        "dimension": arguments.dimension,
        "queries a search": QUERIES,
        "rows": rows,
        "fit": fit(rows),
        "machine": describe_machine(),
    }


def _draw(centres: np.ndarray[Any, Any], count: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    chosen = centres[random.integers(0, len(centres), count)]
    return (chosen + 0.5 * random.standard_normal(chosen.shape)).astype(np.float16)


def fit(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Fit the constants of the module's formula.

    Args:
        rows: Measured times.

    Returns:
        The constants in microseconds, and the largest relative error.
    """
    from scipy.optimize import nnls

    design = np.array([[1.0, row["nprobe"], row["nprobe"] * row["codes a list"]] for row in rows])
    wanted = np.array([row["microseconds"] for row in rows])
    constants, _ = nnls(design / wanted[:, None], np.ones(len(rows)))
    error = float(np.abs(design @ constants / wanted - 1).max())
    base, per_list, per_code = (float(value) for value in constants)
    return {"base": base, "list": per_list, "code": per_code, "largest relative error": round(error, 3)}


def probes(lists: int) -> float:
    """Estimate the nprobe that a recall@16 of 0.98 needs.

    Args:
        lists: The number of lists.

    Examples:
        >>> round(probes(512))
        141
    """
    x = [math.log(known) for known, _ in PROBES]
    y = [math.log(known) for _, known in PROBES]
    place = math.log(lists)
    if place <= x[-1]:
        return math.exp(float(np.interp(place, x, y)))
    return math.exp(y[-1] + (y[-1] - y[-2]) / (x[-1] - x[-2]) * (place - x[-1]))


def step_milliseconds(fitted: dict[str, float], keys: float, lists: int, queries: int = QUERIES) -> float:
    """Estimate the time of a step on one core.

    Args:
        fitted: The constants.
        keys: Keys of the shard.
        lists: Lists of the shard.
        queries: Queries of the step.
    """
    probed = probes(lists)
    one = fitted["base"] + probed * (fitted["list"] + fitted["code"] * 2 * keys / lists)
    return queries * one / 1_000


def simulate(fitted: dict[str, float], price: float) -> None:
    """Print the cost of a step over the number of lists, and bytes, machines and cost of three sizes.

    Args:
        fitted: The constants.
        price: The price of a core for an hour.
    """
    print("| keys a shard | lists | keys a list | nprobe | ms a step of 5 queries, one core |")
    print("|---|---|---|---|---|")
    for keys in (154e6, 1e9):
        for power in range(16, 24):
            lists = 1 << power
            cost = step_milliseconds(fitted, keys, lists)
            print(f"| {keys:.3g} | {lists:,} | {keys / lists:,.0f} | {probes(lists):.0f} | {cost:.2f} |")
    print()
    print("| entries | keys GB | index GB | segments besides, GB | extraction, core-days | price of extraction |")
    print("|---|---|---|---|---|---|")
    for entries in (154e6, 1e9, 10e9):
        sizes = [entries * one / 1e9 for one in (KEY_BYTES, INDEX_BYTES, REST_BYTES)]
        days = entries / TOKENS_A_CORE / SECONDS_A_DAY
        print(
            f"| {entries:.3g} | {' | '.join(f'{size:,.0f}' for size in sizes)} | {days:.1f} | {days * 24 * price:,.1f} |"
        )


if __name__ == "__main__":
    main()
