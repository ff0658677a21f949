"""Translators for tests: none of them knows a language, and most of them do harm."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Translator = Callable[[list[str]], list[str]]


def shout(texts: list[str]) -> list[str]:
    """Words in capitals; whatever is no plain word stays."""
    return [
        re.sub(r"(?<![\w%{$<&/.@\\-])[a-zäöüß]+(?![\w}>;=@/(])", lambda word: word[0].upper(), text) for text in texts
    ]


def backwards(texts: list[str]) -> list[str]:
    """Words in the opposite order, each as it was."""
    return [" ".join(reversed(text.split())) for text in texts]


def strip_codes(texts: list[str]) -> list[str]:
    """Words that look as if there were a code in them are dropped."""
    return [" ".join(word for word in text.split() if not set(word) & set("<>%{}$&\\")) or "x" for text in texts]


def silence(texts: list[str]) -> list[str]:
    """Nothing at all."""
    return ["" for _ in texts]


def vandal(seed: int, extras: Sequence[str]) -> Translator:
    """Reorders, drops, doubles, mangles and invents, a little or a lot, but always the same for a text and a seed."""

    def translate(texts: list[str]) -> list[str]:
        return [_vandalise(text, random.Random(f"{seed} {text}"), extras) for text in texts]

    return translate


def _vandalise(text: str, chance: random.Random, extras: Sequence[str]) -> str:
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
