"""Texts with the confidence and the matches of their sentences."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.decode import BaseScorer, RecordedTranslations, SearchSettings, Translator, translate_and_assess
from ibidem.errors import UsageError
from ibidem.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.model import BaseModel

TEXT = " Die Datei fehlt.  Bitte warten.\n\nHallo"


@pytest.fixture(scope="module")
def translator(tiny: BaseModel, learnt: Memory) -> Translator:
    return Translator(tiny, learnt, settings=SearchSettings(beam=2, max_length_extra=12))


def test_sentences_and_their_places(translator: Translator) -> None:
    found, blank = translate_and_assess(translator, [TEXT, " \n"])
    assert [found.text, blank.text] == translator.translate([TEXT, " \n"])
    sources = [TEXT[one.source_start : one.source_end] for one in found.segments]
    assert sources == ["Die Datei fehlt.", "Bitte warten.", "Hallo"]
    alone = [translate_and_assess(translator, [source])[0] for source in sources]
    assert [found.text[one.start : one.end] for one in found.segments] == [one.text for one in alone]
    for segment, one in zip(found.segments, alone, strict=True):
        assert segment.confidence == pytest.approx(one.confidence, abs=1e-4)
    assert found.confidence == pytest.approx(math.prod(one.confidence for one in found.segments))
    assert (blank.confidence, blank.segments) == (None, ())


def test_sentences_of_low_confidence_are_left_empty(translator: Translator) -> None:
    whole = translate_and_assess(translator, [TEXT])[0]
    confidences = [one.confidence for one in whole.segments]
    for least in (0.0, *confidences, 1.0):
        found = translate_and_assess(translator, [TEXT], min_confidence=least)[0]
        assert [one.left_empty for one in found.segments] == [one < least for one in confidences]
        for one, before in zip(found.segments, whole.segments, strict=True):
            text = "" if one.left_empty else whole.text[before.start : before.end]
            assert found.text[one.start : one.end] == text
    assert translate_and_assess(translator, [TEXT], min_confidence=1.0)[0].text == "   \n\n"


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_invalid_confidences_are_refused(translator: Translator, value: float) -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        translate_and_assess(translator, ["a"], min_confidence=value)


def test_alternatives_are_those_of_the_translator(translator: Translator) -> None:
    found = translate_and_assess(translator, [TEXT, ""], count=3)
    assert [list(one.alternatives) for one in found] == translator.alternatives([TEXT, ""], 3)


def test_matches_of_stored_sentences(translator: Translator, learnt: Memory) -> None:
    pair = next(learnt.sentences())
    found = translate_and_assess(translator, [pair.source + "\nxyz"], matches=3)[0]
    best = found.segments[0].matches[0]
    assert (best.match.pair.source, best.match.percent) == (pair.source, 100)
    assert best.memory == str(learnt.path)
    assert best.to_json()["id"] == pair.id
    assert all(len(one.matches) <= 3 for one in found.segments)
    assert translate_and_assess(translator, [pair.source])[0].segments[0].matches == ()
    assert translate_and_assess(translator, [pair.source], matches=2, scorer=BaseScorer())[0].segments[0].matches == ()


def test_an_almost_equal_sentence_is_found(translator: Translator, learnt: Memory) -> None:
    pair = max(learnt.sentences(), key=lambda pair: len(pair.source) if len(pair.source) < 80 else 0)
    changed = pair.source[:-1] + "!"
    assert not learnt.find(changed)
    (segment, *_) = translate_and_assess(Translator(translator.model, learnt, split="off"), [changed], matches=1)[
        0
    ].segments
    assert segment.matches[0].match.pair.source == pair.source
    assert 90 <= segment.matches[0].match.percent < 100


def test_recorded_translations(translator: Translator) -> None:
    recorded = RecordedTranslations(translator)
    lines = ["Die Datei fehlt.", "", "Hallo"]
    assert recorded(lines) == translator.translate(lines)
    assert recorded.confidences[""] is None
    assert 0 < recorded.confidences["Hallo"] < 1


def test_warnings_are_passed_on(translator: Translator) -> None:
    """The tiny model repeats syllables of texts that it has not seen."""
    texts = ["Welt. Noch eine Welt.", "Hallo"]
    found: list[tuple[int, str]] = []
    expected: list[tuple[int, str]] = []
    translate_and_assess(translator, texts, warn=lambda *one: found.append(one))
    translator.translate(texts, warn=lambda *one: expected.append(one))
    assert found == expected


def test_a_memory_that_is_pruned_between_two_batches(tiny: BaseModel, learnt: Memory, tmp_path: Path) -> None:
    """The evidence of the first batch refers to entries that have other numbers afterwards."""
    memory = Memory.open(shutil.copytree(learnt.path, tmp_path / "memory"))
    settings = SearchSettings(beam=2, max_length_extra=12)
    translator = Translator(tiny, memory, settings=settings, batch_size=1)
    texts = [pair.source for _, pair in zip(range(4), memory.sentences(), strict=False)]
    before = translate_and_assess(translator, texts)
    steps = 0

    def prune_later() -> None:
        nonlocal steps
        steps += 1
        if steps == 30:
            with memory.edit() as edit:
                edit.keep_entries(np.arange(memory.entries) % 7 == 0)
                edit.remove_index()
                edit.commit()

    assert translate_and_assess(translator, texts, check=prune_later) == before
    assert steps > 30
    translator.refresh()
    assert translator.memories[0].entries < memory.entries
