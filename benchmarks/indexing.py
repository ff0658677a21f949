"""Measure the seconds to build a memory's index, compared with a plain faiss build on the same threads.

    python benchmarks/indexing.py -m memories/it --threads 2 [--keys 4000000] [--plain IVF16384,SQ8] [--rounds 1]

The plain build follows the introduction of faiss's documentation: a factory string, `train` on all keys (faiss samples
them for its k-means), `add`. Our build is that of `ibidem index`; the seconds of the recall measurement are also
reported separately. The builds run one after the other in one process; `cpu` is the processor time of all its threads.
If `--keys` exceeds the memory's keys, the others are copies, each moved by a tenth of a component's standard deviation.
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
    parser.add_argument("--keys", type=int, help="number of keys (default: that of the memory)")
    parser.add_argument("--plain", default="IVF16384,SQ8", help="a faiss factory string")
    parser.add_argument("--rounds", type=int, help="k-means rounds of the plain build (default: faiss's 10)")
    parser.add_argument("--index", nargs="+", default=["native"], help="our settings to compare")
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
    builds: dict[str, Callable[[], Index]] = {
        name: lambda name=name: build_index(keys, name, seed=arguments.seed, threads=arguments.threads)  # type: ignore[misc]
        for name in arguments.index
    }
    builds[f"plain {arguments.plain}"] = lambda: build_plain(keys, arguments.plain, arguments.rounds, arguments.threads)
    for name, build in builds.items():
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
    """Return the first keys of a memory, with moved copies of them if it has too few."""
    generator = np.random.default_rng(seed)
    own = np.concatenate([*memory.search_keys.blocks(1 << 20)])
    spread = 0.1 * own.astype(np.float32).std(0)
    parts = [own[:wanted]]
    for first in range(len(own), wanted, len(own)):
        some = own[: wanted - first]
        parts.append((some + spread * generator.standard_normal(some.shape, dtype=np.float32)).astype(own.dtype))
    return ArrayKeys(np.concatenate(parts))


def build_plain(keys: ArrayKeys, factory: str, rounds: int | None, threads: int) -> Index:
    """Build an index with faiss alone."""
    faiss = load_faiss()
    everything = keys.gather(np.arange(keys.size)).astype(np.float32)
    index = faiss.index_factory(keys.dimension, factory)
    index.cp.niter = rounds or index.cp.niter
    index.train(everything)
    index.add(everything)
    return FaissIndex(index, FaissSettings(factory, nprobe=32), threads=threads)


if __name__ == "__main__":
    main()
