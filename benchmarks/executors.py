"""Compare executors: extraction with two one-thread workers of each, interleaved, after the models are loaded.

    OMP_NUM_THREADS=1 python benchmarks/executors.py --train train.tsv [--pairs 20000] [--rounds 3] [--on local ray]

Every executor first extracts a small memory, so that its workers are started and have loaded the model. The report has
the elapsed seconds of each round and the ratio of the medians: seconds of the first executor / seconds of another one,
so that 0.9 means that the other one has 0.9 of its throughput. The files of all memories are compared. The order of the
executors changes from round to round. Ray gives its workers a lower priority than other processes (15), which would be
measured on a busy machine in place of Ray: here it is 0, unless RAY_worker_niceness is set. On a busy machine, the
ratio of the processor time, of driver, workers and Ray's own processes, varies less than that of the elapsed time.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from ibidem.evaluate import describe_machine
from ibidem.learn import ExtractSettings, extract, open_distribution
from ibidem.model import load_model
from ibidem.text import Corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="parallel text as a TSV")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--model", help="folder or name (default: the shipped model)")
    parser.add_argument("--on", nargs="+", default=["local", "ray"], help="executors; the first is the reference")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segment-bytes", type=int, default=8 << 20, help="keys of a task")
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")
    torch.set_num_threads(1)
    model = load_model(arguments.model, device="cpu", dtype="auto")
    settings = ExtractSettings(segment_bytes=arguments.segment_bytes)
    seconds: dict[str, list[float]] = {on: [] for on in arguments.on}
    processor: dict[str, list[float]] = {on: [] for on in arguments.on}
    digests: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        place = Path(scratch)
        whole, small = place / "whole.tsv", place / "small.tsv"
        with arguments.train.open(encoding="utf-8") as lines:
            whole.write_text("".join(itertools.islice(lines, arguments.pairs)), "utf-8")
        with whole.open(encoding="utf-8") as lines:
            small.write_text("".join(itertools.islice(lines, 200)), "utf-8")
        few = ExtractSettings(segment_bytes=1 << 20)
        opened = {}
        for on in arguments.on:
            opened[on] = stack.enter_context(open_distribution(on, arguments.workers, place / on, threads=1))
            extract(model, Corpus([small]), place / f"{on}-small", settings=few, distribution=opened[on])
        for number in range(arguments.rounds):
            for on in arguments.on if number % 2 == 0 else reversed(arguments.on):
                path = place / f"{on}-{number}"
                used, began = processor_seconds(on), time.monotonic()
                memory = extract(model, Corpus([whole]), path, settings=settings, distribution=opened[on])
                seconds[on].append(time.monotonic() - began)
                processor[on].append(processor_seconds(on) - used)
                digests.add(digest_segments(path))
    first = seconds[arguments.on[0]]
    rounds = {on: [a / b for a, b in zip(first, times, strict=True)] for on, times in seconds.items()}
    report = {
        "pairs": memory.pairs,
        "entries": memory.entries,
        "segments": len(memory.manifest.segments),
        "workers": arguments.workers,
        "seconds": seconds,
        "processor_seconds": processor,
        "throughput_ratio": {on: statistics.median(first) / statistics.median(times) for on, times in seconds.items()},
        "throughput_ratio_of_rounds": rounds,
        "processor_ratio": {
            on: sum(processor[arguments.on[0]]) / max(1e-9, sum(used)) for on, used in processor.items()
        },
        "same_bytes": len(digests) == 1,
        "load": os.getloadavg(),
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=1))


def processor_seconds(on: str) -> float:
    """Return the processor time of this process and of the processes of one executor that it started; 0 without /proc.

    Args:
        on: The name of the executor: what it starts has "ray" in its command only for Ray.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = file.read_text().rpartition(")")[2].split()
            process = int(file.parent.name)
            command = (file.parent / "cmdline").read_bytes()
            parents[process], ticks[process] = int(fields[1]), 0
            if process == os.getpid() or (b"ray" in command) == on.startswith("ray"):
                ticks[process] = int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while found := {process for process, parent in parents.items() if parent in family} - family:
        family |= found
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def digest_segments(path: Path) -> str:
    """Return the sha256 of the records of all segments, which hold the sha256 of their arrays."""
    total = hashlib.sha256()
    for file in sorted((path / "segments").glob("*/segment.json")):
        total.update(file.read_bytes())
    return total.hexdigest()


if __name__ == "__main__":
    main()
