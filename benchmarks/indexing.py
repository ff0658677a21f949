"""Seconds to build a memory's index, beside a plain faiss build on the same threads.

    python benchmarks/indexing.py -m memories/it --threads 2 [--keys 4000000] [--plain IVF16384,SQ8] [--rounds 1]

The plain build is what faiss's own documentation begins with: a factory string, `train` on all keys (of which faiss
takes as many as its k-means wants), `add`. Ours is that of `ibidem index`, with the measuring of recall, whose seconds
are also said apart. One after the other, in one process; `cpu` is the process's own time, of all its threads. Where
more keys are wanted than the memory has, the others are copies of them, each moved by a tenth of a component's spread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.evaluate import describe_machine
from ibidem.memory import Memory
from ibidem.retrieve import ArrayKeys, FaissIndex, FaissSettings, build_index, measure_recall
from ibidem.retrieve.faiss_library import load_faiss

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.retrieve import Index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--keys", type=int, help="how many; else as many as the memory has")
    parser.add_argument("--plain", default="IVF16384,SQ8", help="a faiss factory string")
    parser.add_argument("--rounds", type=int, help="of the plain build's k-means; else faiss's own ten")
    parser.add_argument("--index", nargs="+", default=["native"], help="settings of ours to compare it with")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    load_faiss().omp_set_num_threads(arguments.threads)
    memory = Memory.open(arguments.memory)
    keys = draw_keys(memory, arguments.keys or memory.entries, arguments.seed)
    report: dict[str, Any] = {
        "keys": keys.size,
        "dimension": keys.dimension,
        "threads": arguments.threads,
        "seed": arguments.seed,
        "rounds_of_the_plain_build": arguments.rounds or 10,
    }
    ways: dict[str, Callable[[], Index]] = {
        name: lambda name=name: build_index(keys, name, seed=arguments.seed, threads=arguments.threads)  # type: ignore[misc]
        for name in arguments.index
    }
    ways[f"plain {arguments.plain}"] = lambda: build_plainly(keys, arguments.plain, arguments.rounds, arguments.threads)
    for name, build in ways.items():
        began, used = time.perf_counter(), time.process_time()
        index = build()
        report[name] = {
            "seconds": {"cpu": round(time.process_time() - used, 1), "wall": round(time.perf_counter() - began, 1)},
            "description": index.description,
        }
        began, used = time.perf_counter(), time.process_time()
        report[name]["recall@16"] = round(measure_recall(index, keys, samples=128, seed=arguments.seed), 4)
        print(f"{name}: {report[name]['seconds']}", file=sys.stderr)
        report[name]["seconds_to_measure"] = {
            "cpu": round(time.process_time() - used, 1),
            "wall": round(time.perf_counter() - began, 1),
        }
    report["load"] = os.getloadavg()
    report["machine"] = describe_machine()
    print(json.dumps(report, indent=2))


def draw_keys(memory: Memory, wanted: int, seed: int) -> ArrayKeys:
    """The first keys of a memory, and moved copies of them where it has too few."""
    generator = np.random.default_rng(seed)
    own = np.concatenate([*memory.search_keys.blocks(1 << 20)])
    spread = 0.1 * own.astype(np.float32).std(0)
    parts = [own[:wanted]]
    for first in range(len(own), wanted, len(own)):
        some = own[: wanted - first]
        parts.append((some + spread * generator.standard_normal(some.shape, dtype=np.float32)).astype(own.dtype))
    return ArrayKeys(np.concatenate(parts))


def build_plainly(keys: ArrayKeys, factory: str, rounds: int | None, threads: int) -> Index:
    """As a user of faiss would."""
    faiss = load_faiss()
    everything = keys.gather(np.arange(keys.size)).astype(np.float32)
    index = faiss.index_factory(keys.dimension, factory)
    index.cp.niter = rounds or index.cp.niter
    index.train(everything)
    index.add(everything)
    return FaissIndex(index, FaissSettings(factory, nprobe=32), threads=threads)


if __name__ == "__main__":
    main()
