"""Compare three ways to translate lines of several sentences: each sentence alone, whole lines, and the default's rule.

    python benchmarks/splitting.py -m memories/koran --text test.de test.en [--tokens 20 30 40] [--output koran.json]

BLEU of a test set translated in each way, with a two-sided paired bootstrap of 10,000 samples for the differences:
value, ends of the 95 % interval, p. `--tokens` reports, for a dev set, the differences that other limits of source
tokens would give, for lines of two sentences and for all lines of several, whatever the memory stores. `--translations`
keeps the translations in a file, and reads them where it exists.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem.decode import Translator
from ibidem.evaluate import compare, describe_machine, score
from ibidem.memory import count_sources
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--memory", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="the test or dev set")
    parser.add_argument("--tokens", type=int, nargs="*", default=[], help="other limits of source tokens")
    parser.add_argument("--translations", type=Path, help="JSON file of the translations")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pairs = list(Corpus(arguments.text))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translator = Translator(memory=arguments.memory, device="cpu")
    found = read_or_translate(translator, sources, arguments.translations)
    report: dict[str, Any] = {"machine": describe_machine(), **measure(translator, sources, references, found)}
    if arguments.tokens:
        report["limits"] = sweep(translator, sources, references, found, arguments.tokens)
    print(json.dumps(report, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def read_or_translate(translator: Translator, sources: list[str], file: Path | None) -> dict[str, list[str]]:
    """Return the translations of all lines, each sentence alone ("split") and as a whole ("whole")."""
    if file is not None and file.exists():
        found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
        if len(found["split"]) != len(sources):
            raise SystemExit(f"{file} has {len(found['split'])} translations of {len(sources)} lines: remove it.")
        return found
    split = translate(translator, sources, "sentences")
    several = [number for number, count in enumerate(count_sentences(translator, sources)) if count > 1]
    whole = dict(zip(several, translate(translator, [sources[number] for number in several], "off"), strict=True))
    found = {"split": split, "whole": [whole.get(number, line) for number, line in enumerate(split)]}
    if file is not None:
        file.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    return found


def translate(translator: Translator, lines: list[str], mode: Any) -> list[str]:
    """Translate lines; without memories to look at, every line is split at all ends of sentences."""
    layouts = translator.split(lines, mode=mode, memories=())
    decode = translator.model.tokens.decode
    return [
        layout.fill([decode(hypotheses[0].tokens) for hypotheses in parts])[0]
        for layout, parts in zip(layouts, translator.search(layouts), strict=True)
    ]


def count_sentences(translator: Translator, lines: list[str]) -> list[int]:
    """Return the number of sentences of each line."""
    return [len(layout.pieces) for layout in translator.split(lines, memories=())]


def measure(
    translator: Translator, sources: list[str], references: list[str], found: dict[str, list[str]]
) -> dict[str, Any]:
    """Return BLEU of the three ways, and their differences."""
    counts = count_sentences(translator, sources)
    kept = [len(layout.pieces) == 1 < count for layout, count in zip(translator.split(sources), counts, strict=True)]
    systems = {**{name: found[name] for name in ("split", "whole")}, "rule": choose(found, kept)}
    memory = translator.memories[0]
    return {
        "lines": len(sources),
        "lines of several sentences": sum(count > 1 for count in counts),
        "lines that the rule keeps whole": sum(kept),
        "share of stored sources with 2, 3, 4 or more sentences": [
            round(count_sources(memory, number) / memory.pairs, 4) for number in (2, 3, 4)
        ],
        "bleu": {name: bleu(lines, references) for name, lines in systems.items()},
        "differences [value, low, high, p]": {
            f"{system} - {baseline}": difference(systems[system], systems[baseline], references)
            for system, baseline in (("rule", "split"), ("rule", "whole"), ("split", "whole"))
        },
    }


def sweep(
    translator: Translator,
    sources: list[str],
    references: list[str],
    found: dict[str, list[str]],
    limits: Sequence[int],
) -> dict[str, Any]:
    """Return what keeping lines of at most so many tokens whole adds to BLEU of splitting, and how many these are."""
    counts = count_sentences(translator, sources)
    lengths = [
        sum(len(piece.ids) for piece in layout.pieces) for layout in translator.split(sources, mode="off", memories=())
    ]
    baseline = bleu(found["split"], references)
    rows: dict[str, Any] = {}
    for name, most in (("two sentences", 2), ("several sentences", max(counts))):
        rows[name] = {}
        for limit in limits:
            kept = [1 < count <= most and length <= limit for count, length in zip(counts, lengths, strict=True)]
            rows[name][str(limit)] = [round(bleu(choose(found, kept), references) - baseline, 2), sum(kept)]
    return rows


def choose(found: dict[str, list[str]], kept: list[bool]) -> list[str]:
    """Return the translations of the whole lines where they are kept, else of their sentences."""
    rows = zip(found["split"], found["whole"], kept, strict=True)
    return [whole if keep else split for split, whole, keep in rows]


def bleu(lines: list[str], references: list[str]) -> float:
    """Return BLEU."""
    return round(next(metric.value for metric in score(lines, references) if metric.name == "BLEU"), 2)


def difference(system: list[str], baseline: list[str], references: list[str]) -> list[float]:
    """Return the difference in BLEU, the ends of its interval, and p."""
    found = next(one for one in compare(baseline, system, references) if one.metric == "BLEU")
    return [round(found.difference, 2), round(found.low, 2), round(found.high, 2), round(found.p_value, 4)]


if __name__ == "__main__":
    main()
