"""The whole benchmark of a memory: races over sizes of batch and beam, shares of the time, growth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ibidem.decode import load_memory
from ibidem.errors import UsageError
from ibidem.evaluate.bench.contenders import base_contender, generate_contender, memory_contender
from ibidem.evaluate.bench.converted import converted_contender
from ibidem.evaluate.bench.growth import SearchTime, fit_growth, grow_keys, time_search
from ibidem.evaluate.bench.published import published_contender
from ibidem.evaluate.bench.racing import Benchmark, cut_batches, run_benchmark
from ibidem.evaluate.bench.shares import measure_shares
from ibidem.evaluate.machine import describe_machine
from ibidem.progress import Progress, silent
from ibidem.retrieve import CompactedIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import MemoryScorer
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

AGAINST = ("generate", "paper", "ctranslate2")
_SEARCHED = [5, 40, 160, 320]


@dataclass(frozen=True)
class BenchSettings:
    """What is measured; against: other ways, of "generate" (transformers' search), "paper" (its index and mixture) and
    "ctranslate2" (the base model in that engine).

    sizes: of grown memories whose search is timed; sentences: at most so many of the text.
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
            raise UsageError(f"Nothing is known of '{min(unknown)}': measure against {', '.join(AGAINST)}.")
        for name in ("batches", "beams", "sizes"):
            if any(number < 1 for number in getattr(self, name)):
                raise UsageError(f"{name} {getattr(self, name)} cannot be measured: give numbers of 1 or more.")


def run_bench(
    model: BaseModel,
    memory: Memory,
    texts: Sequence[str],
    settings: BenchSettings,
    *,
    index: str | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Race the memory against the base model and others on the texts; figures as JSON holds them."""
    encoded = [ids for ids in model.tokens.encode_sources(texts) if 1 < len(ids) <= model.tokens.longest_source]
    sources = encoded[: settings.sentences]
    scorer = load_memory(memory, model, index=index)
    contenders = [base_contender(model), memory_contender(model, scorer)]
    if "generate" in settings.against:
        contenders.append(generate_contender(model))
    if "paper" in settings.against:
        contenders.append(published_contender(memory, model))
    if "ctranslate2" in settings.against:
        contenders.append(converted_contender(model))
    races: list[Benchmark] = []
    shares = {}
    for beam in settings.beams:
        for batch in settings.batches:
            found = run_benchmark(
                contenders,
                sources,
                batch=batch,
                beam=beam,
                rounds=settings.rounds,
                device=model.device,
                progress=progress,
            )
            races.append(found)
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
        "races": [found.to_json() for found in races],
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
    """Search times of memories of other sizes, asked for the states of the sources' own translations."""
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
            time_search(keys, queries, "auto", batches=_SEARCHED, k=scorer.combiner.k, rounds=5, seed=settings.seed)
        )
        progress("Growing", number / len(settings.sizes), number, "sizes")
    return found
