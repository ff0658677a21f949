"""Parallel text as token ids: reading, held-out pairs, and the batches of each pass."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import TextError
from ibidem.learn.extraction import cut_chunks, make_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ibidem.model import Tokens
    from ibidem.text import Corpus, Counts, Pair

_TOKENS_PER_CHUNK = 1 << 18
# The largest share of the text that is held out where there is no dev set.
_HELD_OUT_SHARE = 0.05


@dataclass(frozen=True)
class EncodedText:
    """Sentence pairs as token ids.

    Attributes:
        sources: The token ids of each source.
        targets: The token ids of each target, with the end-of-sentence token at its end.
    """

    sources: list[NDArray[np.int32]]
    targets: list[NDArray[np.int32]]

    @classmethod
    def read(cls, corpus: Corpus, tokens: Tokens) -> EncodedText:
        """Read and encode a corpus.

        Args:
            corpus: The parallel text; its counts receive the pairs that are too long for the model.
            tokens: The tokenizer of the model.

        Raises:
            TextError: The corpus has no usable pair.
        """
        pairs = iter(corpus)  # resets the counts, to which the encoding then adds
        return cls._encode(pairs, tokens, corpus, corpus.counts)

    @classmethod
    def sample(cls, corpus: Corpus, tokens: Tokens, count: int, seed: int) -> EncodedText:
        """Read a corpus and encode a random sample of its pairs.

        Args:
            corpus: The parallel text; it is read once, and only the sample is kept in memory.
            tokens: The tokenizer of the model.
            count: The most pairs of the sample.
            seed: The seed of the sample.

        Raises:
            TextError: The corpus has no usable pair.
        """
        draw = random.Random(seed)
        kept: list[Pair] = []
        for number, pair in enumerate(corpus):
            if number < count:
                kept.append(pair)
            elif (place := draw.randrange(number + 1)) < count:
                kept[place] = pair
        return cls._encode(kept, tokens, corpus, corpus.counts)

    @classmethod
    def _encode(cls, pairs: Iterable[Pair], tokens: Tokens, corpus: Corpus, counts: Counts) -> EncodedText:
        sources: list[NDArray[np.int32]] = []
        targets: list[NDArray[np.int32]] = []
        for chunk in cut_chunks(pairs, tokens, _TOKENS_PER_CHUNK, counts):
            sources += [np.array(ids, np.int32) for ids in chunk.sources]
            targets += [np.array(ids, np.int32) for ids in chunk.targets]
        if not sources:
            raise TextError(
                f"No pair could be used of {corpus.description}: {corpus.counts.describe()}. "
                "Check the files, their format and the languages."
            )
        return cls(sources, targets)

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def target_tokens(self) -> int:
        """The number of target tokens."""
        return sum(map(len, self.targets))

    def select(self, rows: Iterable[int]) -> EncodedText:
        """Return some of the pairs.

        Args:
            rows: The rows of the pairs.
        """
        chosen = list(rows)
        return EncodedText([self.sources[row] for row in chosen], [self.targets[row] for row in chosen])

    def hold_out(self, count: int, seed: int) -> tuple[EncodedText, EncodedText]:
        """Divide the text into a larger part to train on and a smaller one to measure on.

        Only pairs that share neither side with another pair are held out, since a model that was trained on a
        duplicate has seen the reference.

        Args:
            count: The most pairs to hold out; at most a twentieth of the text is.
            seed: The seed of the choice.

        Returns:
            The larger and the smaller part; the smaller is empty where the text has no such pair.
        """
        sides = [[ids.tobytes() for ids in side] for side in (self.sources, self.targets)]
        times = [Counter(side) for side in sides]
        unique = [row for row in range(len(self)) if all(times[i][sides[i][row]] == 1 for i in (0, 1))]
        number = min(count, int(_HELD_OUT_SHARE * len(self)))
        held = set(np.random.default_rng(seed).permutation(unique)[:number].tolist())
        return self.select(row for row in range(len(self)) if row not in held), self.select(sorted(held))

    def batches(self, tokens: int) -> list[list[int]]:
        """Divide the pairs into batches of similar length.

        Args:
            tokens: The most padded tokens of a batch, source and target together.

        Returns:
            The rows of each batch.
        """
        return make_batches(self.sources, self.targets, tokens)  # type: ignore[arg-type]

    def digest(self) -> str:
        """Return the sha256 of all token ids, in hexadecimal."""
        found = hashlib.sha256()
        for side in (self.sources, self.targets):
            for ids in side:
                found.update(len(ids).to_bytes(4, "little"))
                found.update(ids.astype("<i4").tobytes())
        return found.hexdigest()


@dataclass(frozen=True)
class Batches:
    """The order in which text is trained on.

    In each pass, all pairs of the domain are used once, together with another part of the general text.

    Attributes:
        text: The text of the domain, then general text.
        domain: The number of pairs of the domain.
        general: The number of pairs of general text in a pass.
        forward_tokens: The most padded tokens of one forward pass.
        group: The number of forward passes of an update.
        seed: The seed of all orders.
    """

    text: EncodedText
    domain: int
    general: int
    forward_tokens: int
    group: int
    seed: int

    @classmethod
    def of(
        cls, domain: EncodedText, general: EncodedText | None, ratio: float, sizes: tuple[int, int], seed: int
    ) -> Batches:
        """Join the text of the domain and general text.

        Args:
            domain: The text of the domain.
            general: General text; None without it.
            ratio: The pairs of general text for each pair of the domain.
            sizes: The most padded tokens of an update, and of one forward pass.
            seed: The seed of all orders.
        """
        update, forward = sizes
        more = general or EncodedText([], [])
        text = EncodedText([*domain.sources, *more.sources], [*domain.targets, *more.targets])
        count = min(len(more), round(ratio * len(domain)))
        return cls(text, len(domain), count, forward, max(1, math.ceil(update / forward)), seed)

    def of_pass(self, number: int) -> list[list[list[int]]]:
        """Return the updates of a pass; the same number gives the same updates.

        Args:
            number: The number of the pass, from 0.

        Returns:
            For each update, the rows of each of its forward passes.
        """
        draw = np.random.default_rng([self.seed, number])
        # Pairs of equal lengths come in another order in each pass, and thus into other batches.
        rows = draw.permutation(np.concatenate([np.arange(self.domain), self._general_rows(number)])).tolist()
        made = self.text.select(rows).batches(self.forward_tokens)
        ordered = [[rows[i] for i in made[place]] for place in draw.permutation(len(made))]
        return [ordered[first : first + self.group] for first in range(0, len(ordered), self.group)]

    def _general_rows(self, number: int) -> NDArray[np.int64]:
        """Return the rows of general text in a pass: the passes go through it in one random order."""
        available = len(self.text) - self.domain
        if not self.general:
            return np.empty(0, np.int64)
        order = np.random.default_rng(self.seed).permutation(available)
        places = (np.arange(self.general) + number * self.general) % available
        chosen: NDArray[np.int64] = self.domain + order[places]
        return chosen

    def from_place(self, number: int, place: int) -> Iterator[tuple[int, int, list[list[int]]]]:
        """Yield updates without end.

        Args:
            number: The number of the pass to begin with.
            place: The number of the update in this pass to begin with.

        Yields:
            The number of the pass, the number of the update that follows, and the rows of each forward pass.
        """
        while True:
            made = self.of_pass(number)
            for i in range(place, len(made)):
                yield number, i + 1, made[i]
            number, place = number + 1, 0


def as_lists(sequences: Sequence[NDArray[np.int32]]) -> list[list[int]]:
    """Return arrays of token ids as lists.

    Args:
        sequences: The token ids of each sentence.
    """
    return [ids.tolist() for ids in sequences]
