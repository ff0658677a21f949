"""Compare the fixed combiner (vanilla kNN-MT) of a memory, chosen by likelihood, with one that is chosen by BLEU.

    python benchmarks/fixed_combiner.py -m memories/koran --dev DATA/koran/dev.de DATA/koran/dev.en \\
        --text DATA/koran/test.de DATA/koran/test.en --against koran/sentences.default.txt --output fixed.json

`ibidem learn` chooses the weight and the temperature by the likelihood of the dev set. Here, as `ibidem tune --set
objective=bleu` does, the weight is chosen by the BLEU of the first dev sentences, then the temperature. Lines are
translated as by default. Prints all that were tried with their dev BLEU, BLEU and chrF of both on the test set, and the
differences between them and from translations of other systems of the same test set (`--against`), with a two-sided
paired bootstrap of 10,000 samples: value, ends of the 95 % interval, p.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.combine import FixedCombiner, load_combiner
from ibidem.decode import Translator
from ibidem.evaluate import compare, describe_machine, score
from ibidem.memory import Memory
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7)
FACTORS = (0.5, 2.0)  # of the temperature


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--dev", nargs="+", required=True, help="the dev set")
    parser.add_argument("--text", nargs="+", required=True, help="the test set")
    parser.add_argument("--sentences", type=int, default=200, help="dev sentences, from the first")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="translations of other systems")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    translator = Translator(memory=arguments.memory)
    dev = list(Corpus(arguments.dev))[: arguments.sentences]
    test = list(Corpus(arguments.text))
    references = [pair.target for pair in test]

    def measure(combiner: FixedCombiner) -> float:
        lines = translator.translate([pair.source for pair in dev], scorer=translator.scorer_with(combiner))
        return score(lines, [pair.target for pair in dev])[0].value

    start = load_combiner(Memory.open(arguments.memory), "fixed")
    assert isinstance(start, FixedCombiner)
    tried = choose(start, measure)
    best = max(tried, key=lambda combiner: tried[combiner])
    lines = {
        name: translator.translate([pair.source for pair in test], scorer=translator.scorer_with(combiner))
        for name, combiner in (("likelihood", start), ("bleu", best))
    }
    lines |= {file.stem: file.read_text(encoding="utf-8").removesuffix("\n").split("\n") for file in arguments.against}
    report: dict[str, Any] = {
        "dev sentences": len(dev),
        "tried": [{**asdict(combiner), "dev BLEU": round(bleu, 2)} for combiner, bleu in tried.items()],
        "chosen by likelihood": asdict(start),
        "chosen by BLEU": asdict(best),
        "lines": len(test),
        "scores": {
            name: {metric.name: round(metric.value, 2) for metric in score(found, references)}
            for name, found in lines.items()
        },
        "bleu minus": {
            name: differences(lines["bleu"], found, references) for name, found in lines.items() if name != "bleu"
        },
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def choose(start: FixedCombiner, measure: Callable[[FixedCombiner], float]) -> dict[FixedCombiner, float]:
    """Measure combiners with other weights, then the best one with other temperatures; return all with their BLEU."""
    tried = {
        combiner: measure(combiner)
        for combiner in dict.fromkeys([start, *(replace(start, weight=weight) for weight in WEIGHTS)])
    }
    best = max(tried, key=lambda combiner: tried[combiner])
    for factor in FACTORS:
        combiner = replace(best, temperature=best.temperature * factor)
        tried[combiner] = measure(combiner)
    return tried


def differences(system: list[str], baseline: list[str], references: list[str]) -> dict[str, list[float]]:
    """Return the difference in each metric, the ends of its interval, and p."""
    return {
        found.metric: [round(found.difference, 2), round(found.low, 2), round(found.high, 2), round(found.p_value, 4)]
        for found in compare(baseline, system, references)
    }


if __name__ == "__main__":
    main()
