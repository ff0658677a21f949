"""Checks of a translation that need no reference.

They find a translation that is too short, repeats itself, copies the source, or lacks a number of the source.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
# A character of a script without spaces carries about as much text as this many letters.
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af]")
_WIDE_LETTERS = 3
_MIN_LETTERS = 40
_MIN_SHARE = 0.3
_MAX_PHRASE = 12
# A phrase is suspicious if it occurs twice in succession; one of these numbers of words must occur more often, since
# languages repeat words ("very, very", "step by step").
_SHORT_PHRASE_TIMES = {1: 4, 2: 3, 3: 3, 4: 3}
_LETTERS_AGAIN = re.compile(r"([^\W\d_]{1,12}?)\1{6,}")
_MAX_WORD = 1_000
_COPIED_SHARE = 0.9
# Program code stays as it is.
_CODE = re.compile(r"[${}=;\\]|\w\(")
_NUMBER = re.compile(r"(?<!\w)\d++(?:[.,:/'’\u00a0\u202f-]\d++|[ ]\d{3}(?!\d))*+")
_NOT_DIGITS = re.compile(r"\D")
_DIGITS = re.compile(r"\d+")
# Smaller numbers are often written as words, also as names of months.
_LARGEST_WORD = 12
_AFTERNOON = frozenset(map(str, range(1, 12)))
_SHORT, _YEAR = 2, 4
_CLOCK = re.compile(r"(?<![^\W\d_])[ap]\.?m\b|\b\d{1,2}:\d\d\b", re.IGNORECASE)
_NUMBER_WORDS = re.compile(
    r"\b(?:thir|four|fif|six|seven|eigh|nine)teen|\b(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ie[st])|hundred|thousand"
    r"|[mb]illion|dozen|\bscore|\bhalf\b|\bquarter|zehn|zwanzig|dreißig|dreissig|[a-z]zig(?:ste)?\b|hundert|tausend"
    r"|milliarde|dutzend|\bhalb|viertel",
    re.IGNORECASE,
)
_MAX_NUMBERS = 1_000
_PUNCTUATION = ".,;:!?…()[]\"'„“”‚‘’«»"
_MIN_COMMON_WORDS = 3
_MAX_SHOWN = 40


def check_translation(source: str, translation: str) -> str | None:
    """Check whether a translation is suspicious.

    The thresholds are set so that correct translations are hardly ever reported. Source and target language must
    differ.

    Args:
        source: A sentence.
        translation: Its translation.

    Returns:
        A message of one line, without a full stop; None if no rule applies.

    Examples:
        >>> check_translation("Die Datei wurde nicht gefunden.", "Die Datei wurde nicht gefunden.")
        'the translation is a copy of the source'
        >>> check_translation("Die Datei wurde nicht gefunden.", "The file was not found.")
    """
    if problem := _check_length(source, translation):
        return problem
    return (
        _check_repetition(_WORD.findall(translation), _WORD.findall(source))
        or _check_copy(source, translation)
        or _check_numbers(source, translation)
    )


def is_much_shorter(text: str, other: str) -> bool:
    """Return whether a text has so few letters that it can hardly say the same as another one.

    Args:
        text: A text.
        other: Its source or its translation.

    Examples:
        >>> is_much_shorter("No.", "Nein, die Datei wurde bisher von niemandem gelöscht.")
        True
    """
    letters = _count_letters(other)
    return letters >= _MIN_LETTERS and _count_letters(text) < _MIN_SHARE * letters


def is_copy(source: str, translation: str) -> bool:
    """Return whether a translation is a copy of its source, with at least three common words.

    Args:
        source: A sentence.
        translation: Its translation.

    Examples:
        >>> is_copy("Die Datei wurde nicht gefunden.", "Die Datei wurde nicht gefunden.")
        True
    """
    return _check_copy(source, translation) is not None


def _check_length(source: str, translation: str) -> str | None:
    if not translation.strip() and _count_letters(source):
        return "the translation is empty"
    if is_much_shorter(translation, source):
        return "the translation is much shorter than the source"
    return None


def _count_letters(text: str) -> int:
    wide = len(_WIDE.findall(text))
    return sum(map(str.isalnum, text)) + (_WIDE_LETTERS - 1) * wide


def _check_repetition(words: list[str], source: list[str]) -> str | None:
    phrase = _find_repetition(words)
    # A source that repeats itself is translated so.
    if phrase is None or _find_repetition(source) is not None:
        return None
    shown = phrase if len(phrase) <= _MAX_SHOWN else f"{phrase[:_MAX_SHOWN]}…"
    return f'the translation repeats "{shown}"'


def _find_repetition(words: list[str]) -> str | None:
    """Return a phrase that follows itself directly, too often for its length."""
    lowered = [word.casefold() for word in words]
    for size in range(1, min(_MAX_PHRASE, len(words) // 2) + 1):
        needed = size * (_SHORT_PHRASE_TIMES.get(size, 2) - 1)
        equal = 0
        for place in range(size, len(lowered)):
            equal = equal + 1 if lowered[place] == lowered[place - size] else 0
            if equal == needed and any(word.isalpha() for word in lowered[place - size + 1 : place + 1]):
                return " ".join(words[place - size + 1 : place + 1])
    for word in lowered:
        if found := _LETTERS_AGAIN.search(word[:_MAX_WORD]):
            return found[0]
    return None


def _check_copy(source: str, translation: str) -> str | None:
    """Compare pairs of neighbouring words; common words must be among them, since names and commands stay the same."""
    words = [word.strip(_PUNCTUATION) for word in source.split()]
    copied = set(pairwise(word.strip(_PUNCTUATION) for word in translation.split()))
    pairs = [pair for pair in pairwise(words) if any(map(_is_common, pair))]
    if sum(map(_is_common, words)) < _MIN_COMMON_WORDS or not pairs or _CODE.search(source):
        return None
    if sum(pair in copied for pair in pairs) < _COPIED_SHARE * len(pairs):
        return None
    return "the translation is a copy of the source"


def _is_common(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and word.islower()


def _check_numbers(source: str, translation: str) -> str | None:
    """Compare the groups of digits of all numbers: separators and the order of a date differ between languages."""
    numbers = [found[0] for found in islice(_NUMBER.finditer(source), _MAX_NUMBERS)]
    if not numbers or _NUMBER_WORDS.search(translation):
        return None
    known = {_value(group) for group in _DIGITS.findall(translation)}
    known |= {_value(_NOT_DIGITS.sub("", number)) for number in _NUMBER.findall(translation)}
    if _CLOCK.search(translation):
        known |= {str(int(hour) + 12) for hour in known & _AFTERNOON}
    for number in numbers:
        groups = _DIGITS.findall(number)
        if _value("".join(groups)) not in known and not all(
            _is_known(group, known, is_decimal=place > 0 and place == len(groups) - 1)
            for place, group in enumerate(groups)
        ):
            shown = number if len(number) <= _MAX_SHOWN else f"{number[:_MAX_SHOWN]}…"
            return f"the number {shown} is not in the translation"
    return None


def _value(digits: str) -> str:
    return digits.lstrip("0")


def _is_known(group: str, known: set[str], *, is_decimal: bool) -> bool:
    """Return whether a group of digits is in a translation, or is one that may be written in another way."""
    value = _value(group)
    if value in known or (len(value) <= _SHORT and int(value or "0") <= _LARGEST_WORD):
        return True
    if is_decimal and _value(group.rstrip("0")) in known:
        return True
    # 1914-18 and 1914-1918, the 80s and the 1980s.
    return any(
        sorted((len(one), len(value))) == [_SHORT, _YEAR] and (one.endswith(value) or value.endswith(one))
        for one in known
    )
