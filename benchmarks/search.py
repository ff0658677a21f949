"""Recall and time of a memory's indexes, on the decoder states of real text.

    python benchmarks/search.py -m memories/it --text dev.de.xz dev.en.xz --index exact paper 'IVF8192,SQ8;nprobe=16'

The queries are the states that the text itself, forced through the model, asks the memory for. Recall@k is the share
of the k true nearest neighbours that an index finds, where of equally near ones any will do. Times are medians over
batches of queries, of all threads that are allowed, rounds of all indexes interleaved. Distances of a coded index are
approximate: `distance_error` is their median relative error on the neighbours found.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.evaluate import describe_machine
from ibidem.learn.chunks import make_batches
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.retrieve import CompactedIndex, open_index
from ibidem.text import Corpus

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.model import BaseModel
    from ibidem.retrieve import Index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="parallel text that the memory has not seen")
    parser.add_argument("--index", nargs="+", default=["auto"], help="settings, as for ibidem index")
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--queries", type=int, default=4096, help="how many states to ask for")
    parser.add_argument("--batches", type=int, nargs="+", default=[5, 40, 160, 320], help="queries in a timed search")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="where exact search and the model run")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    memory = Memory.open(arguments.memory)
    model = load_model(None, device=arguments.device)
    queries = draw_queries(model, Corpus(arguments.text), arguments.queries, arguments.seed)
    truth = farthest(memory, queries, arguments.k)
    built: dict[str, Index] = {}
    found: dict[str, dict[str, object]] = {}
    for setting in arguments.index:
        began = time.perf_counter()
        built[setting] = open_index(memory, setting, model.device)
        found[setting] = {
            "description": built[setting].description,
            "seconds_to_open": time.perf_counter() - began,
            **compare(memory, queries, built[setting], truth, arguments.k),
        }
    for setting, times in time_searches(built, queries, arguments).items():
        found[setting]["microseconds_a_query"] = times
    report = {
        "entries": memory.entries,
        "dimension": memory.dimension,
        "queries": len(queries),
        "k": arguments.k,
        "seed": arguments.seed,
        "threads": torch.get_num_threads(),
        "indexes": found,
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=2))


def draw_queries(model: BaseModel, corpus: Corpus, wanted: int, seed: int) -> Tensor:
    """States [wanted, d] of tokens drawn from the text, on the model's device."""
    pairs = list(corpus)
    sources = model.tokens.encode_sources([pair.source for pair in pairs])
    targets = model.tokens.encode_targets([pair.target for pair in pairs])
    states = []
    for rows in make_batches(sources, targets, 4096):
        states.append(model.states([sources[i] for i in rows], [targets[i] for i in rows]).keys)
    everything = torch.cat(states)
    chosen = np.random.default_rng(seed).permutation(len(everything))[:wanted]
    return everything[torch.from_numpy(chosen).to(everything.device)]


def farthest(memory: Memory, queries: Tensor, k: int) -> Tensor:
    """The true distance [q] float64 of each query's k-th neighbour."""
    index = open_index(memory, "exact", queries.device)
    entries = index.search(queries, k).entries
    return true_distances(memory, in_space(index, queries), entries).amax(1)


def compare(memory: Memory, queries: Tensor, index: Index, truth: Tensor, k: int) -> dict[str, float]:
    """Recall@k and the error of the distances, for an index and the true distance [q] of the k-th neighbours."""
    found = index.search(queries, k)
    true = true_distances(memory, in_space(index, queries), found.entries)
    hits = (found.entries >= 0).cpu() & (true <= truth[:, None] * (1 + 1e-6))
    usable = (found.entries >= 0).cpu() & (true > 0)
    error = (found.distances.cpu().double() / true - 1).abs()[usable]
    return {f"recall@{k}": float(hits.double().mean()), "distance_error": float(error.median())}


def in_space(index: Index, queries: Tensor) -> Tensor:
    """Queries in the space of the keys."""
    return index.compactor(queries) if isinstance(index, CompactedIndex) else queries


@torch.no_grad()
def true_distances(memory: Memory, queries: Tensor, entries: Tensor) -> Tensor:
    """Squared distances [q, k] float64 of queries to the stored keys; for entry -1 that to some key."""
    distances = torch.empty(entries.shape, dtype=torch.float64)
    for row, (query, ids) in enumerate(zip(queries.cpu().double(), entries.cpu().clamp(min=0).numpy(), strict=True)):
        keys = torch.from_numpy(memory.search_keys.gather(ids).astype(np.float64))
        distances[row] = (query - keys).square().sum(1)
    return distances


def time_searches(
    indexes: dict[str, Index], queries: Tensor, arguments: argparse.Namespace
) -> dict[str, dict[int, float]]:
    """Median microseconds a query for each index and size of batch; every batch asks for other queries."""
    seconds: dict[str, dict[int, list[float]]] = {name: {size: [] for size in arguments.batches} for name in indexes}
    generator = np.random.default_rng(arguments.seed)
    for number in range(arguments.rounds + 1):
        for size in arguments.batches:
            batch = queries[torch.from_numpy(generator.permutation(len(queries))[:size]).to(queries.device)]
            for name, index in indexes.items():
                began = time.perf_counter()
                index.search(batch, arguments.k)
                if batch.is_cuda:
                    torch.cuda.synchronize()
                if number:  # the first round warms up
                    seconds[name][size].append(time.perf_counter() - began)
    return {
        name: {size: 1e6 * statistics.median(times) / size for size, times in by_size.items()}
        for name, by_size in seconds.items()
    }


if __name__ == "__main__":
    main()
