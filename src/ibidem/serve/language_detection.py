"""Detection of the language of texts, without a network.

The probabilities are those of py3langid (naive Bayes over byte n-grams, about 100 languages). Short texts of programs
say little about their language, so the languages of the server have a larger prior. The factor was chosen on texts of
installed programs (benchmarks/language_detection.py): most short German and English texts are recognised, and texts of
other languages hardly ever have a high probability of being German or English.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PRIOR = 10.0
# Further characters change the result hardly, and a request may have many.
_MAX_CHARACTERS = 2_000
_SHOWN = 3
_MIN_SHOWN = 0.05
# py3langid's code, and the one that files and other programs use.
_CODES = {"nb": "no", "nn": "no"}


class Detected(NamedTuple):
    """A language that a text may have.

    Attributes:
        language: Its two-letter code; three letters where there are no two.
        probability: From 0 to 1.
    """

    language: str
    probability: float


def detect_languages(texts: Sequence[str], expected: Collection[str]) -> list[Detected]:
    """Detect the common language of texts.

    Args:
        texts: The texts, which are taken together.
        expected: Languages that have a larger prior, because they are those of the server.

    Returns:
        All languages, the most probable first; an empty list if there is no letter.

    Examples:
        >>> detect_languages(["Die Datei wurde gespeichert."], ["de", "en"])[0].language
        'de'
    """
    text = "\n".join(texts)[:_MAX_CHARACTERS]
    if not any(map(str.isalpha, text)):
        return []
    weights: dict[str, float] = {}
    for code, probability in _identifier().rank(text):
        language = _CODES.get(code, code)
        factor = PRIOR if language in expected else 1.0
        weights[language] = weights.get(language, 0.0) + factor * float(probability)
    total = sum(weights.values()) or 1.0
    found = [Detected(language, weight / total) for language, weight in weights.items()]
    return sorted(found, key=lambda one: -one.probability)


def shown_languages(found: Sequence[Detected]) -> list[Detected]:
    """Return the languages that a response names: the best one, and up to two others that are possible.

    Args:
        found: The result of `detect_languages`.
    """
    return [one for number, one in enumerate(found[:_SHOWN]) if not number or one.probability >= _MIN_SHOWN]


def probability_of(language: str, found: Sequence[Detected]) -> float:
    """Return the probability of a language, from 0 to 1.

    Args:
        language: Its code.
        found: The result of `detect_languages`.
    """
    return next((one.probability for one in found if one.language == language), 0.0)


def choose_detected(candidates: Collection[str], found: Sequence[Detected]) -> str | None:
    """Return the most probable of some languages; None if nothing was detected.

    Args:
        candidates: The languages that are possible.
        found: The result of `detect_languages`.
    """
    return next((one.language for one in found if one.language in candidates), None)


def load_detector() -> None:
    """Load the model of the detection, which takes about half a second, so that the first request does not wait."""
    _identifier()


@cache
def _identifier() -> Any:
    """Load the model once."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
