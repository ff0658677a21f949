"""How fast a memory is beside the base model, transformers' own search, and the settings of the paper."""

from ibidem.evaluate.bench.contenders import System, base_contender, generate_contender, memory_contender
from ibidem.evaluate.bench.growth import SearchTime, grow_keys, time_search
from ibidem.evaluate.bench.published import dense_candidates, published_contender
from ibidem.evaluate.bench.racing import Benchmark, Round, run_benchmark
from ibidem.evaluate.bench.report import BenchSettings, run_bench
from ibidem.evaluate.bench.shares import measure_shares

__all__ = [
    "BenchSettings",
    "Benchmark",
    "Round",
    "SearchTime",
    "System",
    "base_contender",
    "dense_candidates",
    "generate_contender",
    "grow_keys",
    "measure_shares",
    "memory_contender",
    "published_contender",
    "run_bench",
    "run_benchmark",
    "time_search",
]
