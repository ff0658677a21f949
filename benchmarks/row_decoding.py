"""Translate a test set by the default configuration with the decoding of the rows of `ibidem reproduce`.

    python benchmarks/row_decoding.py -m memories/koran --text DATA/koran/test.de --output out/koran.rows-default

Whole lines, length penalty 0.6, at most 1.2 * source tokens + 10 tokens. Arithmetic, index and retrieval margin are
those of `ibidem translate`, so translations can be compared with the stored rows of other systems
(`benchmarks/differences.py`), but are no rows themselves: these need exact search.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from ibidem.decode import Translator
from ibidem.reproduce.rows.translation import AUTHORS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", type=Path, required=True, help="the sources, one a line")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = replace(AUTHORS, retrieval_margin=None)
    translator = Translator(memory=arguments.memory, settings=settings, split="off", piece_tokens=None, device="cpu")
    sources = arguments.text.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    lines = translator.translate(sources)
    arguments.output.write_text("".join(f"{' '.join(line.split())}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
