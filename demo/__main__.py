"""The demo: learn a memory of a domain from real catalogues, and translate the domain without it and with it.

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
from ibidem.evaluate import compare
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
    """Fetch, learn, translate, compare."""
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
    base = Translator()
    without = base.translate(sources)
    adapted = Translator(base.model, memory)
    with_memory = adapted.translate(sources)

    rows: list[tuple[str, ...]] = [
        (found.metric, f"{found.baseline:.1f}", f"{found.system:.1f}", f"{found.p_value:.4f}")
        for found in compare(without, with_memory, references)
    ]
    speeds = [f"{translator.work.tokens / translator.work.seconds:.0f}" for translator in (base, adapted)]
    rows.append(("tokens/s", *speeds, ""))
    print_table(
        f"{len(pairs)} sentences that the memory has not seen",
        rows,
        ("", "base model", "with memory", "p"),
        figures=True,
    )
    show(sources, references, without, with_memory)


def show(sources: list[str], references: list[str], without: list[str], with_memory: list[str]) -> None:
    """The first sentences of some length that the memory changed, side by side."""
    changed = [
        row
        for row in zip(sources, without, with_memory, references, strict=True)
        if row[1] != row[2] and 4 <= len(row[3].split()) <= 12
    ]
    for source, base, adapted, reference in changed[:SHOWN]:
        print(f"\n  German       {source}\n  base model   {base}\n  with memory  {adapted}\n  reference    {reference}")


if __name__ == "__main__":
    main()
