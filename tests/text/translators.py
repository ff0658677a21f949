"""Translators for tests, which change texts by rule; most of them damage placeholders."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Translator = Callable[[list[str]], list[str]]


def shout(texts: list[str]) -> list[str]:
    """Write plain words in capitals."""
    return [
        re.sub(r"(?<![\w%{$<&/.@\\-])[a-zäöüß]+(?![\w}>;=@/(])", lambda word: word[0].upper(), text) for text in texts
    ]


def backwards(texts: list[str]) -> list[str]:
    """Reverse the order of the words."""
    return [" ".join(reversed(text.split())) for text in texts]


def strip_codes(texts: list[str]) -> list[str]:
    """Drop words with characters of codes."""
    return [" ".join(word for word in text.split() if not set(word) & set("<>%{}$&\\")) or "x" for text in texts]


def return_empty(texts: list[str]) -> list[str]:
    """Return empty translations."""
    return ["" for _ in texts]


def damage(seed: int, extras: Sequence[str]) -> Translator:
    """Reorder, drop, repeat, change and add words, always the same for a text and a seed."""

    def translate(texts: list[str]) -> list[str]:
        return [_damage_text(text, random.Random(f"{seed} {text}"), extras) for text in texts]

    return translate


def _damage_text(text: str, chance: random.Random, extras: Sequence[str]) -> str:
    words = re.findall(r"\{\d+\}|\w+|\s+|[^\w\s]+", text) if chance.random() < 0.5 else re.split(r"(\s+)", text)
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        if not words:
            break
        place = chance.randrange(len(words))
        match chance.randrange(7):
            case 0:
                chance.shuffle(words)
            case 1:
                del words[place]
            case 2:
                words.insert(chance.randrange(len(words) + 1), words[place])
            case 3:
                cut = chance.randrange(len(words[place]) + 1)
                words[place] = words[place][:cut] + chance.choice([" ", "", "x", "%", "{"]) + words[place][cut:]
            case 4:
                words.insert(place, chance.choice(extras))
            case 5:
                words[place] = words[place].swapcase()
            case 6:
                other = chance.randrange(len(words))
                words[place], words[other] = words[other], words[place]
    return "".join(words)
