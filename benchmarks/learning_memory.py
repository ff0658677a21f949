"""Measure how many bytes of RAM the stages of learning hold for each entry, on a synthetic memory.

    python benchmarks/learning_memory.py [--entries 4000000] [--seed 0] [--output learning-memory.json]

Values follow Zipf's law over 16,000 tokens, in sentences of about 15 tokens; a key is the centre of its token with
noise around it. Each stage runs in a process of its own on a copy of the memory. Counted is the anonymous memory, which
the system cannot write back to a file: the highest of samples taken every 5 ms, less that at the start of the stage.
Keys and neighbour graphs are mapped from files; the graphs are drawn, mostly of entries with the same token. A stage
needs some memory whatever the number of entries, and some for each entry: the second number is the difference of the
peaks of two memories over that of their entries.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.combine import FixedCombiner
from ibidem.combine.storage import store_fixed
from ibidem.evaluate import describe_machine
from ibidem.learn import NeighbourGraph, PruneSettings, prune_memory
from ibidem.memory import FIXED_COMBINER_ARTEFACT, Memory, ModelIdentity, SegmentData

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from numpy.typing import NDArray

TOKENS, DIMENSION, NEIGHBOURS = 16_000, 16, 16
SEGMENT = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=4_000_000, help="of the larger memory; the other has half")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the memories are written; the default is a temporary folder")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    stages: dict[str, Callable[[Memory], object]] = {
        f"prune {name}": partial(_prune, settings=settings)
        for name, settings in (
            ("cost-clusters of n-grams", PruneSettings()),
            ("cost-clusters of n-grams, half", PruneSettings(rate=0.5)),
            ("cost-clusters of tokens", PruneSettings(groups="token")),
            ("cost-clusters of consistent entries", PruneSettings(groups="consistent")),
            ("redundant", PruneSettings(strategy="redundant")),
            ("spatial", PruneSettings(strategy="spatial")),
            ("random", PruneSettings(strategy="random")),
            ("low-probability", PruneSettings(strategy="low-probability")),
        )
    }
    report: dict[str, object] = {"entries": [arguments.entries // 2, arguments.entries], "most frequent token": None}
    peaks: dict[str, list[dict[str, float]]] = {name: [] for name in stages}
    for size in (arguments.entries // 2, arguments.entries):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
            path, share = make_memory(Path(scratch) / "memory", size, arguments.seed)
            report["most frequent token"] = round(share, 4)
            for name, stage in stages.items():
                copy = Path(scratch) / "copy"
                shutil.copytree(path, copy, copy_function=os.link)
                peaks[name].append(measure(stage, copy))
                shutil.rmtree(copy)
                print(size, name, peaks[name][-1], flush=True)
    half = arguments.entries - arguments.entries // 2
    report["stages"] = {
        name: {
            "peak_mb": [round(one["bytes"] / 1e6, 1) for one in both],
            "seconds": [round(one["seconds"], 1) for one in both],
            "bytes_an_entry": round((both[1]["bytes"] - both[0]["bytes"]) / half, 1),
        }
        for name, both in peaks.items()
    }
    print(json.dumps(report, indent=1))
    if arguments.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        provenance = {
            "command": f"python benchmarks/learning_memory.py --entries {arguments.entries} --seed {arguments.seed}",
            "commit": commit.stdout.strip(),
            "seed": str(arguments.seed),
            "signature": "no BLEU",
            "machine": describe_machine(),
        }
        arguments.output.write_text(json.dumps({"provenance": provenance, **report}, indent=1) + "\n", "utf-8")


def make_memory(path: Path, entries: int, seed: int) -> tuple[Path, float]:
    """Write a memory of drawn entries, clustered by token and with a combiner.

    Args:
        path: A new folder.
        entries: The number of entries.
        seed: Of all numbers.

    Returns:
        The folder, and the share of the most frequent token.
    """
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, TOKENS + 1)
    weights /= weights.sum()
    centres = generator.standard_normal((TOKENS, DIMENSION)).astype(np.float32)
    identity = ModelIdentity("drawn", "drawn", "drawn", DIMENSION, TOKENS, "de", "en")
    memory, labels = Memory.create(path, identity, complete=True), []
    with memory.edit() as edit:
        for start in range(0, entries, SEGMENT):
            size = min(SEGMENT, entries - start)
            values = generator.choice(TOKENS, size=size, p=weights).astype(np.int32)
            ends = np.cumsum(generator.integers(5, 26, size=size // 5 + 1))
            ends = np.append(ends[ends < size], size)
            texts = ["drawn"] * len(ends)
            noise = generator.standard_normal((size, DIMENSION)).astype(np.float32)
            edit.append_segment(
                SegmentData(
                    keys=(centres[values] + 0.5 * noise).astype(np.float16),
                    values=values,
                    log_probs=-(generator.exponential(1, size=size) ** 1.5).astype(np.float32),
                    lengths=np.diff(ends, prepend=0),
                    sources=texts,
                    targets=texts,
                    origins=texts,
                    locations=list(range(len(ends))),
                    source_vectors=np.zeros((len(ends), 64), np.int8),
                )
            )
            labels.append(2 * values + (generator.random(size) < 0.5))
        stored = store_fixed(FixedCombiner(8, 0.5, 10.0))
        edit.put_artefact(FIXED_COMBINER_ARTEFACT, stored.extension, stored.payload, stored.summary)
        edit.commit()
        found = np.concatenate(labels).astype(np.int32)
        edit.put_array("clusters", lambda start, stop: found[start:stop])
        edit.set_stage("cluster", {"digest": "drawn"})
        edit.set_stage("tune", {"digest": "drawn"})
        edit.commit()
    draw_graph(path, memory.pinned().values(), generator)
    return path, float(weights[0])


def draw_graph(path: Path, values: NDArray[np.int32], generator: np.random.Generator) -> None:
    """Write the neighbours of every entry: entries near it in the order of tokens, and some others.

    Args:
        path: The folder of the memory; the graph lies beside it.
        values: [entries] the tokens.
        generator: Draws the neighbours.
    """
    size = len(values)
    order = np.argsort(values, kind="stable")
    near = np.lib.format.open_memmap(path.with_suffix(".near.npy"), "w+", np.int32, (size, NEIGHBOURS))
    away = np.lib.format.open_memmap(path.with_suffix(".away.npy"), "w+", np.float32, (size, NEIGHBOURS))
    for start in range(0, size, SEGMENT):
        own = np.arange(start, min(size, start + SEGMENT))
        places = own[:, None] + generator.integers(-20, 21, (len(own), NEIGHBOURS))
        near[order[own]] = order[np.clip(places, 0, size - 1)]
        away[order[own]] = np.sort(generator.exponential(5, (len(own), NEIGHBOURS)).astype(np.float32), axis=1)


def measure(stage: Callable[[Memory], object], path: Path) -> dict[str, float]:
    """Run a stage on a memory in a process of its own, and return its seconds and the growth of anonymous memory."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(stage, path, sender))
    process.start()
    sender.close()
    result: dict[str, float] = receiver.recv()
    process.join()
    return result


def _run(stage: Callable[[Memory], object], path: Path, sender: Connection) -> None:
    torch.set_num_threads(1)
    memory, peak, ended = Memory.open(path), 0, threading.Event()
    before = _anonymous()

    def sample() -> None:
        nonlocal peak
        while not ended.wait(0.005):
            peak = max(peak, _anonymous())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    began = time.perf_counter()
    stage(memory)
    seconds = time.perf_counter() - began
    ended.set()
    sampler.join()
    sender.send({"seconds": seconds, "bytes": float(peak - before)})


def _anonymous() -> int:
    """Return the bytes of this process that belong to no file."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))


def _prune(memory: Memory, settings: PruneSettings) -> object:
    files = (memory.path.with_name(f"memory.{name}.npy") for name in ("near", "away"))
    return prune_memory(memory, settings, graph=NeighbourGraph(*(np.load(file, mmap_mode="r") for file in files)))


if __name__ == "__main__":
    main()
