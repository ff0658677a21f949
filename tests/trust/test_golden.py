"""A memory that an earlier version wrote opens, verifies, translates, and can be changed: one for each format."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.combine import FixedCombiner
from ibidem.decode import SearchSettings, Translator
from ibidem.learn import MemoryWriter, restore_memory
from ibidem.memory import Memory, back_up, verify_folder
from ibidem.memory.manifest import FORMAT
from ibidem.model import load_model
from ibidem.text import Pair

from .golden import FOLDER, describe

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVES = sorted(FOLDER.glob("format-*.tar.xz"))


def test_the_present_format_has_a_golden_memory() -> None:
    assert f"format-{FORMAT}.tar.xz" in [archive.name for archive in ARCHIVES], "run tests/trust/golden.py once"


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_golden_memory_is_as_it_was_written(golden: Path) -> None:
    expected: dict[str, Any] = json.loads((golden / "expected.json").read_text("utf-8"))
    assert verify_folder(golden / "memory")[1] == []
    assert json.loads(json.dumps(describe(golden / "memory"))) == expected
    wanted = {"index", "compactor", "combiner_fixed", "combiner_adaptive", "combiner_contextual", "confidence"}
    assert wanted | {"removed_pairs", "source_projection"} <= set(expected["artefacts"])
    assert expected["snapshots"]
    assert Memory.open(golden / "memory").tail.pairs


def test_golden_memory_translates_and_is_changed(golden: Path) -> None:
    folder, model = golden / "memory", load_model(golden / "model", device="cpu")
    settings = SearchSettings(beam=1, max_length_ratio=0, max_length_extra=60)
    memory = Memory.open(folder)
    # A new memory of the same model says what a stored pair gives; random weights make the base model useless.
    kept = [pair for pair in memory.sentences() if 20 < len(pair.target) < 60][-4:]
    nearest = Translator(model, folder, combiner=FixedCombiner(1, 0.999, 0.1), settings=settings)
    found = nearest.translate([pair.source for pair in kept])
    assert sum(target == pair.target for target, pair in zip(found, kept, strict=True)) >= 2, found
    explained = Translator(model, folder, settings=settings).explain([kept[0].source])[0]
    assert explained.tokens

    writer = MemoryWriter(folder, model)
    writer.add([Pair("Der Vertrag beginnt heute.", "The contract starts today.", "new.tsv", 0)])
    writer.remove_pair(kept[0].source, kept[0].target)
    before = {pair.target for pair in Memory.open(folder).sentences()}
    assert "The contract starts today." in before
    assert kept[0].target not in before
    Memory.open(folder).sealed()
    assert {pair.target for pair in Memory.open(folder).sentences()} == before
    back_up(folder, golden / "copy")
    restore_memory(Memory.open(folder))
    assert not Memory.open(folder).snapshots()
    for each in (folder, golden / "copy"):
        assert verify_folder(each)[1] == []
        assert before <= {pair.target for pair in Memory.open(each).sentences()}
        assert kept[0].target not in {pair.target for pair in Memory.open(each).sentences()}
