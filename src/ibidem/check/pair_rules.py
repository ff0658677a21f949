"""Rules that find a defect in a single pair, without a model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ibidem.check.findings import (
    COPIED,
    HEADER_LIKE,
    LANGUAGE,
    LENGTH,
    MARKUP,
    MOJIBAKE,
    NO_WORDS,
    NUMBERS,
    QUOTES,
    SWAPPED,
    Kind,
)
from ibidem.check.language import knows_language, recognize_language
from ibidem.text import is_copy, is_much_shorter

if TYPE_CHECKING:
    from ibidem.text import Pair

# UTF-8 that was read as Windows-1252 or Latin-1: the first byte of a character becomes one of these letters, and the
# others become signs that never follow them in text.
_MOJIBAKE = re.compile(
    "[ÃÂ][\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2018-\u201e\u2020-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]"
    "|â€[\u0080-\u00bf\u0153\u02dc\u201c\u201d\u2018-\u201a\u2122\u0161\u00a6]|ï»¿|\ufffd"
)
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9:-]*(?:\s[^<>]*)?/?>")
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#[0-9]{2,6}|#x[0-9A-Fa-f]{2,5});")
_NUMBER = re.compile(r"\d+(?:[.,:'\u00a0\u202f ]\d+)*")
_NOT_DIGITS = re.compile(r"\D")
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
_HEADER_WORDS = """
de en german deutsch english englisch source target translation original quelle ziel quelltext zieltext ausgangstext
übersetzung segment term begriff text de-de en-us en-gb de_de en_us source_text target_text deutscher englischer
"""
_HEADER = frozenset(_HEADER_WORDS.split())
_MAX_HEADER = 30
_LEAST_NUMBERS = 2
_LEAST_DIGITS = 2
_MAX_CHARACTERS = 20_000


class Judgement(NamedTuple):
    """The defects of one pair.

    Attributes:
        kinds: The defects.
        judged: The defects of whole files that could be judged at this pair, whether found or not.
    """

    kinds: tuple[Kind, ...]
    judged: tuple[Kind, ...]


class PairRules:
    """Finds the defects of single pairs.

    Args:
        source: The language of the sources, a two-letter code.
        target: The language of the targets.

    Examples:
        >>> from ibidem.text import Pair
        >>> rules = PairRules("de", "en")
        >>> [kind.name for kind in rules.judge(Pair("The file is open.", "Die Datei ist offen.", "a.tsv", 1)).kinds]
        ['swapped']
    """

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._knows_languages = knows_language(source) and knows_language(target)

    def judge(self, pair: Pair) -> Judgement:
        """Find the defects of a pair.

        Args:
            pair: The pair, as a corpus yields it.
        """
        source, target = pair.source[:_MAX_CHARACTERS], pair.target[:_MAX_CHARACTERS]
        found: list[Kind] = []
        judged: list[Kind] = [] if source.isascii() and target.isascii() else [MOJIBAKE]
        if _MOJIBAKE.search(source) or _MOJIBAKE.search(target):
            found.append(MOJIBAKE)
        if not _has_letters(source) or not _has_letters(target):
            # With letters on one side only, the other side is missing.
            both = _has_letters(source) == _has_letters(target)
            return Judgement((*found, NO_WORDS if both else LENGTH), tuple(judged))
        copied = _is_copy(source, target)
        if copied is not None:
            judged.append(COPIED)
        if copied:
            found.append(COPIED)
        elif self._knows_languages:
            self._judge_languages(source, target, found, judged)
        if _differ_in_length(source, target):
            found.append(LENGTH)
        if bool(_TAG.search(source)) != bool(_TAG.search(target)) or _entities(source) != _entities(target):
            found.append(MARKUP)
        if _has_other_numbers(source, target):
            found.append(NUMBERS)
        if _QUOTED.fullmatch(source) or _QUOTED.fullmatch(target):
            found.append(QUOTES)
        if _is_header(source) and _is_header(target):
            found.append(HEADER_LIKE)
        return Judgement(tuple(found), tuple(judged))

    def _judge_languages(self, source: str, target: str, found: list[Kind], judged: list[Kind]) -> None:
        first = recognize_language(source, self._source, self._target).language
        second = recognize_language(target, self._target, self._source).language
        if first is None and second is None:
            return
        if first is not None and second is not None:
            judged.append(SWAPPED)
        if (first, second) == (self._target, self._source):
            found.append(SWAPPED)
            return
        judged.append(LANGUAGE)
        # One side that seems to be in the language of the other side is evidence only if the other side is certain.
        wrong_source = first not in (None, self._source, self._target) or (
            first == self._target and second == self._target
        )
        wrong_target = second not in (None, self._source, self._target) or (
            second == self._source and first == self._source
        )
        if wrong_source or wrong_target:
            found.append(LANGUAGE)


def repair(pair: Pair) -> Pair:
    """Repair characters of UTF-8 that was read as Windows-1252 or Latin-1; any other pair is returned as it is.

    Args:
        pair: The pair.

    Examples:
        >>> from ibidem.text import Pair
        >>> repair(Pair("Tür", "TÃ¼r", "a.tsv", 1)).target
        'Tür'
    """
    return replace(pair, source=_repair(pair.source), target=_repair(pair.target))


def has_mojibake(pair: Pair) -> bool:
    """Return whether a side has characters of a wrong encoding.

    Args:
        pair: The pair.
    """
    return bool(_MOJIBAKE.search(pair.source) or _MOJIBAKE.search(pair.target))


def _repair(text: str) -> str:
    if not _MOJIBAKE.search(text):
        return text
    for encoding in ("cp1252", "latin1"):
        try:
            return text.encode(encoding).decode("utf-8").removeprefix("\ufeff")
        except UnicodeError:
            continue
    return _MOJIBAKE_RUN.sub(lambda found: _repair_run(found[0]), text)


# Text that is only partly wrong is repaired run by run.
_MOJIBAKE_RUN = re.compile("[\u0080-\u00ff\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]+")


def _repair_run(text: str) -> str:
    for encoding in ("cp1252", "latin1"):
        try:
            return text.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
    return text


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


_WORDS = re.compile(r"[^\W\d_]{2,}")
_LOWER_SHARE = 0.5
_LEAST_WORDS = 3


def _is_copy(source: str, target: str) -> bool | None:
    """Return whether the target is a copy; None for short texts, names and commands, which languages share."""
    words = _WORDS.findall(source)
    if len(words) < _LEAST_WORDS or sum(map(str.islower, words)) < _LOWER_SHARE * len(words):
        return None
    return is_copy(source, target)


def _differ_in_length(source: str, target: str) -> bool:
    if 2 * min(len(source), len(target)) > max(len(source), len(target)):
        return False
    return is_much_shorter(target, source) or is_much_shorter(source, target)


def _entities(text: str) -> bool:
    return bool(_ENTITY.search(text))


def _has_other_numbers(source: str, target: str) -> bool:
    """Return whether both sides have long numbers, and none of them is on both."""
    first, second = _numbers(source), _numbers(target)
    return len(first) >= _LEAST_NUMBERS and len(second) >= _LEAST_NUMBERS and not first & second


def _numbers(text: str) -> set[str]:
    digits = {_NOT_DIGITS.sub("", number) for number in _NUMBER.findall(text)}
    return {number for number in digits if len(number) >= _LEAST_DIGITS}


def _is_header(text: str) -> bool:
    words = text.casefold().replace("(", " ").replace(")", " ").split()
    return bool(words) and len(text) <= _MAX_HEADER and all(word in _HEADER for word in words)
