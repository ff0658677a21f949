"""A term corrected in one sentence changes other sentences with the same term, and no others.

Other systems keep corrections as whole sentences, and repeat the old term in the next one (modernmt#372).
The sentences were written for this project; `benchmarks/terms.py` measures all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ibidem import MemoryWriter, Translator
from ibidem.cli.memories import print_summary
from ibidem.compact import GENERAL_COMPACTOR, is_general
from ibidem.decode import MemoryScorer, OverlayScorer, loaded_memory
from ibidem.learn import extract
from ibidem.model import BaseModel, load_model
from ibidem.text import Corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

TERMS = Path(__file__).with_name("terms.tsv")
CORRECTED = ("managing director", "display", "vessel", "mobile phone")


@pytest.fixture(scope="module")
def shipped() -> BaseModel:
    return load_model(device="cpu", dtype="auto")


def count(term: str, translations: Sequence[str]) -> int:
    return sum(term in translation.lower() for translation in translations)


def test_a_corrected_term_changes_other_sentences(shipped: BaseModel, tmp_path: Path, sentences: list[Any]) -> None:
    rows = [line.split("\t") for line in TERMS.read_text("utf-8").splitlines()]
    terms = {term: (source, target, others) for term, source, target, *others in rows if term in CORRECTED}
    unrelated = [s.german for s in sentences[::40]]
    writer = MemoryWriter(tmp_path / "memory", shipped)
    translator = Translator(shipped, tmp_path / "memory")
    asked = [*unrelated, *(text for source, _, others in terms.values() for text in (source, *others))]
    before = dict(zip(asked, translator.translate(asked), strict=True))
    assert list(before.values()) == Translator(shipped).translate(asked)
    for term, (source, target, others) in terms.items():
        assert count(term, [before[text] for text in (source, *others)]) == 0
        writer.add_pair(source, target)
        assert translator.translate([source]) == [target]
        assert count(term, translator.translate(others)) >= 2
    same = sum(before[text] == after for text, after in zip(unrelated, translator.translate(unrelated), strict=True))
    assert same >= len(unrelated) - 1  # a dot, as of an ellipsis, may come from anywhere
    explained = translator.explain([terms["display"][2][0]])[0]
    cited = {n.pair.source for token in explained.tokens for n in token.neighbours if n.agrees and n.weight > 0.2}
    assert terms["display"][0] in cited
    for source, target, _ in terms.values():
        writer.remove_pair(source, target)
    assert translator.translate(asked) == list(before.values())


def test_a_new_memory_is_in_the_general_space(
    shipped: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys are compact from the first pair on; the general combiner weights them once there are many."""
    writer = MemoryWriter(tmp_path / "memory", shipped)
    translator = Translator(shipped, tmp_path / "memory")
    writer.add_pair("Der Mandant wurde gelöscht.", "The tenant was deleted.")
    assert translator.translate(["Der Mandant wurde gelöscht."]) == ["The tenant was deleted."]
    assert isinstance(translator.loaded_memories[0].scorer, MemoryScorer)
    assert is_general(writer.memory, shipped)
    print_summary(writer.memory, json=False)
    assert "supplied with the model, pca, 512 dimensions reduced to 96" in capsys.readouterr().out
    monkeypatch.setattr(loaded_memory, "EXACT_BELOW", 1)
    memory = writer.memory.sealed()
    assert (memory.layout.keys, memory.layout.compact) == (False, 96)
    assert memory.verify() == []
    few = tmp_path / "few.tsv"
    few.write_text("Der Mandant wurde gelöscht.\tThe tenant was deleted.\n", "utf-8")
    general = shipped.general
    assert general is not None
    extracted = extract(shipped, Corpus([few]), tmp_path / "extracted", compactor=general / GENERAL_COMPACTOR)
    keys = [each.search_keys.read(0, each.entries) for each in (memory, extracted)]
    np.testing.assert_array_equal(*keys)
    np.testing.assert_array_equal(memory.source_vectors(), extracted.source_vectors())
    assert translator.translate(["Der Mandant wurde gelöscht."]) == ["The tenant was deleted."]
    assert isinstance(translator.loaded_memories[0].scorer, OverlayScorer)
