"""Measure recall, time and size of indexes over a memory's keys, with decoder states of real text as queries.

    python benchmarks/search.py -m memories/it --text dev.de.xz dev.en.xz --threads 1 \\
        --index exact paper native 'native;nprobe=32;prune_ratio=1.5' 'IVF8192,SQ8;nprobe=16' 'IVF8192,SQ8;nprobe=64'

The queries are the decoder states of the text under forced decoding, after the memory's compactor. Recall@k is the
share of the k true nearest neighbours that an index finds; equally near keys are interchangeable. `recall_at_build` is
the recall that the build measured on queries drawn from the keys. Settings that differ only in the search share one
index. Times are medians in microseconds per query over batches, with the rounds of all indexes interleaved: `cpu` is
the processor time of the process, `wall` is elapsed time. `--keys` is the number of keys, drawn at random from the
memory's; `bytes` is the size of a key in the index. Distances of a coded index are approximate: `distance_error` is
their median relative error on the neighbours found.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.evaluate import describe_machine
from ibidem.learn import make_batches
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.retrieve import ArrayKeys, ExactIndex, FaissIndex, NativeIndex, build_index, compactor_of, resolve
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from ibidem.model import BaseModel
    from ibidem.retrieve import Index, Keys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="parallel text that the memory has not seen")
    parser.add_argument("--index", nargs="+", default=["auto"], help="settings, as for ibidem index")
    parser.add_argument("--keys", type=int, help="number of the memory's keys to search (default: all)")
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--queries", type=int, default=4096, help="number of states to search")
    parser.add_argument("--batches", type=int, nargs="+", default=[5, 40, 160, 320], help="queries in a timed search")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu", help="where exact search and the model run")
    parser.add_argument("--threads", type=int, help="threads of the search")
    parser.add_argument("--build-threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    memory = Memory.open(arguments.memory)
    model = load_model(None, device=arguments.device)
    keys = draw_keys(memory, arguments.keys, arguments.seed)
    queries = draw_queries(model, memory, Corpus(arguments.text), arguments.queries, arguments.seed)
    truth = true_distances(keys, queries, ExactIndex(keys, model.device).search(queries, arguments.k).entries).amax(1)
    built: dict[str, Index] = {}
    found: dict[str, dict[str, object]] = {}
    for setting, index, cost in build(keys, arguments, model.device):
        built[setting] = index
        found[setting] = {
            "description": index.description,
            **compare(keys, queries, index, truth, arguments.k),
            "recall_at_build": getattr(index, "recall", None),
            **cost,
        }
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    for setting, times in time_searches(built, queries, arguments).items():
        found[setting]["microseconds_a_query"] = times
    report = {
        "entries": keys.size,
        "dimension": keys.dimension,
        "queries": len(queries),
        "k": arguments.k,
        "seed": arguments.seed,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "indexes": found,
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=2))


def draw_keys(memory: Memory, wanted: int | None, seed: int) -> Keys:
    """Return the keys that the memory is searched by, or a random sample of them."""
    keys = memory.search_keys
    if wanted is None or wanted >= keys.size:
        return keys
    chosen = np.sort(np.random.default_rng(seed).permutation(keys.size)[:wanted])
    return ArrayKeys(keys.gather(chosen))


@torch.no_grad()
def draw_queries(model: BaseModel, memory: Memory, corpus: Corpus, wanted: int, seed: int) -> Tensor:
    """Return states [wanted, d] of tokens drawn from the text, in the memory's space, on the model's device."""
    pairs = list(corpus)
    sources = model.tokens.encode_sources([pair.source for pair in pairs])
    targets = model.tokens.encode_targets([pair.target for pair in pairs])
    states = []
    for rows in make_batches(sources, targets, 4096):
        states.append(model.states([sources[i] for i in rows], [targets[i] for i in rows]).keys)
    everything = torch.cat(states)
    chosen = np.random.default_rng(seed).permutation(len(everything))[:wanted]
    queries = everything[torch.from_numpy(chosen).to(everything.device)]
    compactor = compactor_of(memory)
    return queries if compactor is None else compactor.to(model.device)(queries)


def build(
    keys: Keys, arguments: argparse.Namespace, device: torch.device
) -> Iterator[tuple[str, Index, dict[str, object]]]:
    """Yield every setting with its index and its cost; settings that differ only in the search share one build."""
    known: dict[str, tuple[Index, dict[str, object]]] = {}
    for setting in arguments.index:
        kind = setting.partition(";")[0]
        if kind in known:
            first, cost = known[kind]
            yield setting, with_settings(first, setting, keys), {"bytes": cost["bytes"]}
            continue
        began, used = time.perf_counter(), time.process_time()
        index = build_index(keys, setting, seed=arguments.seed, threads=arguments.build_threads, device=device)
        seconds = {"cpu": round(time.process_time() - used, 1), "wall": round(time.perf_counter() - began, 1)}
        if isinstance(index, FaissIndex | NativeIndex):
            index = replace(index, threads=arguments.threads)
        known[kind] = index, {"seconds_to_build": seconds, "bytes": bytes_of(index, keys)}
        yield setting, *known[kind]


def with_settings(index: Index, setting: str, keys: Keys) -> Index:
    """Return the index with the search settings of another setting."""
    settings: Any = resolve(setting, keys.size, keys.dimension)
    if isinstance(index, NativeIndex):
        settings = replace(settings, lists=index.settings.lists)
    assert isinstance(index, FaissIndex | NativeIndex)
    return replace(index, settings=settings, recall=None)


def bytes_of(index: Index, keys: Keys) -> float:
    """Return bytes per key in the file of an index, or bytes of a stored key for exact search."""
    if not isinstance(index, FaissIndex | NativeIndex):
        return next(iter(keys.blocks(1))).nbytes
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        return round((Path(folder) / "index").stat().st_size / keys.size, 1)


def compare(keys: Keys, queries: Tensor, index: Index, truth: Tensor, k: int) -> dict[str, float]:
    """Return recall and distance error of an index, given the true distances [q] of the k-th neighbours."""
    found = index.search(queries, k)
    true = true_distances(keys, queries, found.entries)
    hits = (found.entries >= 0).cpu() & (true <= truth[:, None] * (1 + 1e-6))
    usable = (found.entries >= 0).cpu() & (true > 0)
    error = (found.distances.cpu().double() / true - 1).abs()[usable]
    return {f"recall@{k}": round(float(hits.double().mean()), 4), "distance_error": float(error.median())}


@torch.no_grad()
def true_distances(keys: Keys, queries: Tensor, entries: Tensor) -> Tensor:
    """Return squared distances [q, k] float64 of queries to stored keys; entry -1 gives an arbitrary distance."""
    distances = torch.empty(entries.shape, dtype=torch.float64)
    for row, (query, ids) in enumerate(zip(queries.cpu().double(), entries.cpu().clamp(min=0).numpy(), strict=True)):
        stored = torch.from_numpy(keys.gather(ids).astype(np.float64))
        distances[row] = (query - stored).square().sum(1)
    return distances


def time_searches(
    indexes: dict[str, Index], queries: Tensor, arguments: argparse.Namespace
) -> dict[str, dict[int, dict[str, float]]]:
    """Return median microseconds per query for each index and batch size; every batch has other queries."""
    cpu: dict[str, dict[int, list[int]]] = {name: {size: [] for size in arguments.batches} for name in indexes}
    wall: dict[str, dict[int, list[int]]] = {name: {size: [] for size in arguments.batches} for name in indexes}
    generator = np.random.default_rng(arguments.seed)
    for number in range(arguments.rounds + 1):
        for size in arguments.batches:
            batch = queries[torch.from_numpy(generator.permutation(len(queries))[:size]).to(queries.device)]
            for name, index in indexes.items():
                began, used = time.perf_counter_ns(), time.process_time_ns()
                index.search(batch, arguments.k)
                if batch.is_cuda:
                    torch.cuda.synchronize()
                if number:  # the first round warms up
                    cpu[name][size].append(time.process_time_ns() - used)
                    wall[name][size].append(time.perf_counter_ns() - began)
    return {
        name: {
            size: {
                "cpu": round(statistics.median(cpu[name][size]) / size / 1000, 1),
                "wall": round(statistics.median(wall[name][size]) / size / 1000, 1),
            }
            for size in arguments.batches
        }
        for name in indexes
    }


if __name__ == "__main__":
    main()
