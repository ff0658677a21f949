"""Measure the search in the pairs of a memory, and the matches of a sentence, against an index of SQLite (FTS5).

    python benchmarks/concordance.py --text train.de train.en [--text more.de more.en] [--pairs 1000000] [--output F]

The pairs are stored in a temporary memory with one token each; search and matches read texts and source vectors only.
The queries are words of chosen frequency, two words, and a phrase, each searched on both sides. FTS5 stores the same
texts (tokenizer unicode61); its index must be built and kept up to date, a scan needs nothing.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ibidem.evaluate import describe_machine
from ibidem.memory import Memory, ModelIdentity, SegmentData, find_matches, search_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs=2, action="append", required=True)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    sources: list[str] = []
    targets: list[str] = []
    for pair in arguments.text:
        for texts, path in zip((sources, targets), pair, strict=True):
            texts += path.read_text(encoding="utf-8").split("\n")[:-1]
    sources, targets = sources[: arguments.pairs], targets[: arguments.pairs]
    queries = choose_queries(sources)
    with tempfile.TemporaryDirectory() as folder:
        memory = store(Path(folder) / "memory", sources, targets)
        report: dict[str, Any] = {
            "command": " ".join(sys.argv),
            "machine": describe_machine(),
            "pairs": len(sources),
            "text_bytes": sum(len(text.encode()) for texts in (sources, targets) for text in texts),
            "scan": measure_scan(memory, queries, arguments.rounds),
            "matches": measure_matches(memory, sources[:: max(1, len(sources) // 20)], arguments.rounds),
            "fts5": measure_fts5(Path(folder) / "fts.db", sources, targets, queries, arguments.rounds),
        }
    written = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    print(written)
    if arguments.output:
        arguments.output.write_text(written, encoding="utf-8")


def choose_queries(sources: list[str]) -> dict[str, tuple[str, str]]:
    """Return queries with their modes: words of several frequencies, two words and a phrase."""
    counts = Counter(word.lower() for text in sources[:50_000] for word in text.split() if word.isalpha())
    common = [word for word, _ in counts.most_common()]
    middle = sources[len(sources) // 2].split()
    return {
        "most frequent word": (common[0], "words"),
        "100th word": (common[100], "words"),
        "10,000th word": (common[min(10_000, len(common) - 1)], "words"),
        "no pair": ("qqqxyz", "words"),
        "two words": (f"{common[100]} {common[200]}", "words"),
        "phrase": (" ".join(middle[:4]), "phrase"),
    }


def store(path: Path, sources: list[str], targets: list[str]) -> Memory:
    """Store pairs in a memory with keys of one dimension and random source vectors."""
    random = np.random.default_rng(0)
    memory = Memory.create(path, ModelIdentity("none", "none", "none", 1, 2, "de", "en"))
    with memory.edit() as edit:
        for first in range(0, len(sources), 100_000):
            some = sources[first : first + 100_000]
            count = len(some)
            edit.append_segment(
                SegmentData(
                    keys=np.zeros((count, 1), np.float16),
                    values=np.zeros(count, np.int32),
                    log_probs=np.zeros(count, np.float32),
                    lengths=np.ones(count, np.int64),
                    sources=some,
                    targets=targets[first : first + count],
                    origins=["text"] * count,
                    locations=list(range(count)),
                    source_vectors=random.integers(-127, 128, (count, 64)).astype(np.int8),
                )
            )
        return edit.commit()


def measure(run: Any, rounds: int) -> tuple[float, Any]:
    """Return the median processor time of a function in milliseconds, and its last result."""
    times = []
    result = None
    for _ in range(rounds):
        began = time.process_time()
        result = run()
        times.append(1_000 * (time.process_time() - began))
    return round(float(np.median(times)), 1), result


def measure_scan(memory: Memory, queries: dict[str, tuple[str, str]], rounds: int) -> dict[str, Any]:
    """Search by scanning the stored texts."""
    rows = {}
    for name, (query, mode) in queries.items():
        milliseconds, found = measure(lambda: search_pairs(memory, query, mode=mode, seconds=600), rounds)  # noqa: B023
        rows[name] = {"ms": milliseconds, "total": found.total}
    return rows


def measure_matches(memory: Memory, sources: list[str], rounds: int) -> dict[str, Any]:
    """Find the matches of sentences."""
    vectors = memory.source_vectors()
    query = vectors[0]
    milliseconds, _ = measure(lambda: [find_matches(memory, one, query, 3, vectors) for one in sources], rounds)
    return {"ms_a_sentence": round(milliseconds / len(sources), 1)}


def measure_fts5(
    path: Path, sources: list[str], targets: list[str], queries: dict[str, tuple[str, str]], rounds: int
) -> dict[str, Any]:
    """Search with an index of SQLite."""
    began = time.process_time()
    database = sqlite3.connect(path)
    database.execute("CREATE VIRTUAL TABLE pairs USING fts5(source, target)")
    database.executemany("INSERT INTO pairs VALUES (?, ?)", zip(sources, targets, strict=True))
    database.commit()
    report: dict[str, Any] = {"build_cpu_seconds": round(time.process_time() - began, 1), "bytes": path.stat().st_size}
    for name, (query, mode) in queries.items():
        words = " ".join(f'"{word}"*' for word in query.split()) if mode == "words" else f'"{query}"'
        count = "SELECT count(*) FROM pairs WHERE pairs MATCH ?"
        rows = "SELECT rowid, source, target FROM pairs WHERE pairs MATCH ? ORDER BY rowid DESC LIMIT 20"

        def run(words: str = words, count: str = count, rows: str = rows) -> int:
            database.execute(rows, (words,)).fetchall()
            return int(database.execute(count, (words,)).fetchone()[0])

        milliseconds, total = measure(run, rounds)
        report[name] = {"ms": milliseconds, "total": total}
    return report


if __name__ == "__main__":
    main()
