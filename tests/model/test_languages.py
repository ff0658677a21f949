"""Languages of models: those that a model does not have are refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ibidem import Memory
from ibidem.decode import Translator
from ibidem.errors import MismatchError, ModelError, UsageError
from ibidem.facade import open_corpus
from ibidem.learn import MemoryWriter
from ibidem.model import BaseModel, load_model

OWN = "translates from de to en"


def swapped(**given: str) -> dict[str, str]:
    return {"source_language": "en", "target_language": "de", **given}


@pytest.mark.parametrize("kind", ["marian", "marian-separate", "fsmt"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"source_language": "en", "target_language": "de"},
            "not from en to de: leave --source-language and --target-",
        ),
        ({"source_language": "en"}, "not from en: leave --source-language out"),
        ({"target_language": "fr"}, "not to fr: leave --target-language out"),
        ({"source_language": "de", "target_language": "fr"}, "not from de to fr"),
        ({"target_language": "eng_Latn", "source_language": "nl"}, "not from nl to eng_Latn"),
    ],
)
def test_bilingual_model_refuses_other_languages(model_of, kind: str, given: dict[str, str], message: str) -> None:
    folder = model_of(kind).name
    with pytest.raises(UsageError) as caught:
        load_model(folder, device="cpu", **given)
    assert str(caught.value).startswith(f"{folder} {OWN}, {message}")


@pytest.mark.parametrize("kind", ["marian", "fsmt"])
@pytest.mark.parametrize("given", [("de", "en"), ("DE", "en-US"), ("deu_Latn", "eng"), ("de", None), (None, "EN_GB")])
def test_bilingual_model_accepts_other_tags_of_its_languages(
    model_of, kind: str, given: tuple[str | None, str | None]
) -> None:
    model = load_model(model_of(kind).name, device="cpu", source_language=given[0], target_language=given[1])
    assert (model.tokens.source_language, model.tokens.target_language) == ("de", "en")
    assert model.tokens.assumed == (None, None)
    assert model.tokenizer_fingerprint == model_of(kind).tokenizer_fingerprint


def test_shipped_model_has_one_direction() -> None:
    with pytest.raises(UsageError, match="ibidem-base-de-en translates from de to en, not from en to de"):
        load_model(device="cpu", **swapped())
    with pytest.raises(UsageError, match=OWN):
        Translator(device="cpu", **swapped())


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_given_languages_replace_unstated_ones(model_of, kind: str) -> None:
    folder = model_of(kind).name
    model = load_model(folder, device="cpu", source_language="fr", target_language="pt-BR")
    assert (model.tokens.source_language, model.tokens.target_language) == ("fr", "pt-BR")
    assert model.tokens.assumed == ("fr", "pt-BR")
    with pytest.raises(UsageError, match="'12' is not a language tag"):
        load_model(folder, device="cpu", source_language="12")


@pytest.mark.parametrize(("format", "refused"), [("tmx", True), ("xliff", True), ("po", True), ("tsv", False)])
def test_files_that_name_languages_need_known_ones(model_of, tmp_path: Path, format: str, refused: bool) -> None:
    """They were read as German and English, whatever the model translates."""
    model, path = model_of("bart"), tmp_path / "text"
    path.write_text("", encoding="utf-8")
    if refused:
        with pytest.raises(UsageError, match=f"{format} files name theirs: give --source-language"):
            open_corpus(path, model, format=format)
    else:
        assert open_corpus(path, model, format=format).languages.source == "de"


def test_short_codes_of_a_multilingual_model(model_of) -> None:
    model = load_model(model_of("nllb").name, device="cpu", source_language="de", target_language="eng")
    assert (model.tokens.source_language, model.tokens.target_language) == ("deu_Latn", "eng_Latn")
    with pytest.raises(ModelError, match=r"Unknown target language 'zh'.* such as zho_Hans, zho_Hant"):
        load_model(model.name, device="cpu", source_language="de", target_language="zh")
    with pytest.raises(ModelError, match="Unknown target language 'deu_Cyrl'"):
        load_model(model.name, device="cpu", source_language="en", target_language="deu_Cyrl")


def state_languages(folder: Path, source: str | None, target: str | None, codes: tuple[str, ...] = ()) -> None:
    """Let a Marian folder state these languages, and have tokens that select target languages."""
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    stated = {**settings, "source_lang": source, "target_lang": target}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated), encoding="utf-8")
    pieces = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    for code, rare in zip(codes, list(pieces)[-len(codes) :], strict=False):
        pieces[f">>{code}<<"] = pieces.pop(rare)
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")


@pytest.fixture
def marian(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


@pytest.mark.parametrize("family", ["roa", "ROMANCE", "mul", None])
def test_given_language_replaces_a_language_family(marian: Path, family: str | None) -> None:
    state_languages(marian, family, "eng")
    model = load_model(marian, device="cpu", source_language="fr")
    assert (model.tokens.source_language, model.tokens.target_language) == ("fr", "eng")
    assert model.tokens.assumed == ("fr", None)
    assert load_model(marian, device="cpu").tokens.source_language == family
    with pytest.raises(UsageError, match=r"translates .*to eng, not to fr"):
        load_model(marian, device="cpu", target_language="fr")


def test_marian_model_with_several_target_languages(marian: Path) -> None:
    """The language selects the tag that the model wants before its source, which changes the translation."""
    state_languages(marian, "deu", "roa", ("fra", "spa", "por"))
    bare, french = load_model(marian, device="cpu"), load_model(marian, device="cpu", target_language="fr")
    assert (french.tokens.target_language, french.tokens.source_prefix) == ("fra", ">>fra<< ")
    tag = french.tokens.vocabulary()[">>fra<<"]
    assert french.tokens.encode_sources(["Datei"]) == [[tag, *bare.tokens.encode_sources(["Datei"])[0]]]
    assert french.tokens.assumed == (None, None)
    again = load_model(marian, device="cpu", target_language="fra", source_prefix=">>fra<< ")
    assert again.tokenizer_fingerprint == french.tokenizer_fingerprint
    with pytest.raises(UsageError, match=r"Unknown target language 'it' for .*one of its 3 codes, such as"):
        load_model(marian, device="cpu", target_language="it")
    with pytest.raises(UsageError, match="differ"):
        load_model(marian, device="cpu", target_language="fr", source_prefix=">>spa<< ")


def test_check_languages_of_a_loaded_model(tiny: BaseModel, model_of, corpus_file: Path, tmp_path: Path) -> None:
    """They were ignored where a loaded model was given with them."""
    assert Translator(tiny, source_language="de", target_language="en").model is tiny
    with pytest.raises(UsageError, match=r"loaded already and translates from de to en; .* from en to de now"):
        Translator(tiny, **swapped())
    with pytest.raises(UsageError, match="loaded already and does not state"):
        Translator(model_of("bart"), source_language="de")
    with pytest.raises(UsageError, match="loaded already"):
        Memory.learn(tiny, train=corpus_file, path=tmp_path / "memory", **swapped())
    assert not (tmp_path / "memory").exists()


def test_memory_of_other_languages_is_refused(model_of, tmp_path: Path) -> None:
    """BART does not show in its tokens which languages it translates: the memory knows."""
    folder = model_of("bart").name
    german = load_model(folder, device="cpu", source_language="de", target_language="en")
    MemoryWriter(tmp_path / "memory", german).add_pair("Datei", "file")
    MemoryWriter(tmp_path / "memory", load_model(folder, device="cpu")).add_pair("Haus", "house")
    assert Translator(memory=tmp_path / "memory", device="cpu", target_language="en-GB").memories
    with pytest.raises(MismatchError, match=r"holds translations from de to en, but .* is to translate from fr to en"):
        Translator(memory=tmp_path / "memory", device="cpu", source_language="fr")
    with pytest.raises(MismatchError, match="holds translations from de to en"):
        MemoryWriter(tmp_path / "memory", load_model(folder, device="cpu", source_language="de", target_language="fr"))
