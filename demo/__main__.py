"""The demo: learn a memory from real software catalogues, and translate with the base model and with the memory.

python demo [--output DIR] [--threads N]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from catalogues import build

from ibidem import IbidemError, Memory, Translator
from ibidem.cli.console import print_table, shown_progress, use_threads
from ibidem.decode import BaseScorer
from ibidem.evaluate import evaluate_systems, format_p_value
from ibidem.text import Corpus

SHOWN = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where data and memory go")
    parser.add_argument("--threads", type=int, help="CPU threads to use")
    arguments = parser.parse_args()
    use_threads(arguments.threads)
    try:
        run(arguments.output)
    except IbidemError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def run(output: Path) -> None:
    """Download catalogues, learn a memory, translate a test set without and with it, and compare."""
    build(output, output / "cache")
    started = time.monotonic()
    with shown_progress() as progress:
        memory = Memory.learn(
            train=output / "train.tsv",
            dev=output / "dev.tsv",
            path=output / "memory",
            seed=1,
            progress=progress,
        )
    print(f"learnt {memory.entries:,} entries of {memory.pairs:,} pairs in {time.monotonic() - started:.0f} s")

    pairs = list(Corpus([output / "test.tsv"]))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translator = Translator(memory=memory)
    scorers = {"base model": BaseScorer(), "with memory": translator.scorer}
    base, adapted = evaluate_systems(translator, scorers, sources, references)

    rows: list[tuple[str, ...]] = [
        (
            *(found.metric, f"{found.baseline:.1f}", f"{found.system:.1f}"),
            *(f"{found.low:+.1f} to {found.high:+.1f}", format_p_value(found.p_value)),
        )
        for found in adapted.comparisons
    ]
    rows.append(("tokens/s", *(f"{system.speed.tokens_per_second:.0f}" for system in (base, adapted)), "", ""))
    print_table(
        f"{len(pairs)} sentences that are not in the memory",
        rows,
        ("", base.name, adapted.name, "95 % interval of the gain", "p"),
        figures=True,
    )
    show(sources, references, base.translations, adapted.translations)


def show(sources: list[str], references: list[str], without: list[str], with_memory: list[str]) -> None:
    """Print the first sentences of medium length that the memory changed, side by side."""
    changed = [
        row
        for row in zip(sources, without, with_memory, references, strict=True)
        if row[1] != row[2] and 4 <= len(row[3].split()) <= 12
    ]
    for source, base, adapted, reference in changed[:SHOWN]:
        print(f"\n  German       {source}\n  base model   {base}\n  with memory  {adapted}\n  reference    {reference}")


if __name__ == "__main__":
    main()
