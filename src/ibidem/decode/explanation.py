"""What is said of a translation: for every word and token who decided on it, and how it adds up.

For every token, probability = base_weight * base_probability + the votes of the neighbours that agree with it,
and the base weight and all votes sum to 1. The log-probabilities of a part's tokens, divided by their number (and
the tokens of a forced language tag) to the power of the length penalty, are that part's score in the beam search.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class CitedPair:
    """A sentence pair of a memory: the memory's folder, the pair's id there, and where it was learnt from."""

    memory: str
    id: int
    source: str
    target: str
    origin: str
    location: int


@dataclass(frozen=True)
class Neighbour:
    """An entry that voted: for `value`, written `text`, which is target[start:end] of its pair.

    distance: squared, in the space that is searched; vote: its weight in the mixture; agrees: whether it voted
    for the token that was chosen. The end of a sentence stands after its last character, and is empty.
    """

    distance: float
    vote: float
    agrees: bool
    value: int
    text: str
    start: int
    end: int
    entry: int
    pair: CitedPair


@dataclass(frozen=True)
class Token:
    """A token of the translation, translation[start:end], and how its probability came about.

    memory_probability: that of the neighbours' votes alone, None where no neighbour has a vote; memory_share: how
    much of the probability the votes gave; part: the number of the part of a long text; forced: the limit
    on the length ended the part here, so that the end counted as certain in its score.
    """

    value: int
    text: str
    start: int
    end: int
    part: int
    base_probability: float
    memory_probability: float | None
    probability: float
    base_weight: float
    memory_share: float
    forced: bool
    neighbours: tuple[Neighbour, ...]

    @property
    def log_probability(self) -> float:
        """What the token adds to its part's score before that is normalised."""
        if self.forced:
            return 0.0
        return math.log(self.probability) if self.probability else -math.inf

    @property
    def agreeing(self) -> int:
        """How many neighbours voted for this token."""
        return sum(neighbour.agrees for neighbour in self.neighbours)


@dataclass(frozen=True)
class Word:
    """A word of the translation, translation[start:end]; the end of a part is one, too, and is empty.

    memory_share: the mean of its tokens' shares; agreeing and consulted: neighbours of all its tokens.
    """

    text: str
    start: int
    end: int
    memory_share: float
    agreeing: int
    consulted: int
    verdict: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Explanation:
    """A translation and who decided on every word of it; a blank text has no words and no scores.

    scores: of each part, length-normalised; a text has one part unless it is so long that it was split.
    """

    source: str
    translation: str
    scores: tuple[float, ...]
    words: tuple[Word, ...]

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of all words, in order."""
        return tuple(token for word in self.words for token in word.tokens)

    def to_json(self) -> dict[str, Any]:
        """The same as dictionaries, lists, numbers and texts."""
        return asdict(self)


def make_word(text: str, start: int, end: int, tokens: tuple[Token, ...]) -> Word:
    """A word of these tokens, with its verdict."""
    share = sum(token.memory_share for token in tokens) / len(tokens)
    agreeing, consulted = sum(token.agreeing for token in tokens), sum(len(token.neighbours) for token in tokens)
    verdict = describe(share, agreeing, consulted)
    return Word(text, start, end, share, agreeing, consulted, verdict, tokens)


def describe(share: float, agreeing: int, consulted: int) -> str:
    """The verdict on a word in one line."""
    if not consulted:
        return "from the base model: no neighbour"
    votes = f"{agreeing} of {consulted} neighbours"
    if share >= 0.5:
        return f"from memory: {share:.0%}, {votes}".replace("%", " %")
    return f"from the base model: {1 - share:.0%}, {votes}".replace("%", " %")
