"""Measure the translation of paragraphs with and without sentence splitting, against the same sentences alone.

    python benchmarks/paragraphs.py --text test.de test.en [--memory memories/it] [--sizes 2 4 6] [--output out.json]

The benchmark selects the lines whose source and target are one sentence each and end in a full stop, joins consecutive
ones to paragraphs, and reports BLEU of the paragraphs: translated as a whole ("off"), split into sentences
("sentences"), and as the joined translations of the lines alone. `--whole` also translates the text as it is, with and
without splitting, and counts the lines that are split. `--check` counts the suspicious translations (see
`ibidem.text.check_translation`) and prints them on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import sacrebleu

from ibidem.decode import Translator
from ibidem.evaluate import describe_machine
from ibidem.text import check_translation, find_sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs=2, required=True, help="source and target file, line by line")
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--sizes", type=int, nargs="*", default=[2, 4, 6], help="sentences of a paragraph")
    parser.add_argument("--lines", type=int, default=480, help="most lines for the paragraphs")
    parser.add_argument("--whole", type=int, default=0, help="number of lines to translate as they are")
    parser.add_argument("--check", type=int, default=0, help="number of lines to check")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in arguments.text)
    translator = Translator(memory=arguments.memory, device="cpu")
    report: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "machine": describe_machine(),
        "model": translator.model.name,
        "memory_pairs": sum(memory.active_pairs for memory in translator.memories),
    }
    if arguments.sizes:
        report["paragraphs"] = measure_paragraphs(translator, sources, targets, arguments.sizes, arguments.lines)
    if arguments.whole:
        chosen = arguments.whole
        report["whole"] = measure_whole(translator, sources[:chosen], targets[:chosen])
    if arguments.check:
        report["check"] = count_suspicious(translator, sources[: arguments.check])
    written = json.dumps(report, indent=1, ensure_ascii=False)
    print(written)
    if arguments.output:
        arguments.output.write_text(written + "\n", encoding="utf-8")


def measure_paragraphs(
    translator: Translator, sources: list[str], targets: list[str], sizes: list[int], most: int
) -> dict[str, Any]:
    """Return BLEU of the sentences alone and of the paragraphs of each size."""
    chosen = [
        (source.strip(), target.strip())
        for source, target in zip(sources, targets, strict=True)
        if _is_sentence(source, "de") and _is_sentence(target, "en")
    ][:most]
    found = translate(translator, [source for source, _ in chosen], "off")
    alone = dict(zip((source for source, _ in chosen), found, strict=True))
    results: dict[str, Any] = {
        "sentences": len(chosen),
        "alone": round(sacrebleu.corpus_bleu(found, [[target for _, target in chosen]]).score, 2),
    }
    for size in sizes:
        groups = [chosen[first : first + size] for first in range(0, len(chosen) - size + 1, size)]
        texts = [" ".join(source for source, _ in group) for group in groups]
        references = [[" ".join(target for _, target in group) for group in groups]]
        joined = [" ".join(alone[source] for source, _ in group) for group in groups]
        scores = {"alone": sacrebleu.corpus_bleu(joined, references).score}
        for mode in ("off", "sentences"):
            scores[mode] = sacrebleu.corpus_bleu(translate(translator, texts, mode), references).score
        same = sum(one == other for one, other in zip(joined, translate(translator, texts, "sentences"), strict=True))
        results[str(size)] = {name: round(score, 2) for name, score in scores.items()} | {
            "paragraphs": len(groups),
            "equal_to_alone": same,
        }
    return results


def measure_whole(translator: Translator, sources: list[str], targets: list[str]) -> dict[str, Any]:
    """Return BLEU of a text as it is with and without splitting, and the number of split lines."""
    split = [len(layout.pieces) > 1 for layout in translator.split(sources, mode="sentences")]
    found = {mode: translate(translator, sources, mode) for mode in ("off", "sentences")}
    result: dict[str, Any] = {"lines": len(sources), "split": sum(split)}
    for mode, translations in found.items():
        result[mode] = round(sacrebleu.corpus_bleu(translations, [targets]).score, 2)
        rows = [number for number, cut in enumerate(split) if cut]
        part = [translations[number] for number in rows], [[targets[number] for number in rows]]
        result[f"{mode}_of_split"] = round(sacrebleu.corpus_bleu(*part).score, 2)
    return result


def count_suspicious(translator: Translator, sources: list[str]) -> dict[str, Any]:
    """Count the suspicious translations."""
    translations = translate(translator, sources, "sentences")
    found = [
        (message, source, translation)
        for source, translation in zip(sources, translations, strict=True)
        if (message := check_translation(source, translation))
    ]
    for row in found:
        print(*row, sep=" | ", file=sys.stderr)
    return {"lines": len(sources), "suspicious": len(found)}


def translate(translator: Translator, texts: list[str], mode: Any) -> list[str]:
    """Translate texts with this way to split them."""
    translator.splitting = mode
    return translator.translate(texts)


def _is_sentence(text: str, language: str) -> bool:
    return text.rstrip().endswith(".") and text[:1].isupper() and len(find_sentences(text, language)) == 1


if __name__ == "__main__":
    main()
