"""Measure the effect of corrected terms on other sentences with these terms and on unrelated sentences.

    python benchmarks/terms.py [--bandwidth 0.15 0.2 0.25] [--memory memories/it --text test.de test.en] [--dtype auto]

The benchmark adds 24 pairs, each with a term that the model translates differently, to an empty memory or to a copy of
`--memory`. It counts the translations of these 24 sentences that have the term and those that equal the correction, the
translations of 72 other sentences that have the term, and the translations of unrelated sentences (the project's own,
or a sample of `--text`) that change; it reports BLEU of the latter. All sentences are translated with the default
combiner of the memory, for each `--bandwidth`, in units of the typical distance between entries. In a tuned
memory it is the bandwidth of the layer above the tuned combiner. An untuned memory is also measured with vanilla kNN.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

from ibidem.combine import BANDWIDTH, SHORT_BANDWIDTH, FixedCombiner
from ibidem.decode import Translator, loaded_memory
from ibidem.learn import MemoryWriter
from ibidem.memory import Memory
from ibidem.model import load_model
from ibidem.text import Corpus

ROOT = Path(__file__).parents[1]
TERMS = ROOT / "tests" / "learn" / "terms.tsv"
SENTENCES = ROOT / "src" / "ibidem" / "reproduce" / "sentences.tsv"
VANILLA = (FixedCombiner(8, 0.3, 100.0), FixedCombiner(8, 0.5, 100.0), FixedCombiner(8, 0.7, 100.0))


class Term(NamedTuple):
    """A term, a sentence whose translation was corrected to have it, and other sentences that need it."""

    term: str
    source: str
    target: str
    others: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", type=float, nargs="+", default=[])
    parser.add_argument("--memory", type=Path, help="memory to copy and to add to")
    parser.add_argument("--text", nargs="+", help="unrelated parallel text (default: the project's sentences)")
    parser.add_argument("--sentences", type=int, default=80, help="number of unrelated sentences")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    model = load_model(None, device="cpu", dtype=arguments.dtype)
    terms = read_terms()
    unrelated = read_unrelated(arguments.text, arguments.sentences, arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "memory"
        if arguments.memory:
            shutil.copytree(arguments.memory, folder)
        writer = MemoryWriter(folder, model)
        translator = Translator(model, folder)
        before = translator.translate([source for source, _ in unrelated])
        tuned = Memory.open(folder).artefact("combiner_fixed") is not None
        report({"setting": "before"}, translator, terms, unrelated, before)
        for term in terms:
            writer.add_pair(term.source, term.target)
        default = SHORT_BANDWIDTH if tuned else BANDWIDTH
        for bandwidth in arguments.bandwidth or [default]:
            setattr(loaded_memory, "SHORT_BANDWIDTH" if tuned else "BANDWIDTH", bandwidth)
            report({"setting": f"bandwidth {bandwidth}"}, Translator(model, folder), terms, unrelated, before)
        if not tuned:
            for vanilla in VANILLA:
                other = Translator(model, folder, combiner=vanilla)
                report({"setting": f"vanilla {vanilla}"}, other, terms, unrelated, before)


def read_terms() -> list[Term]:
    """Read the terms that were written for this benchmark."""
    rows = [line.split("\t") for line in TERMS.read_text("utf-8").splitlines()]
    return [Term(term, source, target, others) for term, source, target, *others in rows]


def read_unrelated(text: list[str] | None, count: int, seed: int) -> list[tuple[str, str]]:
    """Return this many unrelated sentences with references."""
    if text:
        pairs = [(pair.source, pair.target) for pair in Corpus(text) if len(pair.source) < 150]
        return random.Random(seed).sample(pairs, count)
    rows = [line.split("\t") for line in SENTENCES.read_text("utf-8").splitlines()]
    return [(german, english) for _, german, english in rows[:: max(1, len(rows) // count)]]


def report(
    notes: dict[str, Any],
    translator: Translator,
    terms: list[Term],
    unrelated: list[tuple[str, str]],
    before: list[str],
) -> None:
    """Translate all sentences and print a line of JSON."""
    own = translator.translate([term.source for term in terms])
    others = translator.translate([other for term in terms for other in term.others])
    wanted = [term.term for term in terms for _ in term.others]
    after = translator.translate([source for source, _ in unrelated])
    references = [[target for _, target in unrelated]]
    notes |= {
        "corrected_with_term": sum(_has(text, term.term) for text, term in zip(own, terms, strict=True)),
        "corrected_word_for_word": sum(text == term.target for text, term in zip(own, terms, strict=True)),
        "others_with_term": sum(map(_has, others, wanted)),
        "others": len(others),
        "unrelated_changed": sum(old != new for old, new in zip(before, after, strict=True)),
        "unrelated": len(unrelated),
        "unrelated_bleu": round(sacrebleu.corpus_bleu(after, references).score, 2),
    }
    print(json.dumps(notes), flush=True)


def _has(text: str, term: str) -> bool:
    return term.lower() in text.lower()


if __name__ == "__main__":
    main()
