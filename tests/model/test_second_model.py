"""The second shipped model, from the time on at which it is part of the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.decode import GENERAL_CONFIDENCE, Translator
from ibidem.memory import Memory
from ibidem.model import find_folder, known_models, load_model

if TYPE_CHECKING:
    from ibidem.model import BaseModel

NAME = "ibidem-base-en-de"
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not (ROOT / "src" / "ibidem" / "model" / "shipped" / NAME / "config.json").exists(),
    reason="scripts/second_model.sh has not made the second model",
)


@pytest.fixture(scope="module")
def english() -> BaseModel:
    return load_model(source_language="en", target_language="de", device="cpu")


def test_languages_choose_it_and_its_files_are_complete(english: BaseModel) -> None:
    assert english.name == NAME
    assert NAME in [one.name for one in known_models() if one.shipped]
    assert english.general is not None
    assert (english.general / GENERAL_CONFIDENCE).is_file()
    folder = find_folder(NAME)
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 35_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "\n| flores | 1,012 | " in card
    assert "\n| news | " in card
    assert "general parts | yes" in card
    assert "no shipped model from English" not in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_it_translates_to_german(english: BaseModel) -> None:
    translation = Translator(english).translate(["The file was deleted."])[0]
    assert "Datei" in translation
    assert "gelöscht" in translation


def test_it_learns_from_one_pair(english: BaseModel, tmp_path: Path) -> None:
    from ibidem.learn import MemoryWriter

    writer = MemoryWriter(tmp_path / "memory", english)
    writer.add_pair("The tenant was deleted.", "Der Mandant wurde gelöscht.")
    memory: Memory = Memory.open(tmp_path / "memory")
    assert (memory.identity.source_language, memory.identity.target_language) == ("en", "de")
    translator = Translator(english, memory=tmp_path / "memory")
    assert "Mandant" in translator.translate(["The tenant was deleted."])[0]
