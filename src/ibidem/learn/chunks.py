"""A corpus cut into chunks of encoded pairs, each of which becomes a segment of the memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ibidem.model import Tokens
    from ibidem.text import Counts, Pair

_PAIRS_ENCODED_AT_ONCE = 2048
_CHARACTERS_ENCODED_AT_ONCE = 2**20


@dataclass
class Chunk:
    """Pairs with their token ids; `entries` is the number of target tokens."""

    pairs: list[Pair] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    entries: int = 0

    def add(self, pair: Pair, source: list[int], target: list[int]) -> None:
        self.pairs.append(pair)
        self.sources.append(source)
        self.targets.append(target)
        self.entries += len(target)


def cut_chunks(pairs: Iterable[Pair], tokens: Tokens, entries: int, counts: Counts) -> Iterator[Chunk]:
    """Chunks of at least `entries` target tokens, in corpus order: the same corpus gives the same chunks.

    A pair that the model cannot read whole is dropped, and counted as too long.
    """
    chunk = Chunk()
    for block in _blocks(pairs):
        sources = tokens.encode_sources(pair.source for pair in block)
        targets = tokens.encode_targets(pair.target for pair in block)
        for pair, source, target in zip(block, sources, targets, strict=True):
            if len(source) > tokens.longest_source or len(target) > tokens.longest_target:
                counts.kept -= 1
                counts.dropped["too long for the model"] = counts.dropped.get("too long for the model", 0) + 1
                continue
            chunk.add(pair, source, target)
            if chunk.entries >= entries:
                yield chunk
                chunk = Chunk()
    if chunk.pairs:
        yield chunk


def _blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Blocks of pairs that are encoded together, bounded in characters too, since a pair may have two million."""
    block: list[Pair] = []
    characters = 0
    for pair in pairs:
        block.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(block) == _PAIRS_ENCODED_AT_ONCE or characters >= _CHARACTERS_ENCODED_AT_ONCE:
            yield block
            block, characters = [], 0
    if block:
        yield block


def make_batches(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Row numbers in batches of similar length, at most `tokens` padded tokens of both sides in a batch."""
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i]), i))
    batches: list[list[int]] = []
    batch: list[int] = []
    widest_source = widest_target = 0
    for i in order:
        source, target = max(widest_source, len(sources[i])), max(widest_target, len(targets[i]))
        if batch and (len(batch) + 1) * (source + target) > tokens:
            batches.append(batch)
            batch, source, target = [], len(sources[i]), len(targets[i])
        batch.append(i)
        widest_source, widest_target = source, target
    return [*batches, batch] if batch else batches
