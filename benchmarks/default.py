"""Compare the default configuration with the base model and with other combiners, with and without sentence splitting.

    python benchmarks/default.py -m memories/it --text DATA/it/test.de DATA/it/test.en --output it.json
    python benchmarks/default.py -m memories/it --text DATA/news/test.de DATA/news/test.en --combiners

BLEU, chrF and term recall of a test set, and differences with a two-sided paired bootstrap of 10,000 samples: value,
ends of the 95 % interval, p. The terms are those of the memory's own pairs (`ibidem.evaluate.collect_terms`).
`sentences` is the default of `ibidem translate`, `off` translates whole lines; `--modes` chooses.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.decode import BaseScorer, Splitting, Translator
from ibidem.evaluate import (
    collect_terms,
    compare,
    compare_runs,
    count_terms,
    describe_machine,
    resample,
    score,
    score_terms,
)
from ibidem.memory import Memory
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Mapping

MODES: tuple[Splitting, ...] = ("sentences", "off")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="the test set")
    parser.add_argument("--combiners", nargs="*", default=["adaptive", "fixed"], help="combiners beside the default")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="how lines are split")
    parser.add_argument("--save", type=Path, help="folder for the translations")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pairs = list(Corpus(arguments.text))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    terms = collect_terms((pair.source, pair.target) for pair in Memory.open(arguments.memory).sentences())
    found = translate(arguments.memory, sources, arguments.combiners, arguments.modes)
    if arguments.save is not None:
        for mode, of in found.items():
            for name, lines in of.items():
                path = arguments.save / f"{mode}.{name}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(f"{' '.join(line.split())}\n" for line in lines), encoding="utf-8")
    names = list(next(iter(found.values())))
    report: dict[str, Any] = {
        "lines": len(sources),
        "terms": len(terms),
        "scores": {
            mode: {name: scores(terms, sources, lines, references) for name, lines in of.items()}
            for mode, of in found.items()
        },
        "default minus": {
            mode: {
                name: differences(terms, sources, of["default"], of[name], references)
                for name in names
                if name != "default"
            }
            for mode, of in found.items()
        },
        "machine": describe_machine(),
    }
    if len(found) == len(MODES):
        report["sentences minus off"] = {
            name: differences(terms, sources, found["sentences"][name], found["off"][name], references)
            for name in ("default", "base")
        }
    print(json.dumps(report, indent=2))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def translate(
    memory: str, sources: list[str], combiners: list[str], modes: list[str]
) -> dict[str, dict[str, list[str]]]:
    """Return the translations of every system by mode of splitting."""
    found: dict[str, dict[str, list[str]]] = {}
    for mode in MODES:
        if mode not in modes:
            continue
        translator = Translator(memory=memory, split=mode)
        of = {"base": translator.translate(sources, scorer=BaseScorer()), "default": translator.translate(sources)}
        for combiner in combiners:
            of[combiner] = translator.translate(sources, scorer=translator.scorer_with(combiner))
        found[mode] = of
    return found


def scores(terms: Mapping[str, str], sources: list[str], lines: list[str], references: list[str]) -> dict[str, float]:
    """Return BLEU, chrF and term recall."""
    counts = count_terms(terms, sources, lines, references).sum(axis=0)
    found = {metric.name: round(metric.value, 2) for metric in score(lines, references)}
    return {**found, "terms": int(counts[0]), "term recall": round(float(score_terms(counts)), 2)}


def differences(
    terms: Mapping[str, str], sources: list[str], system: list[str], baseline: list[str], references: list[str]
) -> dict[str, list[float]]:
    """Return the difference in each metric, the ends of its interval, and p."""
    runs = [count_terms(terms, sources, lines, references) for lines in (baseline, system)]
    first, second = resample(runs, score_terms)
    recall = compare_runs([first], [second])
    found = {
        comparison.metric: (comparison.difference, comparison.low, comparison.high, comparison.p_value)
        for comparison in compare(baseline, system, references)
    } | {"term recall": (recall.value, recall.low, recall.high, recall.p_value)}
    return {
        name: [round(value, 2), round(low, 2), round(high, 2), round(p_value, 4)]
        for name, (value, low, high, p_value) in found.items()
    }


if __name__ == "__main__":
    main()
