"""`ibidem model`: models are added, listed, used by name and by languages, and removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ibidem.cli.options import TranslatorOptions
from ibidem.cli.serve import open_translators

if TYPE_CHECKING:
    from .conftest import Run


@pytest.fixture(autouse=True)
def _own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IBIDEM_MODELS", str(tmp_path / "models.json"))


@pytest.fixture
def reverse(reverse_folder: Path, tmp_path: Path) -> Path:
    """A model from English to German, which a test may change."""
    return Path(shutil.copytree(reverse_folder, tmp_path / "reverse"))


@pytest.mark.usefixtures("first_model_only")
def test_add_use_and_remove(ibidem: Run, fails: Run, reverse: Path) -> None:
    assert ibidem("model", "add", reverse).out == f"reverse: en to de, {reverse}\n"
    listed = json.loads(ibidem("model", "list", "--json").out)
    assert [(one["name"], one["shipped"]) for one in listed] == [("ibidem-base-de-en", True), ("reverse", False)]
    assert "reverse" in ibidem("model", "list").out
    by_folder = ibidem("translate", "--model", reverse, "--device", "cpu", "--quiet", stdin="window\n").out
    by_name = ibidem("translate", "--model", "reverse", "--device", "cpu", "--quiet", stdin="window\n").out
    languages = ("--source-language", "en", "--target-language", "de")
    by_languages = ibidem("translate", *languages, "--device", "cpu", "--quiet", stdin="window\n").out
    assert by_folder == by_name == by_languages
    assert "files were not changed" in ibidem("model", "remove", "reverse").err
    assert "not from en to de" in fails(2, "translate", *languages, stdin="window\n")
    assert "no added model 'reverse'" in fails(2, "model", "remove", "reverse")


def test_a_model_without_languages_needs_them(ibidem: Run, fails: Run, reverse: Path) -> None:
    (reverse / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}', encoding="utf-8")
    assert "does not name its languages" in fails(2, "model", "add", reverse)
    added = ibidem("model", "add", reverse, "--name", "fr-it", "--source-language", "fr", "--target-language", "it")
    assert added.out == f"fr-it: fr to it, {reverse}\n"
    assert "Cannot load the model" in fails(1, "model", "add", "/nowhere/model")


@pytest.mark.usefixtures("first_model_only")
def test_a_server_has_the_directions_of_its_memories_and_of_the_known_models(
    ibidem: Run, reverse: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    def pairs(**given: object) -> list[tuple[str | None, str | None, int]]:
        opened = open_translators(TranslatorOptions(device="cpu", **given), None, create=True)  # type: ignore[arg-type]
        tokens = [(one.model.tokens, len(one.loaded_memories)) for one in opened]
        return [(one.source_language, one.target_language, count) for one, count in tokens]

    ibidem("model", "add", reverse)
    assert pairs() == [("de", "en", 0), ("en", "de", 0)]
    assert pairs(model=str(tiny_folder)) == [("de", "en", 0)], "a given model is the only one"
    for folder, model in (("a", reverse), ("b", tiny_folder), ("c", reverse)):
        ibidem("add", "-m", tmp_path / folder, "--model", model, "--device", "cpu", "window", "Fenster")
    memories = [str(tmp_path / name) for name in "abc"]
    assert pairs(memory=memories) == [("en", "de", 2), ("de", "en", 1)]
