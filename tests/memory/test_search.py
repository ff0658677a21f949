"""Concordance search, compared with a test of every pair."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ibidem.memory.search as search_module
from ibidem.errors import UsageError
from ibidem.memory import Memory, search_pairs

from .samples import IDENTITY, one, record, sample

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = ["Die Datei ist LEER.", "Öffnen", "ÄRGER mit der datei", "leer", "", "İstanbul ist groß", "Eine Datei"]
TARGETS = ["The file is empty.", "Open", "trouble with the file", "Empty", "x", "Istanbul is big", "a file"]


@pytest.fixture
def memory(path: Path) -> Memory:
    data = replace(sample(3, pairs=7), sources=SOURCES, targets=TARGETS)
    with Memory.open(path).edit() as edit:
        edit.append_segment(data)
        edit.commit()
    return record(path, replace(one(9), sources=["Neue Datei"], targets=["new file"]))


def found(memory: Memory, query: str, **options: object) -> list[str]:
    return [pair.source for pair in search_pairs(memory, query, **options).pairs]  # type: ignore[arg-type]


def test_words_and_phrases(memory: Memory) -> None:
    assert found(memory, "datei") == ["Neue Datei", "Eine Datei", "ÄRGER mit der datei", "Die Datei ist LEER."]
    assert found(memory, "leer die") == ["Die Datei ist LEER."]
    assert found(memory, "öff ") == ["Öffnen"]
    assert found(memory, "atei") == []
    assert found(memory, "atei", mode="phrase")[-1] == "Die Datei ist LEER."
    assert found(memory, "ist leer.", mode="phrase") == ["Die Datei ist LEER."]
    assert found(memory, "file", side="source") == []
    assert found(memory, "FILE empty", side="target") == ["Die Datei ist LEER."]
    # All words must be on one side.
    assert found(memory, "datei file") == []
    # Texts are stored without a separator: nothing is found across their border.
    assert found(memory, "leer.öffnen", mode="phrase") == []


def test_pages_and_counts(memory: Memory) -> None:
    whole = search_pairs(memory, "datei")
    assert (whole.total, whole.complete) == (4, True)
    parts = [search_pairs(memory, "datei", limit=1, offset=place) for place in range(5)]
    assert [pair for part in parts for pair in part.pairs] == whole.pairs
    assert {part.total for part in parts} == {4}
    none = search_pairs(memory, "datei", limit=0)
    assert (none.pairs, none.total) == ([], 4)


@pytest.mark.usefixtures("memory")
def test_removed_pairs_are_not_found(path: Path) -> None:
    removed = record(path, removed=(0,))
    assert found(removed, "leer") == ["leer"]
    assert found(removed.sealed(), "leer") == ["leer"]
    assert search_pairs(removed.sealed(), "datei").total == 3


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {}),
        ("  ", {"mode": "phrase"}),
        ("?!", {}),
        ("a" * 501, {}),
        (" ".join(f"w{n}" for n in range(17)), {}),
        ("a", {"side": "left"}),
        ("a", {"mode": "regex"}),
        ("a", {"limit": -1}),
        ("a", {"offset": -1}),
    ],
)
def test_invalid_searches_are_refused(memory: Memory, query: str, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        search_pairs(memory, query, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", ["(a+)+$", ".*", "[", "a{1000000}", "\\", "(?<=a", "%s' OR 1=1", "\x00", "\ud800"])
@pytest.mark.parametrize("mode", ["words", "phrase"])
def test_queries_are_no_patterns(memory: Memory, query: str, mode: str) -> None:
    if mode == "words" and not re.search(r"\w", query):
        with pytest.raises(UsageError, match="no word"):
            search_pairs(memory, query, mode=mode)
        return
    words = re.findall(r"\w+", query) if mode == "words" else [query]
    literal = [
        pair.id
        for pair in memory.sentences()
        if any(all(word.lower() in text.lower() for word in words) for text in (pair.source, pair.target))
    ]
    assert {pair.id for pair in search_pairs(memory, query, mode=mode).pairs} <= set(literal)


def test_a_search_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of one letter, which a backtracking pattern would search forever, and a clock that jumps."""
    data = sample(1, pairs=40)
    data = replace(data, sources=["a" * 20_000 for _ in data.sources])
    with Memory.create(tmp_path / "m", IDENTITY).edit() as edit:
        edit.append_segment(data)
        memory = edit.commit()
    monkeypatch.setattr(search_module, "_BLOCK_BYTES", 30_000)
    assert search_pairs(memory, "a" * 400 + "b", mode="phrase").complete
    times = iter(range(1_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    part = search_pairs(memory, "aaa", seconds=5)
    assert not part.complete
    assert 0 < part.total < 40


LETTERS = st.text(st.sampled_from("aAäÄ kK.\u0130\u212a"), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(LETTERS, LETTERS), min_size=1, max_size=8),
    LETTERS,
    st.sampled_from(["words", "phrase"]),
    st.integers(1, 30),
)
def test_a_search_finds_what_a_test_of_every_pair_finds(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], query: str, mode: str, block: int
) -> None:
    folded = search_module.fold(query)
    words = re.findall(r"\w+", folded)
    if not (words if mode == "words" else folded.split()):
        return
    data = sample(1, pairs=len(pairs))
    data = replace(data, sources=[source for source, _ in pairs], targets=[target for _, target in pairs])
    with Memory.create(tmp_path_factory.mktemp("m") / "m", IDENTITY).edit() as edit:
        edit.append_segment(data)
        memory = edit.commit()

    def matches(text: str) -> bool:
        text = search_module.fold(text)
        if mode == "phrase":
            return " ".join(folded.split()) in text
        return all(re.search(rf"(?<!\w){word}", text) for word in words)

    expected = [number for number, pair in enumerate(pairs) if any(map(matches, pair))][::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "_BLOCK_BYTES", block)
        result = search_pairs(memory, query, mode=mode, limit=100)
    assert [pair.id for pair in result.pairs] == expected
    assert result.total == len(expected)
