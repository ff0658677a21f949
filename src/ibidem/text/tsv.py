"""Tab-separated text: a source, a tab, a target on each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.pair import Dropped, Found, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.stream import Stream


def read_tsv(stream: Stream) -> Iterator[Found]:
    """Yield line by line; there is no quoting, and no other number of columns than two."""
    for number, line in stream.lines():
        columns = line.split("\t")
        if len(columns) == 2:
            yield Unit(columns[0], columns[1], number)
        elif len(columns) == 1 and not line.strip():
            yield Dropped("blank line")
        else:
            raise TextError(
                f"{stream.name}, line {number}: {len(columns)} "
                f"{'column' if len(columns) == 1 else 'columns'} where there must be 2. "
                "Put exactly one tab, between the source and the target, on each line."
            )
