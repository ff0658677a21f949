"""Pairs with wrong targets: removing their origin restores every translation, and a tenth of them does little harm."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sacrebleu

from ibidem.decode import Translator
from ibidem.learn import MemoryWriter
from ibidem.memory import Memory
from ibidem.text import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

STRANGER = "stranger.tmx"


def shifted(sentences: Sequence[Any], every: int = 1) -> list[Pair]:
    """Return sentences with the targets of others."""
    chosen = sentences[::every]
    return [
        Pair(one.german, other.english, STRANGER, number)
        for number, (one, other) in enumerate(zip(chosen, [*chosen[7:], *chosen[:7]], strict=True))
    ]


@pytest.mark.parametrize("sealed", [False, True])
def test_removing_the_origin_restores_every_translation(
    tiny: Any, learnt: Memory, sentences: list[Any], tmp_path: Path, sealed: bool
) -> None:
    folder = Path(shutil.copytree(learnt.path, tmp_path / "mine"))
    texts = [sentence.german for sentence in sentences[:24]]

    def outputs() -> list[tuple[str, tuple[float, ...]]]:
        explained = Translator(tiny, folder).explain(texts)
        return [(each.translation, tuple(token.probability for token in each.tokens)) for each in explained]

    before = outputs()
    writer = MemoryWriter(folder, tiny)
    writer.add(shifted(sentences[:40]))
    if sealed:
        Memory.open(folder).sealed()
    assert outputs() != before
    assert len(writer.remove_origin(STRANGER)) == 40
    assert outputs() == before
    if sealed:
        Memory.open(folder).sealed()
        assert outputs() == before


@pytest.mark.slow
def test_a_tenth_of_wrong_targets_leaves_the_memory_better_than_none(sentences: list[Any], tmp_path: Path) -> None:
    """The default configuration with the shipped model; half of the texts are stored, and a tenth of these wrongly."""
    writer = MemoryWriter(tmp_path / "mine", model := Translator(device="cpu").model)
    stored = sentences[::2]
    wrong = shifted(stored, 10)
    sources = {pair.source for pair in wrong}
    writer.add(wrong)
    writer.add(Pair(one.german, one.english, "project.tsv", 0) for one in stored if one.german not in sources)
    texts, references = [one.german for one in sentences], [[one.english for one in sentences]]
    base = sacrebleu.corpus_bleu(Translator(model).translate(texts), references).score
    clean = sacrebleu.corpus_bleu(Translator(model, tmp_path / "mine").translate(texts), references).score
    assert clean > base
