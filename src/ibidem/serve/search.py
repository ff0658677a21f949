"""Search in the memories: pairs with given words, and pairs whose sources are like the sentences of a text."""

from __future__ import annotations

import time
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from ibidem.decode import SegmentMatch
from ibidem.errors import UsageError
from ibidem.memory import SearchResult, find_matches, search_pairs
from ibidem.serve.http_error import HttpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import TextLayout
    from ibidem.serve.engine import Engine, PieceTranslation
    from ibidem.serve.request import RequestOptions

_MATCH_SECONDS = 10.0
_SEARCH_SECONDS = 10.0


class SearchQuery(NamedTuple):
    """A search in the pairs of a memory; see `ibidem.memory.search_pairs`.

    Attributes:
        query: Words or a phrase.
        side: "source", "target" or "both".
        mode: "words" or "phrase".
        limit: The most pairs to return.
        offset: The number of pairs to leave out before them.
    """

    query: str
    side: str
    mode: str
    limit: int
    offset: int


def search_memory(engine: Engine, name: str, query: SearchQuery) -> SearchResult:
    """Search the pairs of a memory.

    Args:
        engine: Has the memories.
        name: Name of the memory.
        query: What to search for.

    Returns:
        The pairs that match.

    Raises:
        HttpError: 404, there is no memory of this name; 400, the query is invalid.
    """
    with engine.open_newest([name]) as (memory,):
        try:
            return search_pairs(memory, **query._asdict(), seconds=_SEARCH_SECONDS)
        except UsageError as error:
            raise HttpError(400, f"Invalid request: {error}") from error


def find_all_matches(
    engine: Engine,
    options: RequestOptions,
    layouts: Sequence[TextLayout],
    found: Sequence[PieceTranslation],
    limit: int,
) -> list[tuple[SegmentMatch, ...]]:
    """Find the stored pairs that match each piece; pieces after the time limit have none.

    Args:
        engine: Has the memories.
        options: The memories of the request.
        layouts: The pieces of the texts.
        found: Their translations, with the source vectors.
        limit: The most pairs of each piece.

    Raises:
        HttpError: 404, a memory was renamed or deleted since the request arrived.
    """
    names = [name for name, _ in options.memories]
    deadline = time.monotonic() + _MATCH_SECONDS
    pieces = [piece for layout in layouts for piece in layout.pieces]
    rows: list[tuple[SegmentMatch, ...]] = []
    with engine.open_newest(names) as memories:
        searched = [(name, memory, memory.source_vectors()) for name, memory in zip(names, memories, strict=True)]
        for piece, part in zip(pieces, found, strict=True):
            if time.monotonic() > deadline:
                rows.append(())
                continue
            near = [
                SegmentMatch(name, match)
                for name, memory, stored in searched
                for match in find_matches(memory, piece.text, part.vectors.get(name), limit, stored)
            ]
            rows.append(tuple(nlargest(limit, near, key=lambda one: one.match.percent)))
    return rows
