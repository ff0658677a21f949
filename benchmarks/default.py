"""Compare the default configuration with the base model and with other combiners, with and without sentence splitting.

    python benchmarks/default.py -m memories/it --text DATA/it/test.de DATA/it/test.en --output it.json
    python benchmarks/default.py -m memories/it --text DATA/news/test.de DATA/news/test.en --combiners

BLEU of a test set, and differences with a two-sided paired bootstrap of 10,000 samples: value, ends of the 95 %
interval, p. `sentences` is the default of `ibidem translate`, `off` translates whole lines.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ibidem.decode import BaseScorer, Splitting, Translator
from ibidem.evaluate import compare, count_bleu, describe_machine, score_bleu
from ibidem.text import Corpus

MODES: tuple[Splitting, ...] = ("sentences", "off")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="the test set")
    parser.add_argument("--combiners", nargs="*", default=["adaptive", "fixed"], help="combiners beside the default")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pairs = list(Corpus(arguments.text))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    found = translate(arguments.memory, sources, arguments.combiners)
    names = list(found["sentences"])
    report: dict[str, Any] = {
        "lines": len(sources),
        "bleu": {
            mode: {
                name: round(float(score_bleu(count_bleu(lines, references).sum(axis=0))), 2)
                for name, lines in of.items()
            }
            for mode, of in found.items()
        },
        "default minus": {
            mode: {name: difference(of["default"], of[name], references) for name in names if name != "default"}
            for mode, of in found.items()
        },
        "sentences minus off": {
            name: difference(found["sentences"][name], found["off"][name], references) for name in ("default", "base")
        },
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=2))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def translate(memory: str, sources: list[str], combiners: list[str]) -> dict[str, dict[str, list[str]]]:
    """Return the translations of every system by mode of splitting."""
    found: dict[str, dict[str, list[str]]] = {}
    for mode in MODES:
        translator = Translator(memory=memory, split=mode)
        of = {"base": translator.translate(sources, scorer=BaseScorer()), "default": translator.translate(sources)}
        for combiner in combiners:
            of[combiner] = translator.translate(sources, scorer=translator.scorer_with(combiner))
        found[mode] = of
    return found


def difference(system: list[str], baseline: list[str], references: list[str]) -> list[float]:
    """Return the difference in BLEU, the ends of its interval, and p."""
    found = compare(baseline, system, references)[0]
    return [round(found.difference, 2), round(found.low, 2), round(found.high, 2), round(found.p_value, 4)]


if __name__ == "__main__":
    main()
