"""Made-up results, for tests of layout and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.evaluate import score_bleu
from ibidem.reproduce.results import MATCHES
from ibidem.reproduce.rows import Measured
from ibidem.reproduce.tables.quality import large_timing, variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows import Row

TRACE: dict[str, Any] = {
    "command": "ibidem reproduce all",
    "commit": "0123456789abcdef",
    "ibidem": "0.1.0",
    "when": "2026-01-02T03:04:05+00:00",
    "seconds": 60.0,
    "side_by_side": 1,
    "device": "cpu",
    "model": {"name": "made-up", "fingerprint": "f", "dimension": 8},
    "texts": {},
    "machine": {"cpu": "abacus", "cores": 1, "torch": "2"},
    "smoke": False,
}


def make_counts(quality: float, seed: int = 0, sentences: int = 60) -> NDArray[np.int64]:
    """BLEU counts [sentences, 10] of which about a share `quality` of all n-grams matches."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 15, sentences)
    totals = np.stack([lengths - n for n in range(4)], axis=1)
    return np.concatenate([lengths[:, None], lengths[:, None], random.binomial(totals, quality), totals], axis=1)


def put_score(results: Results, row: Row, quality: float, **more: Any) -> float:
    """Store a result of about this quality for a row, the same for the same quality, and return its BLEU."""
    counts = make_counts(quality)
    bleu = float(score_bleu(counts.sum(axis=0)))
    figures = {
        "name": row.name,
        "seed": row.seed,
        "sentences": len(counts),
        "scores": {"BLEU": bleu, "chrF": bleu},
        "signatures": {"BLEU": "made:up", "chrF": "made:up"},
        "memory": {"pairs": 10, "tokens": 2_000_000, "entries": 1_500_000, "dimension": 64, "bytes": {}},
        "stages": {
            "trained": {"seconds": 30.0, "entries": 900_000, "updates": 10},
            "tuned": {"seconds": 5.0, "loss_adaptive_validation": 1.5},
        },
        **TRACE,
        **more,
    }
    results.put(row, Measured(figures, {MATCHES: counts}))
    return bleu


def put_figures(results: Results, row: Row, **figures: Any) -> None:
    """Store figures of a row that translates nothing."""
    results.put(row, Measured({"name": row.name, "seed": row.seed, **TRACE, **figures}))


def put_all(results: Results, rows: Iterable[Row], quality: Callable[[Row], float] = lambda _: 0.7) -> None:
    """Store a result for each row."""
    for row in rows:
        put_score(results, row, quality(row))


def put_speeds(results: Results, plan: Plan, batch: int) -> None:
    """Store made-up speeds of all systems with the large memory."""
    found = [{"tokens_per_second": 1000.0, "sentences_per_second": 100.0, "milliseconds_per_token": 1.0}]
    for number, _ in enumerate(variants(plan)):
        rate = 400.0 + 10 * number
        memory = {"entries": 5, "storage": {"keys_and_values": 2 * 10**9, "index": 0}}
        found.append(
            {
                "tokens_per_second": rate,
                "sentences_per_second": rate / 10,
                "milliseconds_per_token": 1000 / rate,
                **memory,
            }
        )
    put_figures(results, large_timing(plan, batch), sentences=8, speeds=found)


def cells_of(markdown: str, label: str) -> list[str]:
    """The cells of the first line of a Markdown text that begins with a label, the label left out."""
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] == label:
            return cells[1:]
    raise AssertionError(f"no line {label!r} in\n{markdown}")
