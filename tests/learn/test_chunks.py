from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ibidem.learn import chunks
from ibidem.text import Counts, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


def test_long_pairs_are_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand pairs of a MiB a side would be 4 GB."""
    monkeypatch.setattr(chunks, "_CHARACTERS_ENCODED_AT_ONCE", 1_000)
    encoded: list[int] = []

    def encode(texts: Iterable[str]) -> list[list[int]]:
        found = list(texts)
        encoded.append(sum(map(len, found)))
        return [[len(text)] for text in found]

    tokens: Any = SimpleNamespace(encode_sources=encode, encode_targets=encode, longest_source=9, longest_target=9)
    lengths = [10] * 300 + [900] * 7
    pairs = [Pair("x" * length, str(number), "a", number) for number, length in enumerate(lengths)]
    found = [pair for chunk in chunks.cut_chunks(pairs, tokens, 50, Counts()) for pair in chunk.pairs]
    assert found == pairs
    assert max(encoded) < 2_000
    assert len(encoded) < 40
