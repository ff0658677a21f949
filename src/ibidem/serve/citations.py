"""Explanations as the server gives them: pairs once, memories by name, files without their folders."""

from __future__ import annotations

from pathlib import PurePath, PureWindowsPath
from typing import TYPE_CHECKING

from ibidem.serve.schemas import Citations, CitedNeighbour, CitedPair, CitedToken, CitedWord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.decode import Explanation, Neighbour, Word


def cite(translation: str, lines: Sequence[Explanation], starts: Sequence[int], names: Mapping[str, str]) -> Citations:
    """Join the explanations of the lines of a text that begin at `starts`; `names` are memories by their folder."""
    shelf = Shelf(names)
    words = [shelf.word(word, start) for line, start in zip(lines, starts, strict=True) for word in line.words]
    return Citations(translation=translation, words=words, pairs=shelf.pairs)


class Shelf:
    """Pairs that were cited, each once."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._numbers: dict[tuple[str, int], int] = {}
        self.pairs: list[CitedPair] = []

    def word(self, word: Word, shift: int) -> CitedWord:
        """A word of a line that begins at this place."""
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
                neighbours=[self._neighbour(neighbour) for neighbour in token.neighbours],
            )
            for token in word.tokens
        ]
        return CitedWord(
            text=word.text,
            start=shift + word.start,
            end=shift + word.end,
            memory_share=word.memory_share,
            agreeing=word.agreeing,
            consulted=word.consulted,
            verdict=word.verdict,
            tokens=tokens,
        )

    def _neighbour(self, neighbour: Neighbour) -> CitedNeighbour:
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
        return CitedNeighbour(
            pair=self._numbers[key],
            start=neighbour.start,
            end=neighbour.end,
            text=neighbour.text,
            distance=neighbour.distance,
            vote=neighbour.vote,
            agrees=neighbour.agrees,
        )


def file_name(origin: str) -> str:
    """The last part of a path: where files lie on the server is nobody's business."""
    return PureWindowsPath(PurePath(origin).name).name
