"""Known models: those of the package, those that a user adds, and the choice by languages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ibidem.errors import ModelError, UsageError
from ibidem.model import SHIPPED, KnownModel, add_model, added_models, find_folder, known_models, load_model, registry
from ibidem.model import remove_model as remove


@pytest.fixture(autouse=True)
def _own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IBIDEM_MODELS", str(tmp_path / "settings" / "models.json"))


@pytest.fixture
def second(first_model_only: Path, reverse_folder: Path) -> Path:
    """A second shipped model, which is tiny and has no general parts."""
    return Path(shutil.copytree(reverse_folder, first_model_only / "ibidem-base-en-de"))


@pytest.mark.usefixtures("first_model_only")
def test_without_the_second_model() -> None:
    assert [(one.name, one.source_language, one.target_language) for one in known_models()] == [(SHIPPED, "de", "en")]
    with pytest.raises(UsageError, match=f"{SHIPPED} translates from de to en, not from en to de"):
        load_model(source_language="en", target_language="de", device="cpu")
    with pytest.raises(
        ModelError, match="ibidem-base-en-de is not part of this installation, which has ibidem-base-de"
    ):
        load_model("ibidem-base-en-de", device="cpu")


def test_a_second_shipped_model_is_found_by_languages_and_name(second: Path) -> None:
    assert [one.name for one in known_models()] == [SHIPPED, "ibidem-base-en-de"]
    for given in ({"source_language": "en"}, {"target_language": "de-AT"}, {"name": "ibidem-base-en-de"}):
        model = load_model(**given, device="cpu")
        assert (model.name, model.tokens.source_language) == ("ibidem-base-en-de", "en")
        assert model.general is None
    assert find_folder("ibidem-base-en-de") == second
    with pytest.raises(UsageError, match="No known model translates from fr; there are models from de to en, en to de"):
        load_model(source_language="fr", device="cpu")
    with pytest.raises(UsageError, match="ibidem-base-en-de translates from en to de, not from de"):
        load_model("ibidem-base-en-de", source_language="de", device="cpu")


def test_a_memory_of_a_second_shipped_model_is_reopened(second: Path, tmp_path: Path) -> None:
    from ibidem.combine import FixedCombiner
    from ibidem.decode import Translator
    from ibidem.learn import MemoryWriter

    writer = MemoryWriter(tmp_path / "memory", load_model(source_language="en", device="cpu"))
    writer.add_pair("The tenant was deleted.", "Der Mandant wurde gelöscht.")
    translator = Translator(memory=tmp_path / "memory", device="cpu", combiner=FixedCombiner(2, 0.98, 0.1))
    assert translator.model.name == second.name
    assert translator.translate(["The tenant was deleted."])[0].startswith("Der Mand"), "the memory is used"


def test_incomplete_general_parts_count_as_absent(second: Path) -> None:
    (second / "general").mkdir()
    (second / "general" / "compactor.safetensors").write_bytes(b"")
    assert load_model("ibidem-base-en-de", device="cpu").general is None


def test_added_models_are_kept_and_chosen_after_shipped_ones(tiny_folder: Path) -> None:
    add_model(KnownModel("mine", str(tiny_folder), "de", "en"))
    add_model(KnownModel("other", str(tiny_folder), "fr", "en"))
    assert [one.name for one in added_models()] == ["mine", "other"]
    assert load_model("mine", device="cpu").name == str(tiny_folder)
    assert registry.choose_model("de", "en").name == SHIPPED  # type: ignore[union-attr]
    assert registry.choose_model("fr", None).name == "other"  # type: ignore[union-attr]
    add_model(KnownModel("mine", "/elsewhere", "de", "en"))
    assert [(one.name, one.location) for one in added_models()] == [("other", str(tiny_folder)), ("mine", "/elsewhere")]
    assert remove("other").location == str(tiny_folder)
    with pytest.raises(UsageError, match="no added model 'other'"):
        remove("other")


def test_invalid_names_and_files() -> None:
    for name in ("", "a/b", "../x", "ä", "ibidem-base-de-fr"):
        with pytest.raises(UsageError):
            add_model(KnownModel(name, "/x", "de", "en"))
    file = registry.registry_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    for content in ("[]", "{", '{"models": [{}]}', '{"models": 1}', "[" * 100_000):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(UsageError, match="is not a list of models"):
            added_models()


def test_the_folder_of_user_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IBIDEM_MODELS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert registry.registry_file() == tmp_path / "ibidem" / "models.json"


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "settings" / "models.json").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"models\.json cannot be read .*IBIDEM_MODELS"):
        load_model("mine", device="cpu")
