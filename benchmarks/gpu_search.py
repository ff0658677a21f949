"""Time every stage that a memory adds to a decoding step on a GPU, each recorded as a CUDA graph.

    python benchmarks/gpu_search.py --out gpu_search.json
    python benchmarks/gpu_search.py -m memories/it --index exact int8 lists 'lists;nprobe=64' --rows 5 40 320

Keys are the compact keys of a memory (-m), or random keys like decoder states: many tight clusters of very different
sizes. Queries are keys moved by the distance to their nearest other key; recall is measured on them against the float16
scan. Each stage is timed with every launch of its kernel, the default first, and as plain torch. The compactor, the
Meta-k Network and the logits have the paper's shapes and random values.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ibidem.combine import AdaptiveCombiner, MetaK, Weights, best_candidates, candidates_in_torch
from ibidem.compact import NetworkCompactor
from ibidem.compact import kernels as compacting
from ibidem.evaluate import describe_machine
from ibidem.memory import Memory
from ibidem.retrieve import ArrayKeys, ListIndex, ScanIndex, build_index
from ibidem.retrieve.gpu import list_kernels, scan_kernels
from ibidem.retrieve.gpu.scan import SPARE_TILES
from ibidem.retrieve.keys import TILE
from ibidem.retrieve.recall import draw_probe, recall_at

if TYPE_CHECKING:
    from torch import Tensor

    from ibidem.retrieve import Index, Keys

Timed = Callable[[], object]

_STATES = 1024
_VOCABULARY = 42_024
_REPLAYS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-m", "--memory", type=Path, help="memory whose compact keys are searched (default: random keys)"
    )
    parser.add_argument("--entries", type=int, default=4_300_000, help="number of random keys")
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--index", nargs="+", default=["exact", "int8", "lists"], help="as for ibidem index")
    parser.add_argument("--rows", type=int, nargs="+", default=[5, 40, 320], help="queries per step")
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark needs a CUDA device")
    torch.manual_seed(arguments.seed)
    keys = make_keys(arguments)
    plain = ScanIndex(keys, "cuda", coded=True)
    exact = plain.without_codes()
    probe = draw_probe(keys, k=16, samples=max(256, *arguments.rows), seed=arguments.seed, exact=exact)
    report: dict[str, object] = {
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "entries": keys.size,
        "machine": describe_machine(),
    }
    indexes: dict[str, Index] = {}
    for setting in arguments.index:
        indexes[setting] = build_index(keys, setting, seed=arguments.seed, device="cuda")
        recall = recall_at(indexes[setting], keys, probe)
        print(f"{setting}: {indexes[setting].description}, recall@16 {recall:.4f}", flush=True)
        report[f"recall@16, {setting}"] = recall
    for rows in arguments.rows:
        queries = probe.queries[:rows].cuda()
        stages = search_stages(plain, queries, arguments.k) | mixture_stages(rows, arguments.k, 2 * arguments.beam)
        for name, index in indexes.items():
            if isinstance(index, ListIndex):
                stages |= {f"{name}: {stage}": timed for stage, timed in list_stages(index, queries).items()}
            stages[f"search, {name}"] = _bind(index.search, queries, arguments.k)
        found = {name: time_stage(stage, arguments.rounds) for name, stage in stages.items()}
        report[f"microseconds, {rows} queries"] = found
        for name, microseconds in found.items():
            print(f"{rows:4} queries  {microseconds:9.1f} µs  {name}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def make_keys(arguments: argparse.Namespace) -> Keys:
    """Return a memory's keys, or keys drawn on the GPU in clusters whose sizes follow Zipf's law."""
    if arguments.memory is not None:
        return Memory.open(arguments.memory).search_keys
    generator = torch.Generator("cuda").manual_seed(arguments.seed)
    centres = torch.randn(30_000, arguments.dimension, generator=generator, device="cuda")
    shares = 1 / torch.arange(10, 10 + len(centres), device="cuda")
    keys = np.empty((arguments.entries, arguments.dimension), np.float16)
    for start in range(0, len(keys), 1 << 20):
        part = keys[start : start + (1 << 20)]
        own = centres[torch.multinomial(shares, len(part), replacement=True, generator=generator)]
        drawn = torch.randn(own.shape, generator=generator, device="cuda").mul_(0.5).add_(own)
        part[:] = drawn.half().cpu().numpy()
    return ArrayKeys(keys)


def search_stages(index: ScanIndex, queries: Tensor, k: int) -> dict[str, Timed]:
    """Return the parts of a search; each takes the output of the part before it."""
    keys, squares, codes = index._keys, index._squares, index._codes
    assert codes is not None
    states = torch.randn(len(queries), _STATES, device="cuda")
    network = NetworkCompactor(_STATES, 4 * index.dimension, index.dimension, "sigmoid").cuda().requires_grad_(False)
    stages: dict[str, Timed] = {}

    def compact(launch: compacting.Launch) -> Timed:
        def run() -> Tensor:
            hidden = compacting.apply_layer(states, network.inner, network.activation, launch)
            return compacting.apply_layer(hidden, network.outer, None, launch)

        return run

    for layer_launch in compacting.launches(len(queries)):
        stages[f"compactor {tuple(layer_launch)}"] = compact(layer_launch)
    stages["compactor, plain"] = lambda: network.outer(network.activate(states))
    for launch in scan_kernels.launches(*queries.shape):
        stages[f"minima, float16 {tuple(launch)}"] = _bind(
            scan_kernels.float16_minima, queries, keys, squares, TILE, launch
        )
        stages[f"minima, int8 {tuple(launch)}"] = _bind(scan_kernels.int8_minima, queries, codes, TILE, launch)
    lows, groups = scan_kernels.float16_minima(queries, keys, squares, TILE)
    width = min(k + SPARE_TILES, lows.shape[1])
    stages["tiles"] = _bind(scan_kernels.choose_tiles, lows, groups, index._starts, width, scan_kernels.GROUP)
    tiles = scan_kernels.choose_tiles(lows, groups, index._starts, width, scan_kernels.GROUP)
    stages["tiles, plain"] = lambda: lows.topk(width, dim=1, largest=False, sorted=False)
    stages["distances"] = _bind(scan_kernels.measure_tiles, queries, keys, squares, tiles, TILE)
    distances = scan_kernels.measure_tiles(queries, keys, squares, tiles, TILE)
    stages["nearest"] = _bind(scan_kernels.pick_nearest, distances, tiles, None, k)
    stages["search, plain torch"] = _bind(index.without_codes()._find, queries, k, width)
    return stages


def mixture_stages(rows: int, k: int, count: int) -> dict[str, Timed]:
    """Return the stages after a search: values, weights, and the best tokens."""
    table = torch.randint(_VOCABULARY, (1 << 22,), device="cuda")
    entries = torch.randint(len(table), (rows, k), device="cuda")
    values = table[entries]
    distances = (10 * torch.rand(rows, k, device="cuda")).sort(dim=1).values
    combiner = AdaptiveCombiner(MetaK(k, 1.0).cuda().requires_grad_(False), 10.0)
    logits = torch.randn(rows, _VOCABULARY, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        weights = combiner.weigh(distances, values)
    base_only = Weights(torch.ones(rows, device="cuda"), torch.empty(rows, 0, device="cuda"))
    none = values[:, :0]
    return {
        "values": lambda: table[entries.clamp_min(0)],
        "Meta-k": _bind(combiner.weigh, distances, values),
        "Meta-k, plain": _bind(combiner.weigh_in_torch, distances, values),
        "mix": _bind(best_candidates, logits, weights, values, count),
        "mix, plain": _bind(candidates_in_torch, logits, weights, values, count),
        "best tokens of the base": _bind(best_candidates, logits, base_only, none, count),
        "best tokens of the base, plain": _bind(candidates_in_torch, logits, base_only, none, count),
    }


def list_stages(index: ListIndex, queries: Tensor) -> dict[str, Timed]:
    """Return the parts of a search in lists, each with all parts before it, because later parts overwrite buffers."""

    def coarse() -> Tensor:
        return list_kernels.score_lists(queries, index._centroids, index._centroid_squares)

    def queue() -> tuple[Tensor, Tensor, Tensor]:
        scores = coarse()
        return scores, *list_kernels.queue_queries(scores, list_kernels.limit_scores(scores, index.nprobe))

    def scan() -> Tensor:
        scores, queued, lengths = queue()
        return list_kernels.scan_lists(queries, index._codes, index._starts, queued, lengths, scores, TILE)

    return {
        "coarse": coarse,
        "coarse and limit": lambda: list_kernels.limit_scores(coarse(), index.nprobe),
        "coarse, limit and queue": queue,
        "coarse, limit, queue and minima": scan,
    }


def _bind(function: Callable[..., object], *values: object) -> Timed:
    return lambda: function(*values)


@torch.no_grad()
def time_stage(stage: Timed, rounds: int) -> float:
    """Return the microseconds of a recorded stage, as the median over rounds of replays."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            stage()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stage()
    times = []
    for _ in range(rounds):
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(_REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * float(begin.elapsed_time(end)) / _REPLAYS)
    return statistics.median(times)


if __name__ == "__main__":
    main()
