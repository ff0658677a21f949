"""Sources of several sentences are counted and found as a search of all texts does."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.memory import Memory, count_sources, has_similar_source, similarity
from ibidem.memory.several_sentences import SIMILAR_PERCENT
from ibidem.text import find_sentences

from .samples import IDENTITY, MOMENT, one, record, sample

WORDS = st.sampled_from(["Datei", "Die", "fehlt", "leer", "ist", "Ordner", "3", "Sie", "<b>", "</b>", "ä_b", "今天"])
MARKS = st.sampled_from([".", "!", "?", "…", ",", ";", "。", "؟", '."', "!)", ".</b>", ".{1}", "._", ""])
SOURCES = st.lists(st.tuples(WORDS, MARKS), max_size=12).map(
    lambda parts: " ".join(f"{word}{mark}" for word, mark in parts)
)


def store(folder: Path, *segments: list[str]) -> Memory:
    Memory.create(folder, IDENTITY, created=MOMENT)
    memory = Memory.open(folder)
    with memory.edit() as edit:
        for sources in segments:
            edit.append_segment(replace(sample(1, pairs=len(sources)), sources=sources))
        return edit.commit()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(SOURCES, min_size=1, max_size=5), min_size=1, max_size=3), st.lists(SOURCES, max_size=4))
@example([["Die Datei. Sie fehlt.", "Eins."], ["Die Datei. Sie fehlte."]], ["Die Datei. Sie fehlten."])
def test_counts_and_similar_sources_are_those_of_all_texts(segments: list[list[str]], lines: list[str]) -> None:
    """With fewer sources than are compared, the words of a source do not matter unless it has too few of the line."""
    counts = [len(find_sentences(source, "de")) for sources in segments for source in sources]
    with tempfile.TemporaryDirectory() as folder:
        memory = store(Path(folder) / "memory", *segments)
        for least in (2, 3, 4):
            assert count_sources(memory, least) == sum(count >= least for count in counts)
        for line in [*lines, *(source for sources in segments for source in sources)]:
            sentences = len(find_sentences(line, "de"))
            if sentences < 2:
                continue
            alike = [
                source
                for sources in segments
                for source in sources
                if len(find_sentences(source, "de")) == sentences and similarity(line, source) >= SIMILAR_PERCENT
            ]
            assert not has_similar_source(memory, line, sentences) or alike
            assert has_similar_source(memory, line, sentences) or line not in alike


@pytest.mark.parametrize(("line", "similar"), [("Die Seite fehlt. Legen Sie sie an.", True), ("Ja. Nein.", False)])
def test_a_similar_source_is_found_among_many(tmp_path: Path, line: str, similar: bool) -> None:
    others = [f"Zeile {number} von vielen. Sie ist anders {number % 7}." for number in range(500)]
    memory = store(tmp_path / "memory", others, [*others, "Die Datei fehlt. Legen Sie sie an.", "Ja."], others)
    assert has_similar_source(memory, line, 2) is similar
    assert not has_similar_source(memory, line, 3)
    assert count_sources(memory, 2) == 1_501


def test_pairs_that_were_removed_or_are_not_sealed_are_not_similar(tmp_path: Path) -> None:
    source = "Die Datei fehlt. Legen Sie sie an."
    memory = store(tmp_path / "memory", ["Ja.", source])
    assert has_similar_source(memory, source, 2)
    removed = record(memory.path, one(7), removed=(1,))
    assert not has_similar_source(removed, source, 2)
    assert has_similar_source(memory, source, 2)
    assert not has_similar_source(removed.sealed(), source, 2)
    added = record(memory.path, replace(one(8), sources=[source]))
    assert not has_similar_source(added, source, 2)
    assert has_similar_source(added.sealed(), source, 2)
