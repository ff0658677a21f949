"""Measure what wrong targets in a memory do: BLEU of the base model, of a sound memory, and of one with wrong targets.

    python benchmarks/poisoned.py --train DATA/it/train.de DATA/it/train.en --text DATA/it/test.de DATA/it/test.en \\
        --pairs 20000 --share 0.1 --output poisoned.json

A share of the pairs, chosen at random, gets the target of another chosen pair. Both memories are learnt in the default
configuration, without a dev set. Differences have a two-sided paired bootstrap of 10,000 samples: value, ends of the
95 % interval, p.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from ibidem import Memory
from ibidem.decode import Translator
from ibidem.evaluate import compare, count_bleu, describe_machine, score_bleu
from ibidem.text import Corpus


def poison(targets: list[str], share: float, seed: int) -> list[str]:
    """Return targets of which a share is exchanged among each other.

    Args:
        targets: The targets.
        share: The share of them that is exchanged, 0 to 1.
        seed: The seed of the choice.
    """
    chosen = Random(seed).sample(range(len(targets)), round(share * len(targets)))
    found = list(targets)
    for number, other in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        found[number] = targets[other]
    return found


def translate(folder: Path, name: str, sources: list[str], targets: list[str], texts: list[str]) -> list[str]:
    """Learn a memory and return the translations with it."""
    corpus = folder / f"{name}.jsonl"
    with corpus.open("w", encoding="utf-8") as file:
        for source, target in zip(sources, targets, strict=True):
            file.write(json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n")
    memory = Memory.learn(train=corpus, path=folder / name)
    return Translator(memory=memory).translate(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--text", nargs="+", required=True, help="the test set")
    parser.add_argument("--pairs", type=int, default=20_000, help="of the training text, from its start")
    parser.add_argument("--lines", type=int, default=2_000, help="of the test set, from its start")
    parser.add_argument("--share", type=float, default=0.1, help="of the pairs with a wrong target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    pairs = list(islice(Corpus(arguments.train), arguments.pairs))
    tests = list(islice(Corpus(arguments.text), arguments.lines))
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    texts, references = [pair.source for pair in tests], [pair.target for pair in tests]
    found = {"base": Translator().translate(texts)}
    with tempfile.TemporaryDirectory() as folder:
        wrong = poison(targets, arguments.share, arguments.seed)
        found["sound memory"] = translate(Path(folder), "sound", sources, targets, texts)
        found["with wrong targets"] = translate(Path(folder), "wrong", sources, wrong, texts)

    def difference(system: str, baseline: str) -> list[float]:
        result = compare(found[baseline], found[system], references)[0]
        return [round(result.difference, 2), round(result.low, 2), round(result.high, 2), round(result.p_value, 4)]

    report: dict[str, Any] = {
        "pairs": len(pairs),
        "lines": len(tests),
        "share": arguments.share,
        "seed": arguments.seed,
        "bleu": {
            name: round(float(score_bleu(count_bleu(lines, references).sum(axis=0))), 2)
            for name, lines in found.items()
        },
        "with wrong targets minus base": difference("with wrong targets", "base"),
        "with wrong targets minus sound memory": difference("with wrong targets", "sound memory"),
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=2))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
