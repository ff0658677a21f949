"""Compare every kernel of the native library with torch or faiss.

    python benchmarks/native.py [--rows 5 40 160 320] [--keys 1000000 | -m memories/it] [--build]

Rows are sentences times a beam of five. Times are medians in microseconds of a call, with the rounds of all variants
interleaved: `cpu` is the processor time of all threads of the process, `wall` is elapsed time. Search is over the keys
of a memory, or over random ones; its recall is measured against exact search. `--build` also times how the indexes are
built, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.combine import (
    AdaptiveCombiner,
    DistanceDecayCombiner,
    FixedCombiner,
    MetaK,
    Weights,
    mix,
    to_native,
)
from ibidem.evaluate import describe_machine
from ibidem.memory import Memory
from ibidem.model import BaseModel, FastMarian, load_model
from ibidem.model.fast_marian import FastMarianDecoding
from ibidem.model.linear import Int8Linear, PlainLinear
from ibidem.model.native_engine import NativeEngine
from ibidem.native import NativeLinear, best_of_mixture, loaded_instructions, native
from ibidem.retrieve import ArrayKeys, ExactIndex, build_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from ibidem.combine import Combiner
    from ibidem.model.linear import Linear
    from ibidem.retrieve import Index, Keys

    Variants = dict[str, Callable[[], Any]]

BEAM, K, VOCABULARY, WIDTH = 5, 8, 16_000, 512
STEPS, SOURCE = 10, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[5, 40, 160, 320])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-m", "--memory", help="memory whose keys are searched")
    parser.add_argument("--keys", type=int, default=1_000_000, help="number of random keys without a memory")
    parser.add_argument("--index", nargs="+", default=["native", "IVF8192,SQ8;nprobe=32"], help="settings to compare")
    parser.add_argument("--build", action="store_true", help="also time the builds of the indexes")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")
    if native() is None:
        parser.error("There is no native library: build it with `python hatch_build.py`.")
    report: dict[str, Any] = {
        "instructions": loaded_instructions(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
    }
    kernels: dict[str, Callable[[int], Variants]] = {
        "mixture": mixture_variants,
        **{f"combiner_{name}": partial(combiner_variants, combiner) for name, combiner in make_combiners().items()},
        "linear_512_1536": partial(linear_variants, 1536),
        "linear_512_16000": partial(linear_variants, VOCABULARY),
    }
    kernels["decoder_step"] = StepVariants(load_model(device="cpu"))
    indexes, queries, report["search"] = prepare_search(arguments)
    kernels["search"] = partial(search_variants, indexes, queries)
    for name, make in kernels.items():
        report[name] = {
            **report.get(name, {}),
            **{rows: compare(make(rows), arguments.rounds) for rows in arguments.rows},
        }
    report["machine"] = describe_machine()
    print(json.dumps(report, indent=2))


@torch.inference_mode()
def compare(variants: Variants, rounds: int) -> dict[str, dict[str, float]]:
    """Return median microseconds of each variant; the first round warms up."""
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    wall: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, call in variants.items():
            began, used = time.perf_counter_ns(), time.process_time_ns()
            call()
            if number:
                cpu[name].append((time.process_time_ns() - used) / 1000)
                wall[name].append((time.perf_counter_ns() - began) / 1000)
    return {
        name: {"cpu": round(statistics.median(cpu[name]), 1), "wall": round(statistics.median(wall[name]), 1)}
        for name in variants
    }


def mixture_variants(rows: int) -> Variants:
    """Find the best 2 x beam tokens of the base model alone and of the mixture; torch mixes sparsely, as `mix` does."""
    generator = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, VOCABULARY, generator=generator) * 4
    weights = torch.rand(rows, K + 1, generator=generator)
    weights /= weights.sum(1, keepdim=True)
    values = torch.randint(0, VOCABULARY, (rows, K), generator=generator)
    parts = Weights(weights[:, 0].contiguous(), weights[:, 1:].contiguous())
    count = 2 * BEAM
    return {
        "native": lambda: best_of_mixture(logits, count, base=parts.base, weights=parts.neighbours, values=values),
        "native_base": lambda: best_of_mixture(logits, count),
        "torch": lambda: mix(logits.log_softmax(1), parts, values).topk(count),
        "torch_base": lambda: logits.log_softmax(1).topk(count),
    }


def make_combiners() -> dict[str, Combiner]:
    """Make a combiner of every kind."""
    return {
        "adaptive": AdaptiveCombiner(MetaK(K, scale=20.0).eval().requires_grad_(False), temperature=10.0),
        "fixed": FixedCombiner(K, 0.4, 10.0),
        "distance_decay": DistanceDecayCombiner(10.0, k=K),
    }


def combiner_variants(combiner: Combiner, rows: int) -> Variants:
    """Weigh the same neighbours in native code and in torch."""
    generator = torch.Generator().manual_seed(rows)
    distances = (torch.rand(rows, K, generator=generator) * 40).sort(1).values
    values = torch.randint(0, 50, (rows, K), generator=generator)
    fast = to_native(combiner)
    return {"native": lambda: fast.weigh(distances, values), "torch": lambda: combiner.weigh(distances, values)}


def linear_variants(outputs: int, rows: int) -> Variants:
    generator = torch.Generator().manual_seed(rows)
    weight, bias = torch.randn(outputs, WIDTH, generator=generator), torch.randn(outputs, generator=generator)
    x = torch.randn(rows, WIDTH, generator=generator)
    layers: dict[str, Linear] = {
        "native": NativeLinear(weight, bias),
        "torch_int8": Int8Linear(weight, bias),
        "torch_fp32": PlainLinear(weight, bias),
    }
    return {name: partial(layer, x) for name, layer in layers.items()}


class StepVariants:
    """Steps of the shipped model's decoder after the first ten, with hypotheses that change their order."""

    def __init__(self, model: BaseModel) -> None:
        def fast_marian(linear: Any) -> FastMarian:
            return FastMarian(model.network, model.projection, None, linear)

        self._starts: dict[str, Callable[..., Any]] = {
            "native": NativeEngine(fast_marian(NativeLinear)).start,
            "torch_int8": partial(FastMarianDecoding, fast_marian(Int8Linear)),
            "torch_fp32": partial(FastMarianDecoding, fast_marian(PlainLinear)),
        }

    def __call__(self, rows: int) -> Variants:
        return {name: self._stepper(start, rows) for name, start in self._starts.items()}

    def _stepper(self, start: Callable[..., Any], rows: int) -> Callable[[], Any]:
        generator = torch.Generator().manual_seed(rows)
        count = rows // BEAM
        sources = torch.randint(3, VOCABULARY, (count, SOURCE), generator=generator)
        tokens = torch.randint(3, VOCABULARY, (rows, 1), generator=generator)
        order = torch.randint(0, BEAM, (count, BEAM), generator=generator) + torch.arange(count)[:, None] * BEAM
        decoding = start(sources, torch.ones_like(sources), BEAM)

        def step() -> None:
            decoding.step(tokens)
            decoding.reorder(order.view(-1))

        for _ in range(STEPS):
            step()
        return step


def prepare_search(arguments: argparse.Namespace) -> tuple[dict[str, Index], Tensor, dict[str, Any]]:
    """Return indexes over a memory's keys or random ones, queries near the keys, and a description of the indexes."""
    keys: Keys = (
        Memory.open(arguments.memory).search_keys
        if arguments.memory
        else ArrayKeys(draw_keys(arguments.keys, np.random.default_rng(1)))
    )
    generator = np.random.default_rng(2)
    near = keys.gather(generator.integers(keys.size, size=2048)).astype(np.float32)
    other = keys.gather(generator.integers(keys.size, size=2048)).astype(np.float32)
    queries = torch.from_numpy(near + 0.1 * (other - near))
    exact = ExactIndex(keys).search(queries[:512], 16).distances[:, -1:]
    indexes: dict[str, Index] = {}
    about: dict[str, Any] = {"keys": keys.size, "dimension": keys.dimension}
    for setting in arguments.index:
        began, used = time.perf_counter(), time.process_time()
        index = build_index(keys, setting, seed=1)
        seconds = {"cpu": round(time.process_time() - used, 1), "wall": round(time.perf_counter() - began, 1)}
        found = index.search(queries[:512], 16)
        true = measure(keys, queries[:512], found.entries)
        recall = (true <= exact.double() * (1 + 1e-5)).double().mean()
        about[setting] = {"description": index.description, "recall@16": round(float(recall), 4)}
        if arguments.build:
            about[setting]["seconds_to_build"] = seconds
        indexes[setting] = index
    return indexes, queries, about


def measure(keys: Keys, queries: Tensor, entries: Tensor) -> Tensor:
    """Return exact distances [q, k] float64, infinite where there is no neighbour."""
    stored = keys.gather(entries.clamp(min=0).flatten().numpy()).astype(np.float64)
    difference = queries.double()[:, None] - torch.from_numpy(stored).view(*entries.shape, -1)
    return difference.square().sum(2).masked_fill(entries < 0, torch.inf)


def search_variants(indexes: dict[str, Index], queries: Tensor, rows: int) -> Variants:
    """Search other queries in every call, as decoding does, and the same queries in all indexes."""

    def make_search(index: Index) -> Callable[[], Any]:
        place = 0

        def search() -> None:
            nonlocal place
            place = place + rows if place + 2 * rows <= len(queries) else 0
            index.search(queries[place : place + rows], 2 * K)

        return search

    return {setting: make_search(index) for setting, index in indexes.items()}


def draw_keys(count: int, generator: np.random.Generator, dimension: int = 64) -> Any:
    """Draw keys [count, dimension] float16 that resemble decoder states.

    Words follow Zipf's law, each word has senses of different shapes, the latent dimensions are few, and some keys are
    near-duplicates.
    """
    latent, words = 32, 8000
    senses = np.repeat(np.arange(words), np.maximum(1, np.sqrt(400_000 / np.arange(1, words + 1)).astype(int) // 4))
    weight = 1 / (1.0 + senses) / np.bincount(senses)[senses]
    centres = generator.standard_normal((words, latent))[senses] + 0.5 * generator.standard_normal(
        (len(senses), latent)
    )
    spread = 0.6 * np.exp(0.3 * generator.standard_normal((len(senses), 1))) * np.arange(1, latent + 1) ** -0.5
    inner = generator.standard_normal((latent, 256)) * 0.9 / latent**0.5
    outer = generator.standard_normal((256, dimension)) / 16
    keys = np.empty((count, dimension), np.float16)
    for first in range(0, count, 100_000):
        size = min(100_000, count - first)
        chosen = generator.choice(len(senses), size, p=weight / weight.sum())
        points = centres[chosen] + spread[chosen] * generator.standard_normal((size, latent))
        copies = size // 7
        points[:copies] = points[size - copies :] + 0.02 * generator.standard_normal((copies, latent))
        noise = 0.02 * generator.standard_normal((size, dimension))
        keys[first : first + size] = np.tanh(points @ inner) @ outer + noise
    return keys


if __name__ == "__main__":
    main()
