"""Speed of a memory, the base model, transformers' `generate()`, CTranslate2 and the settings of the paper."""

from ibidem.evaluate.bench.benchmark import Benchmark, Round, measure_shares, run_benchmark
from ibidem.evaluate.bench.growth import SearchTime, fit_growth, grow_keys, time_search
from ibidem.evaluate.bench.report import BenchSettings, run_bench
from ibidem.evaluate.bench.systems import (
    System,
    base_system,
    ctranslate2_search,
    ctranslate2_system,
    dense_candidates,
    generate_system,
    memory_system,
    paper_system,
)

__all__ = [
    "BenchSettings",
    "Benchmark",
    "Round",
    "SearchTime",
    "System",
    "base_system",
    "ctranslate2_search",
    "ctranslate2_system",
    "dense_candidates",
    "fit_growth",
    "generate_system",
    "grow_keys",
    "measure_shares",
    "memory_system",
    "paper_system",
    "run_bench",
    "run_benchmark",
    "time_search",
]
