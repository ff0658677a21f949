"""Files of every format, written by code that shares nothing with the readers."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.text import Corpus

Write = Callable[[str, "str | bytes"], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file, compressed by its ending, and gives its path."""

    def write_file(name: str, content: str | bytes) -> str:
        data = content.encode("utf-8") if isinstance(content, str) else content
        if name.endswith(".gz"):
            data = gzip.compress(data)
        elif name.endswith(".xz"):
            data = lzma.compress(data)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write_file


def sides(corpus: Corpus) -> list[tuple[str, str]]:
    """Read a corpus to the end and return the two sides of each pair."""
    return [(pair.source, pair.target) for pair in corpus]
