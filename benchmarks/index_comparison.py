"""Compare our CPU index with those of libraries: processor time of a query at a given recall, one thread.

    python benchmarks/index_comparison.py prepare -m memories/it --text test.de test.en -o comparison
    python benchmarks/index_comparison.py run ours -o comparison -m memories/it
    python benchmarks/index_comparison.py run faiss-rabitq -o comparison      # also: faiss-pq, usearch, scann, rabitq
    python benchmarks/index_comparison.py table -o comparison

`prepare` needs ibidem; it writes the keys of a memory, decoder states of real text as queries, and their exact
neighbours. `run` needs only numpy and the library of the system (`pip install usearch scann rabitqlib`), so that each
can have an environment of its own. It builds the index with all cores, then searches the queries in batches of 5, as
one sentence with beam 5 does, in one thread, for a list of search widths. It reports recall@16, and the processor time
of a query as the median over rounds. Widths end with the first that reaches recall 0.985.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

K = 16
BATCH = 5
ENOUGH = 0.985
# A search width, and a function that returns the neighbours [n, K] of queries [n, d] with it.
Searches = "Iterator[tuple[str, Callable[[NDArray[np.float32]], NDArray[np.int64]]]]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run", "table"):
        command = commands.add_parser(name)
        command.add_argument("-o", "--output", type=Path, required=True)
        if name != "table":
            command.add_argument("-m", "--memory")
        if name == "prepare":
            command.add_argument("--text", nargs="+", required=True, help="parallel text that the memory has not seen")
            command.add_argument("--queries", type=int, default=3000)
        if name == "run":
            command.add_argument("system", choices=SYSTEMS)
            command.add_argument("--rounds", type=int, default=3)
            command.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads while building")
    arguments = parser.parse_args()
    {"prepare": prepare, "run": run, "table": table}[arguments.command](arguments)


def prepare(arguments: argparse.Namespace) -> None:
    """Write keys.npy [n, d] float32, queries.npy [q, d] float32 and truth.npy [q, K] distances."""
    import torch
    from search import draw_queries  # benchmarks/search.py

    from ibidem.memory import Memory
    from ibidem.model import load_model
    from ibidem.retrieve import ExactIndex
    from ibidem.text import Corpus

    memory = Memory.open(arguments.memory)
    model = load_model(memory.identity.name, device="cpu", dtype="float32")
    queries = draw_queries(model, memory, Corpus(arguments.text), arguments.queries, 0).float()
    found = ExactIndex(memory.search_keys, torch.device("cpu")).search(queries, K)
    arguments.output.mkdir(parents=True, exist_ok=True)
    keys = np.concatenate(list(memory.search_keys.blocks())).astype(np.float32)
    for name, array in (("keys", keys), ("queries", queries.numpy()), ("truth", found.distances.numpy())):
        np.save(arguments.output / f"{name}.npy", array)


def run(arguments: argparse.Namespace) -> None:
    """Build one index, measure every search width, and write SYSTEM.json."""
    folder: Path = arguments.output
    keys = np.load(folder / "keys.npy", mmap_mode="r")
    queries, truth = np.load(folder / "queries.npy"), np.load(folder / "truth.npy")
    started, started_cpu = time.perf_counter(), time.process_time()
    searches = SYSTEMS[arguments.system](keys, arguments)
    points: list[dict[str, Any]] = []
    built: dict[str, float] = {}
    for width, search in searches:
        if not built:  # generators build before they yield their first width
            built = {"seconds": time.perf_counter() - started, "processor_seconds": time.process_time() - started_cpu}
        recall = measure_recall(keys, queries, search, truth)
        times = [measure_time(queries, search) for _ in range(arguments.rounds)]
        points.append({"width": width, "recall": recall, "microseconds": statistics.median(times)})
        microseconds = points[-1]["microseconds"]
        print(f"{arguments.system:14} {width:24} recall {recall:.4f}  {microseconds:8.1f} µs", flush=True)
        if recall >= ENOUGH:
            break
    report = {"system": arguments.system, "keys": keys.shape, "build": built, "points": points, "cpu": _cpu_name()}
    (folder / f"{arguments.system}.json").write_text(json.dumps(report, indent=1) + "\n")


def measure_recall(
    keys: NDArray[np.float32], queries: NDArray[np.float32], search: Any, truth: NDArray[np.float32]
) -> float:
    """Return the share of found neighbours that are as near as the K-th true one."""
    found = np.concatenate([search(queries[i : i + BATCH]) for i in range(0, len(queries), BATCH)]).astype(np.int64)
    hits = 0
    for query, entries, limit in zip(queries, found, truth[:, K - 1], strict=True):
        unique = np.unique(entries[entries >= 0])
        distances = np.square(keys[unique] - query).sum(axis=1)
        hits += min(K, int((distances <= limit * (1 + 1e-4) + 1e-6).sum()))
    return hits / (K * len(queries))


def measure_time(queries: NDArray[np.float32], search: Any) -> float:
    """Return microseconds of processor time per query, searched in batches."""
    started = time.process_time()
    for i in range(0, len(queries), BATCH):
        search(queries[i : i + BATCH])
    return (time.process_time() - started) / len(queries) * 1e6


def ours(_: NDArray[np.float32], arguments: argparse.Namespace) -> Iterator[Any]:
    """Search the native index of the memory."""
    import torch

    from ibidem.memory import Memory
    from ibidem.retrieve import open_index

    torch.set_num_threads(1)
    index = open_index(Memory.open(arguments.memory), "native", torch.device("cpu"))
    inner = getattr(index, "index", index)
    yield "as built", lambda queries: inner.search(torch.from_numpy(queries), K).entries.numpy()


def faiss_rabitq(keys: NDArray[np.float32], arguments: argparse.Namespace) -> Iterator[Any]:
    """Search an IVF with 1-bit RaBitQ codes and fast-scan; re-rank candidates with float16 keys."""
    yield from _faiss(keys, arguments, "IVF8192,RaBitQfs,Refine(SQfp16)")


def faiss_pq(keys: NDArray[np.float32], arguments: argparse.Namespace) -> Iterator[Any]:
    """Search an IVF with 4-bit product codes and fast-scan; re-rank candidates with float16 keys."""
    yield from _faiss(keys, arguments, "IVF8192,PQ32x4fs,Refine(SQfp16)")


def _faiss(keys: NDArray[np.float32], arguments: argparse.Namespace, factory: str) -> Iterator[Any]:
    import faiss

    faiss.omp_set_num_threads(arguments.threads)
    index: Any = faiss.index_factory(keys.shape[1], factory)
    sample = np.sort(np.random.default_rng(0).permutation(len(keys))[:400_000])
    index.train(np.ascontiguousarray(keys[sample]))
    for start in range(0, len(keys), 500_000):
        index.add(np.ascontiguousarray(keys[start : start + 500_000]))
    faiss.omp_set_num_threads(1)
    inverted = faiss.extract_index_ivf(index)
    for nprobe in (16, 32, 64, 128, 256, 512):
        for factor in (4, 16):
            inverted.nprobe, index.k_factor = nprobe, factor
            yield f"nprobe {nprobe}, x{factor}", lambda queries: index.search(queries, K)[1]


def usearch(keys: NDArray[np.float32], arguments: argparse.Namespace) -> Iterator[Any]:
    """Search an HNSW graph over float16 keys."""
    from usearch.index import Index

    index = Index(ndim=keys.shape[1], metric="l2sq", dtype="f16", connectivity=32, expansion_add=128)
    for start in range(0, len(keys), 200_000):
        part = np.ascontiguousarray(keys[start : start + 200_000])
        index.add(np.arange(start, start + len(part)), part, threads=arguments.threads)
    for expansion in (32, 64, 128, 256, 512, 1024):
        index.expansion_search = expansion
        yield f"ef {expansion}", lambda queries: index.search(queries, K, threads=1).keys


def scann(keys: NDArray[np.float32], arguments: argparse.Namespace) -> Iterator[Any]:
    """Search a partitioning tree with anisotropic codes; re-rank candidates with the keys."""
    from scann import scann_ops_pybind

    builder = scann_ops_pybind.builder(np.ascontiguousarray(keys), K, "squared_l2")
    builder = builder.tree(num_leaves=8192, num_leaves_to_search=100, training_sample_size=400_000)
    builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(200)
    builder.set_n_training_threads(arguments.threads)
    index = builder.build()
    for leaves in (50, 100, 200, 400, 800):
        for reorder in (100, 400):
            yield (
                f"leaves {leaves}, reorder {reorder}",
                lambda queries, leaves=leaves, reorder=reorder: index.search_batched(
                    queries, K, pre_reorder_num_neighbors=reorder, leaves_to_search=leaves
                )[0],
            )


def rabitq(keys: NDArray[np.float32], arguments: argparse.Namespace) -> Iterator[Any]:
    """Search the IVF of the authors of RaBitQ with 7-bit codes."""
    from rabitqlib import IvfIndex, QGKMeans

    everything = np.ascontiguousarray(keys)
    clusters = QGKMeans(keys.shape[1], 8192, num_threads=arguments.threads)
    clusters.train(everything)
    index = IvfIndex(keys.shape[1], len(keys), 8192, 7)
    index.build(everything, clusters.centroids, clusters.assignments, num_threads=arguments.threads)
    for nprobe in (25, 50, 100, 200, 400, 800):
        yield f"nprobe {nprobe}", lambda queries, nprobe=nprobe: index.search(queries, K, nprobe)


SYSTEMS: dict[str, Any] = {
    "ours": ours,
    "faiss-rabitq": faiss_rabitq,
    "faiss-pq": faiss_pq,
    "usearch": usearch,
    "scann": scann,
    "rabitq": rabitq,
}


def table(arguments: argparse.Namespace) -> None:
    """Print, as Markdown, the fastest point of each system with recall of at least 0.98, else its best recall."""
    print("| index | settings | recall@16 | µs a query | times ours | build, processor minutes |")
    print("|---|---|---|---|---|---|")
    reports = [json.loads(file.read_text()) for file in sorted(arguments.output.glob("*.json"))]
    chosen = {report["system"]: _choose(report["points"]) for report in reports}
    for report in sorted(reports, key=lambda report: chosen[report["system"]]["microseconds"]):
        point = chosen[report["system"]]
        ratio = point["microseconds"] / chosen["ours"]["microseconds"]
        minutes = "" if report["system"] == "ours" else f"{report['build']['processor_seconds'] / 60:.0f}"
        name, width = report["system"], point["width"]
        figures = f"{point['recall']:.3f} | {point['microseconds']:.0f} | {ratio:.1f} | {minutes}"
        print(f"| {name} | {width} | {figures} |")


def _choose(points: list[dict[str, Any]]) -> dict[str, Any]:
    good = [point for point in points if point["recall"] >= 0.98]
    if good:
        return min(good, key=lambda point: point["microseconds"])
    return max(points, key=lambda point: point["recall"])


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
