"""Explanations in the format of the API: each pair once, memories by name, files without their folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.serve.memory_writer import file_name
from ibidem.serve.schemas import Citations, CitedNeighbour, CitedPair, CitedToken, CitedWord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.decode import Neighbour, Word
    from ibidem.serve.service import TextTranslation


def cite(translation: TextTranslation, names: Mapping[str, str]) -> Citations:
    """Join the explanations of the lines of a text.

    Args:
        translation: A translation with explanations.
        names: Names of the memories by folder.
    """
    cache = PairCache(names)
    words = [
        _convert_word(word, start, cache)
        for line, start in zip(translation.explanations, translation.starts, strict=True)
        for word in line.words
    ]
    return Citations(translation=translation.text, words=words, pairs=cache.pairs)


class PairCache:
    """Numbers the cited pairs and converts each of them once.

    Args:
        names: Names of the memories by folder.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._numbers: dict[tuple[str, int], int] = {}
        self.pairs: list[CitedPair] = []

    def number_of(self, neighbour: Neighbour) -> int:
        """Return the index in `pairs` of a neighbour's pair."""
        pair = neighbour.pair
        key = (pair.memory, pair.id)
        if key not in self._numbers:
            self._numbers[key] = len(self.pairs)
            self.pairs.append(
                CitedPair(
                    memory=self._names[pair.memory],
                    id=pair.id,
                    source=pair.source,
                    target=pair.target,
                    origin=file_name(pair.origin),
                    location=pair.location,
                )
            )
        return self._numbers[key]


def _convert_word(word: Word, shift: int, cache: PairCache) -> CitedWord:
    """Convert a word of a line that starts at the offset `shift`."""
    tokens = [
        CitedToken(
            text=token.text,
            start=shift + token.start,
            end=shift + token.end,
            base_probability=token.base_probability,
            memory_probability=token.memory_probability,
            probability=token.probability,
            base_weight=token.base_weight,
            memory_share=token.memory_share,
            neighbours=[_convert_neighbour(neighbour, cache) for neighbour in token.neighbours],
        )
        for token in word.tokens
    ]
    return CitedWord(
        text=word.text,
        start=shift + word.start,
        end=shift + word.end,
        memory_share=word.memory_share,
        agreeing=word.agreeing,
        retrieved=word.retrieved,
        summary=word.summary,
        tokens=tokens,
    )


def _convert_neighbour(neighbour: Neighbour, cache: PairCache) -> CitedNeighbour:
    return CitedNeighbour(
        pair=cache.number_of(neighbour),
        start=neighbour.start,
        end=neighbour.end,
        text=neighbour.text,
        distance=neighbour.distance,
        weight=neighbour.weight,
        agrees=neighbour.agrees,
    )
