"""Compare `ibidem.text.find_sentences` with sentence splitters of the package index.

    pip install --target FOLDER pysbd syntok sentencex sentence-splitter
    PYTHONPATH=src:FOLDER python benchmarks/splitters.py [--text news/test.de news/test.en] [--output out.json]

The first measurement counts the cases of `tests/text/sentence_cases.py` that are split as written there. The second
joins four consecutive lines of `--text` that end in a stop, and counts the boundaries between lines that are found, and
the further boundaries, some of which are right, since a line may have several sentences. Libraries that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "text"))

from sentence_cases import ENGLISH, GERMAN, parse_cases  # type: ignore[import-not-found]

from ibidem.text import find_sentences

Splitter = Callable[[str, str], list[str]]
_STOP = re.compile(r"[.!?][\"”“»)]?$")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs=2, help="German and English file")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"command": " ".join(sys.argv)}
    for name, split in find_splitters().items():
        report[name] = {}
        for language, table in (("de", GERMAN), ("en", ENGLISH)):
            cases = parse_cases(table)
            right = sum(strip(split(text, language)) == expected for text, expected in cases)
            report[name][language] = {"cases": len(cases), "right": right}
        for language, path in zip(("de", "en"), arguments.text or (), strict=False):
            report[name][language] |= measure_joined(split, path, language)
    written = json.dumps(report, indent=1, ensure_ascii=False)
    print(written)
    if arguments.output:
        arguments.output.write_text(written + "\n", encoding="utf-8")


def find_splitters() -> dict[str, Splitter]:
    """Return our own splitter and those of the installed libraries."""
    found: dict[str, Splitter] = {
        "ibidem": lambda text, language: [text[start:end] for start, end in find_sentences(text, language)]
    }
    modules: dict[str, Callable[[Any], Splitter]] = {
        "sentencex": lambda module: lambda text, language: list(module.segment(language, text)),
        "pysbd": lambda module: lambda text, language: module.Segmenter(language=language, clean=False).segment(text),
        "syntok.segmenter": lambda module: (
            lambda text, _: [
                text[sentence[0].offset : sentence[-1].offset + len(sentence[-1].value)]
                for paragraph in module.process(text)
                for sentence in paragraph
            ]
        ),
        "sentence_splitter": lambda module: lambda text, language: module.SentenceSplitter(language).split(text),
    }
    for name, adapt in modules.items():
        try:
            found[name] = adapt(importlib.import_module(name))
        except ImportError:
            continue
    return found


def measure_joined(split: Splitter, path: Path, language: str) -> dict[str, int]:
    """Count the boundaries of joined lines that are found, and the further ones."""
    lines = [" ".join(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if _STOP.search(line)]
    counts = {"boundaries": 0, "found": 0, "further": 0}
    for first in range(0, len(lines), 4):
        group = lines[first : first + 4]
        text = " ".join(group)
        expected, got = find_ends(text, group), find_ends(text, strip(split(text, language)))
        counts["boundaries"] += len(expected)
        counts["found"] += len(expected & got)
        counts["further"] += len(got - expected)
    return counts


def find_ends(text: str, parts: list[str]) -> set[int]:
    """Return the end of each part of a text but the last."""
    ends, place = set(), 0
    for part in parts[:-1]:
        place = text.index(part, place) + len(part)
        ends.add(place)
    return ends


def strip(parts: list[str]) -> list[str]:
    """Return the parts that are not blank, without surrounding white space."""
    return [part.strip() for part in parts if part.strip()]


if __name__ == "__main__":
    main()
