"""The benchmark of a memory: systems over batch sizes and beams, shares of the time, and growth of the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ibidem.decode import load_memory_scorer
from ibidem.errors import UsageError
from ibidem.evaluate.bench.benchmark import Benchmark, cut_batches, measure_shares, run_benchmark
from ibidem.evaluate.bench.growth import SearchTime, fit_growth, grow_keys, time_search
from ibidem.evaluate.bench.systems import (
    base_system,
    ctranslate2_system,
    generate_system,
    memory_system,
    paper_system,
)
from ibidem.evaluate.machine import describe_machine
from ibidem.progress import Progress, silent
from ibidem.retrieve import CompactedIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import MemoryScorer
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

AGAINST = ("generate", "paper", "ctranslate2")
# Batch sizes of the searches in grown memories.
_SEARCH_BATCHES = [5, 40, 160, 320]


@dataclass(frozen=True)
class BenchSettings:
    """Hold the settings of a benchmark.

    Attributes:
        batches: Batch sizes.
        beams: Beam sizes.
        rounds: Number of counted rounds.
        sentences: Largest number of sentences.
        against: Other systems: "generate" (transformers' `generate()`), "paper" (the paper's index and mixture) and
            "ctranslate2" (the base model in CTranslate2).
        sizes: Numbers of keys of grown memories whose search is timed.
        seed: Seed of the grown memories.

    Raises:
        UsageError: A system is unknown, or a number is below 1.
    """

    batches: tuple[int, ...] = (1, 8, 32, 64)
    beams: tuple[int, ...] = (1, 5)
    rounds: int = 3
    sentences: int = 64
    against: tuple[str, ...] = ("generate", "paper")
    sizes: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.against) - set(AGAINST)
        if unknown:
            raise UsageError(f"Unknown system '{min(unknown)}': measure against {', '.join(AGAINST)}.")
        for name in ("batches", "beams", "sizes"):
            if any(number < 1 for number in getattr(self, name)):
                raise UsageError(f"Invalid {name} {getattr(self, name)}: give numbers of 1 or more.")


def run_bench(
    model: BaseModel,
    memory: Memory,
    texts: Sequence[str],
    settings: BenchSettings,
    *,
    index: str | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Time the memory, the base model and other systems.

    Args:
        model: The base model.
        memory: The memory.
        texts: Source sentences.
        settings: The settings.
        index: Setting of the memory's index; None takes its own.
        progress: Progress callback.

    Returns:
        All figures, as JSON.

    Raises:
        UsageError: No sentence has a valid length, or a system of `settings.against` cannot be measured here.
    """
    encoded = [ids for ids in model.tokens.encode_sources(texts) if 1 < len(ids) <= model.tokens.max_source_length]
    sources = encoded[: settings.sentences]
    scorer = load_memory_scorer(memory, model, index=index)
    systems = [base_system(model), memory_system(model, scorer)]
    if "generate" in settings.against:
        systems.append(generate_system(model))
    if "paper" in settings.against:
        systems.append(paper_system(memory, model))
    if "ctranslate2" in settings.against:
        systems.append(ctranslate2_system(model))
    benchmarks: list[Benchmark] = []
    shares = {}
    for beam in settings.beams:
        for batch in settings.batches:
            found = run_benchmark(
                systems,
                sources,
                batch=batch,
                beam=beam,
                rounds=settings.rounds,
                device=model.device,
                progress=progress,
            )
            benchmarks.append(found)
            shares[f"{batch} x {beam}"] = measure_shares(model, scorer, cut_batches(sources, batch), beam)
    growth = _measure_growth(model, memory, scorer, sources, settings, progress)
    return {
        "model": model.name,
        "entries": memory.entries,
        "dimension": memory.dimension,
        "bytes_per_entry": sum(memory.bytes_by_array().values()) / max(1, memory.entries),
        "index": scorer.index.description,
        "device": str(model.device),
        "threads": torch.get_num_threads(),
        "source_tokens": sum(map(len, sources)) / max(1, len(sources)),
        "benchmarks": [found.to_json() for found in benchmarks],
        "shares_of_time": shares,
        "growth": [found.to_json() for found in growth],
        "growth_exponents": fit_growth(growth),
        "machine": describe_machine(),
    }


def _measure_growth(
    model: BaseModel,
    memory: Memory,
    scorer: MemoryScorer,
    sources: Sequence[list[int]],
    settings: BenchSettings,
    progress: Progress,
) -> list[SearchTime]:
    """Time searches in memories of other sizes, with the decoder states of the sources' translations as queries."""
    if not settings.sizes:
        return []
    decoding, fed = model.start(sources), torch.tensor(model.tokens.start, device=model.device)
    tokens = fed.expand(len(sources), -1)
    states = []
    for _ in range(12):
        step = decoding.step(tokens)
        states.append(step.states)
        tokens = step.logits.argmax(dim=1)[:, None]
    queries = torch.cat(states)
    if isinstance(scorer.index, CompactedIndex):
        with torch.no_grad():
            queries = scorer.index.compactor(queries)
    found = []
    for number, size in enumerate(settings.sizes, start=1):
        keys = grow_keys(memory.search_keys, size, seed=settings.seed)
        found.append(
            time_search(
                keys, queries, "auto", batches=_SEARCH_BATCHES, k=scorer.combiner.k, rounds=5, seed=settings.seed
            )
        )
        progress("Growing", number / len(settings.sizes), number, "sizes")
    return found
