"""Compare our CPU index with those of libraries: processor time of a query at a given recall, one thread.

    python benchmarks/index_comparison.py prepare -m memories/it --text test.de test.en -o comparison
    python benchmarks/index_comparison.py run ours -o comparison
    python benchmarks/index_comparison.py run faiss-rabitq -o comparison
    python benchmarks/index_comparison.py table -o comparison

`prepare` needs ibidem; it writes the keys of a memory, decoder states of real text as queries, and their exact
neighbours. `run` builds one index over these keys with all cores, and writes SYSTEM.json. It needs only numpy and the
library of the system (`pip install usearch scann rabitqlib`), so that each can have an environment of its own; `ours`
needs ibidem. The queries are searched in batches of 5, as one sentence with beam 5 does, in one thread. `run` reports
recall@16, and the processor time of a query as the median over rounds, for curves of growing search width. A curve ends
with the first width that reaches recall 0.985, or when a wider search gains nothing.

Faiss and ScaNN get keys after a random or learned rotation, as their authors advise: the components of these keys have
very unequal variance, and a code gives the same bits to each. RaBitQ rotates by itself.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    # A function that returns the neighbours [n, K] of queries [n, d].
    Search = Callable[[NDArray[np.float32]], NDArray[np.integer[Any]]]

K = 16
BATCH = 5
TARGET = 0.98
ENOUGH = 0.985
LEAST_GAIN = 0.0005


@dataclass
class Built:
    """A built index.

    Attributes:
        library: its name and version.
        settings: how the index was built.
        bytes: size of its file.
        curves: for each curve, search settings of growing width with the search they give.
    """

    library: str
    settings: str
    bytes: int
    curves: Iterable[Iterable[tuple[str, Search]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "run", "table"):
        command = commands.add_parser(name)
        command.add_argument("-o", "--output", type=Path, required=True)
        if name == "prepare":
            command.add_argument("-m", "--memory", required=True)
            command.add_argument("--text", nargs="+", required=True, help="parallel text that the memory has not seen")
            command.add_argument("--queries", type=int, default=3000)
        if name == "run":
            command.add_argument("system", choices=SYSTEMS)
            command.add_argument("--every", type=int, default=1, help="index only every n-th key")
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
    keys, queries, truth = (np.load(folder / f"{name}.npy") for name in ("keys", "queries", "truth"))
    name = arguments.system
    if arguments.every > 1:
        keys = np.ascontiguousarray(keys[:: arguments.every])
        truth = true_distances(keys, queries)
        name += f"-every-{arguments.every}"
    started, started_cpu = time.perf_counter(), time.process_time()
    built = SYSTEMS[arguments.system](keys, arguments.threads)
    seconds = {"seconds": time.perf_counter() - started, "processor_seconds": time.process_time() - started_cpu}
    print(built.settings, seconds, flush=True)
    points: list[dict[str, Any]] = []
    for curve in built.curves:
        before = 0.0
        for width, search in curve:
            recall = measure_recall(keys, queries, search, truth)
            microseconds = statistics.median(measure_time(queries, search) for _ in range(arguments.rounds))
            points.append({"width": width, "recall": round(recall, 4), "microseconds": round(microseconds, 1)})
            print(f"{name:14} {width:32} recall {recall:.4f}  {microseconds:8.1f} µs", flush=True)
            if recall >= ENOUGH or recall < before + LEAST_GAIN:
                break
            before = recall
    report = {
        "system": name,
        "library": built.library,
        "settings": built.settings,
        "keys": keys.shape,
        "queries": len(queries),
        "build": {clock: round(value, 1) for clock, value in seconds.items()},
        "bytes_per_key": round(built.bytes / len(keys), 1),
        "points": points,
        "cpu": _cpu_name(),
    }
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")


def true_distances(keys: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the squared distances [q, K] of the nearest keys, ascending."""
    best = np.full((len(queries), K), np.inf, np.float32)
    squares = np.square(queries).sum(axis=1)[:, None]
    for start in range(0, len(keys), 50_000):
        part = keys[start : start + 50_000]
        distances = squares + np.square(part).sum(axis=1) - 2 * queries @ part.T
        nearest = np.partition(distances, K - 1, axis=1)[:, :K]
        best = np.sort(np.concatenate([best, nearest], axis=1), axis=1)[:, :K]
    return best


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


def ours(keys: NDArray[np.float32], threads: int) -> Built:
    """Build the native index."""
    import torch

    from ibidem.retrieve import ArrayKeys, NativeIndex, build_index

    index = build_index(ArrayKeys(keys.astype(np.float16)), "native", seed=0, threads=threads)
    assert isinstance(index, NativeIndex)
    torch.set_num_threads(1)
    widths = [replace(index, threads=1)]
    for _ in range(8):
        widths.append(replace(widths[-1], settings=widths[-1].settings.wider().wider()))
    curve = [(f"nprobe {each.settings.nprobe}", _searched_by_torch(each)) for each in widths]
    return Built(f"ibidem {version('ibidem')}", index.description, _file_size(index.save), [curve])


def _searched_by_torch(index: Any) -> Search:
    import torch

    return lambda queries: index.search(torch.from_numpy(queries), K).entries.numpy()


def faiss_pq(keys: NDArray[np.float32], threads: int) -> Built:
    """Build an IVF with 4-bit product codes of residuals and fast-scan; float16 keys re-rank the candidates."""
    return _faiss(keys, threads, f"OPQ32_64,IVF{_lists(keys)},PQ32x4fsr,Refine(SQfp16)", (16, 64))


def faiss_rabitq(keys: NDArray[np.float32], threads: int) -> Built:
    """Build an IVF with 1-bit RaBitQ codes and fast-scan; float16 keys re-rank the candidates."""
    return _faiss(keys, threads, f"RR64,IVF{_lists(keys)},RaBitQfs,Refine(SQfp16)", (16, 64))


def _faiss(keys: NDArray[np.float32], threads: int, factory: str, factors: tuple[int, ...]) -> Built:
    import faiss

    faiss.omp_set_num_threads(threads)
    index: Any = faiss.index_factory(keys.shape[1], factory)
    inverted: Any = faiss.extract_index_ivf(index)
    sample = np.sort(np.random.default_rng(0).permutation(len(keys))[: 40 * inverted.nlist])
    index.train(keys[sample])
    index.add(keys)
    faiss.omp_set_num_threads(1)

    def curve(factor: int) -> Iterable[tuple[str, Search]]:
        for nprobe in (32, 64, 128, 256):
            inverted.nprobe, index.k_factor = nprobe, factor
            yield f"nprobe {nprobe}, k_factor {factor}", lambda queries: index.search(queries, K)[1]

    size = _file_size(lambda path: faiss.write_index(index, str(path)))
    return Built(f"faiss {faiss.__version__}", factory, size, (curve(factor) for factor in factors))


def usearch(keys: NDArray[np.float32], threads: int) -> Built:
    """Build an HNSW graph over float16 keys, with the library's default degree and search while adding."""
    from usearch.index import Index

    index = Index(ndim=keys.shape[1], metric="l2sq", dtype="f16", connectivity=16, expansion_add=128)
    index.add(np.arange(len(keys)), keys, threads=threads)

    def curve() -> Iterable[tuple[str, Search]]:
        for expansion in (64, 128, 256, 512, 1024, 2048):
            index.expansion_search = expansion
            yield f"expansion_search {expansion}", lambda queries: index.search(queries, K, threads=1).keys

    settings = "HNSW, f16, connectivity 16, expansion_add 128"
    return Built(f"usearch {version('usearch')}", settings, _file_size(index.save), [curve()])


def scann(keys: NDArray[np.float32], threads: int) -> Built:
    """Build a partitioning tree with 4-bit product codes; the keys re-rank the candidates."""
    from scann import scann_ops_pybind

    rotation, leaves_of_tree = _rotation(keys.shape[1]), _lists(keys)
    builder = scann_ops_pybind.builder(keys @ rotation, K, "squared_l2")
    builder = builder.tree(num_leaves=leaves_of_tree, num_leaves_to_search=100, training_sample_size=400_000)
    builder = builder.score_ah(2).reorder(200)
    builder.set_n_training_threads(threads)
    index = builder.build()

    def curve(reorder: int) -> Iterable[tuple[str, Search]]:
        for leaves in (25, 50, 100, 200, 400):
            yield (
                f"leaves {leaves}, reorder {reorder}",
                lambda queries, leaves=leaves: index.search_batched(  # type: ignore[misc]
                    queries @ rotation, K, pre_reorder_num_neighbors=reorder, leaves_to_search=leaves
                )[0],
            )

    with tempfile.TemporaryDirectory() as folder:
        index.serialize(folder)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    settings = f"rotation, {leaves_of_tree} leaves, score_ah(2)"
    return Built(f"scann {version('scann')}", settings, size, (curve(reorder) for reorder in (200, 1000)))


def rabitq(keys: NDArray[np.float32], threads: int) -> Built:
    """Build the IVF of the authors of RaBitQ with 7-bit codes."""
    from rabitqlib import IvfIndex, QGKMeans

    lists = 2 * _lists(keys)
    clusters = QGKMeans(keys.shape[1], lists, num_threads=threads, niter=10)
    clusters.train(keys)
    index = IvfIndex(keys.shape[1], len(keys), lists, 7)
    index.build(keys, clusters.centroids, clusters.assignments, num_threads=threads)
    curve = [(f"nprobe {n}", _searched_by_rabitq(index, n)) for n in (25, 50, 100, 200, 400, 800)]
    size = _file_size(lambda path: index.save(str(path)))
    return Built(f"rabitqlib {version('rabitqlib')}", f"IVF{lists}, 7 bits, 10 rounds of k-means", size, [curve])


def _searched_by_rabitq(index: Any, width: int) -> Search:
    return lambda queries: index.search(queries, K, width)[0]


def _lists(keys: NDArray[np.float32]) -> int:
    """Return about 4 √n lists, a power of two."""
    return 1 << round(math.log2(4 * math.sqrt(len(keys))))


def _rotation(dimension: int) -> NDArray[np.float32]:
    normal = np.random.default_rng(0).standard_normal((dimension, dimension))
    return np.linalg.qr(normal)[0].astype(np.float32)


def _file_size(save: Callable[[Path], object]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "index")
        return (Path(folder) / "index").stat().st_size


SYSTEMS: dict[str, Callable[[NDArray[np.float32], int], Built]] = {
    "ours": ours,
    "faiss-pq": faiss_pq,
    "faiss-rabitq": faiss_rabitq,
    "usearch": usearch,
    "scann": scann,
    "rabitq": rabitq,
}


def table(arguments: argparse.Namespace) -> None:
    """Print, as Markdown, the fastest point of each system with recall of at least 0.98, else its best recall."""
    print("| keys | library | index | search | recall@16 | µs a query | times ours | build, CPU s | bytes a key |")
    print("|---|---|---|---|---|---|---|---|---|")
    reports = [json.loads(file.read_text()) for file in sorted(arguments.output.glob("*.json"))]
    chosen = {report["system"]: _choose(report["points"]) for report in reports}
    ours_of = {report["keys"][0]: chosen[report["system"]] for report in reports if report["system"].startswith("ours")}
    for report in sorted(reports, key=lambda each: (-each["keys"][0], chosen[each["system"]]["microseconds"])):
        point = chosen[report["system"]]
        cells = [
            f"{report['keys'][0]:,}",
            report["library"],
            report["settings"],
            point["width"],
            f"{point['recall']:.3f}",
            f"{point['microseconds']:.1f}",
            f"{point['microseconds'] / ours_of[report['keys'][0]]['microseconds']:.1f}",
            f"{report['build']['processor_seconds']:.0f}",
            f"{report['bytes_per_key']:.0f}",
        ]
        print(f"| {' | '.join(cells)} |")


def _choose(points: list[dict[str, Any]]) -> dict[str, Any]:
    good = [point for point in points if point["recall"] >= TARGET]
    if good:
        return min(good, key=lambda point: point["microseconds"])
    return max(points, key=lambda point: point["recall"])


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
