"""Measure how many terms of a glossary translations contain, and what the glossary does to BLEU.

    python benchmarks/glossary.py [--memory memories/it] [--text test.de test.en] [--show] [--output FILE]
    python benchmarks/glossary.py --held-out …
    python benchmarks/glossary.py --text test.de test.en [--terms tests/glossary/software.csv] …

200 sentences that were written for this project (`tests/glossary/sentences.tsv`) contain 1 to 3 terms of
`tests/glossary/terms.csv` each. The third column has the form of each term that the reference has. They are translated
without and with the glossary. `right form` counts the terms that the translation has in the form of the reference, `any
form` those that it has in any form; a form that is needed twice counts twice. `--held-out` measures 30 other sentences
with 15 other terms (`held-out.tsv`, `held-out.csv`), which were written after the search was finished.

With `--text`, the sentences of this parallel text that have a term of `--terms` are translated instead. Only sentences
whose references have the translations of all their terms are used: it shows what a glossary in the words of the
references does to real text.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sacrebleu

from ibidem.decode import SearchSettings, Translator
from ibidem.evaluate import describe_machine
from ibidem.glossary import Glossary, TermMatcher, load_glossary
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "glossary"


class Sentence(NamedTuple):
    """A sentence with its reference and the forms of the terms in the reference."""

    source: str
    reference: str
    forms: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", help="memory to translate with")
    parser.add_argument("--held-out", action="store_true", help="measure the sentences that were written last")
    parser.add_argument("--text", nargs="+", help="parallel text; its sentences without a term are left out")
    parser.add_argument("--terms", type=Path, default=FOLDER / "software.csv", help="the glossary for --text")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--show", action="store_true", help="print the sentences that the glossary changes")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args()
    translator = Translator(
        memory=arguments.memory, device="cpu", dtype=arguments.dtype, settings=SearchSettings(beam=arguments.beam)
    )
    own = ("held-out.csv", "held-out.tsv") if arguments.held_out else ("terms.csv", "sentences.tsv")
    glossary = load_glossary(arguments.terms if arguments.text else FOLDER / own[0])
    sentences = read_text(arguments.text, glossary) if arguments.text else read_sentences(FOLDER / own[1])
    report: dict[str, Any] = {
        "command": "python benchmarks/glossary.py"
        + (" --held-out" if arguments.held_out else "")
        + (" --memory MEMORY" if arguments.memory else "")
        + (" --text TEXT.de TEXT.en" if arguments.text else ""),
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.strip(),
        "machine": describe_machine(),
        "beam": arguments.beam,
        "terms": len(glossary),
        "sentences": measure(translator, glossary, sentences, show=arguments.show),
    }
    print(json.dumps(report, indent=2))
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def read_text(paths: Sequence[str], glossary: Glossary) -> list[Sentence]:
    """Read the pairs of parallel text that have all terms of the glossary in both languages, at least one."""
    matcher = TermMatcher(glossary)
    chosen = []
    for pair in Corpus(paths):
        uses = matcher.check([match.entry for match in matcher.find(pair.source)], pair.target)
        if uses and all(use.is_met for use in uses):
            chosen.append(Sentence(pair.source, pair.target, [pair.target[use.start : use.end] for use in uses]))
    return chosen


def read_sentences(path: Path) -> list[Sentence]:
    """Read sentences that were written for this benchmark."""
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    return [Sentence(source, reference, forms.split(";")) for source, reference, forms in rows]


def measure(translator: Translator, glossary: Glossary, sentences: Sequence[Sentence], *, show: bool) -> dict[str, Any]:
    """Translate sentences without and with a glossary."""
    sources, references = [one.source for one in sentences], [[one.reference for one in sentences]]
    matcher = TermMatcher(glossary)
    translator.translate(sources[:2], glossary=glossary)
    systems: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    for name, given in (("without", None), ("with", glossary)):
        started = time.perf_counter()
        translations = texts[name] = translator.translate(sources, glossary=given)
        seconds = time.perf_counter() - started
        systems[name] = {
            **count_terms(matcher, sentences, translations),
            "bleu": round(sacrebleu.corpus_bleu(translations, references).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(translations, references).score, 2),
            "seconds": round(seconds, 2),
        }
    changed = [number for number, text in enumerate(texts["with"]) if text != texts["without"][number]]
    if show:
        for number in changed:
            print(sentences[number].source, texts["without"][number], texts["with"][number], sep="\n  ")
        for sentence, text in zip(sentences, texts["with"], strict=True):
            if missing := missing_forms(sentence, text):
                print(f"! {missing}: {sentence.source} -> {text}")
    return {"count": len(sentences), "changed": len(changed), **systems}


def count_terms(matcher: TermMatcher, sentences: Sequence[Sentence], translations: Sequence[str]) -> dict[str, Any]:
    """Count the terms of sentences that the translations have."""
    uses = [
        use
        for sentence, text in zip(sentences, translations, strict=True)
        for use in matcher.check([match.entry for match in matcher.find(sentence.source)], text)
    ]
    wanted = sum(len(sentence.forms) for sentence in sentences)
    counts: dict[str, Any] = {"matched_terms": len(uses), "any_form": sum(use.is_met for use in uses)}
    if wanted:
        missing = sum(
            len(missing_forms(sentence, text)) for sentence, text in zip(sentences, translations, strict=True)
        )
        counts |= {"wanted_terms": wanted, "right_form": wanted - missing}
        counts["recall_right_form"] = round(1 - missing / wanted, 4)
    counts["recall_any_form"] = round(counts["any_form"] / len(uses), 4)
    return counts


def missing_forms(sentence: Sentence, translation: str) -> list[str]:
    """Return the forms of the reference that a translation lacks, each as often as it lacks it."""
    text = translation.casefold()
    return [
        form
        for form, wanted in Counter(sentence.forms).items()
        for _ in range(wanted - len(re.findall(rf"(?<!\w){re.escape(form.casefold())}(?!\w)", text)))
    ]


if __name__ == "__main__":
    main()
