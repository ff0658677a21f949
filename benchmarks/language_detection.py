"""Measure the detection of languages on the catalogues (.mo) of the programs that this machine has.

    python benchmarks/language_detection.py [--prior 10] [--texts 400] [--seed 1]

Prints JSON: for each language the fraction of short texts that are recognised, and the fraction that is taken for
German or English, the languages of the server, with a probability of 0.8 or more although it is neither.
"""

from __future__ import annotations

import argparse
import gettext
import json
import random
import re
from pathlib import Path

from ibidem.serve import language_detection
from ibidem.serve.language_detection import detect_languages

LANGUAGES = ("de", "fr", "es", "it", "nl", "sv", "da", "nb", "pl", "cs", "pt_BR", "hu", "fi", "tr", "ro", "ru")
PAIR = ("de", "en")
CONFIDENT = 0.8
_PLAIN = re.compile(r"[^%{}<>\\\n=_/|]{4,60}")
_WORD = re.compile(r"[^\W\d]{3}")


def read_texts(language: str, most: int, generator: random.Random) -> list[tuple[str, str]]:
    """Return pairs of an English text and its translation, without placeholders and markup.

    Args:
        language: The folder of the language.
        most: The largest number of pairs.
        generator: Chooses them.
    """
    found = set()
    for file in Path("/usr/share/locale").glob(f"{language}/LC_MESSAGES/*.mo"):
        try:
            with file.open("rb") as stream:
                catalogue = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
        except (OSError, UnicodeError):
            continue
        for english, text in catalogue.items():
            if (
                isinstance(english, str)
                and isinstance(text, str)
                and english != text
                and all(_PLAIN.fullmatch(side) and _WORD.search(side) for side in (english, text))
            ):
                found.add((english, text))
    return generator.sample(sorted(found), min(most, len(found)))


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prior", type=float, default=language_detection.PRIOR)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    language_detection.PRIOR = arguments.prior
    generator = random.Random(arguments.seed)
    samples = {language: read_texts(language, arguments.texts, generator) for language in LANGUAGES}
    texts = {language[:2]: [text for _, text in pairs] for language, pairs in samples.items()}
    texts["en"] = [english for english, _ in samples["de"]]
    report = {}
    for language, given in texts.items():
        found = [detect_languages([text], PAIR)[0] for text in given]
        codes = ("nb", "no") if language == "nb" else (language,)
        wrong = [one for one in found if one.language in PAIR and one.language not in codes]
        report[language] = {
            "texts": len(given),
            "recognised": round(sum(one.language in codes for one in found) / max(len(given), 1), 3),
            "confidently_wrong": round(sum(one.probability >= CONFIDENT for one in wrong) / max(len(given), 1), 3),
        }
    print(json.dumps({"prior": arguments.prior, "seed": arguments.seed, "languages": report}, indent=1))


if __name__ == "__main__":
    main()
