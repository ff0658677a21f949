"""Text to token ids and back, and the languages of models."""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem import Memory
from ibidem.api import open_corpus
from ibidem.decode import Translator
from ibidem.errors import MismatchError, ModelError, UsageError
from ibidem.learn import MemoryWriter
from ibidem.model import BaseModel, load_model
from ibidem.model.tokens import FastMarianTokenizer

from .zoo import KINDS, Texts

MULTILINGUAL = [name for name, kind in KINDS.items() if "source_language" in kind.options]
TRAPS = [
    "</s>",
    "en_XX",
    "<pad>",
    "<unk>",
    "a </s> b",
    ">>fr<< x",
    ">>fr<<",
    ">> x",
    "\0",
    "a\0b",
    "👩‍👩‍👧",
    "\u200b",
    "ﷺ",
    "x" * 400,
]
OWN = "translates from de to en"


def test_sources_equal_the_tokenizer(any_model: BaseModel, texts: Texts) -> None:
    """On plain sentences the ids equal those of the tokenizer."""
    tokens = any_model.tokens
    plain = [tokens.source_prefix + text for text in texts.german]
    assert tokens.encode_sources(texts.german) == tokens._source(plain).input_ids


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fsmt"])
def test_targets_equal_the_tokenizer_without_tag(model_of, texts: Texts, kind: str) -> None:
    """FSMT's tokenizer has no target mode to compare with; the round-trip test covers it."""
    tokens = model_of(kind).tokens
    own = tokens._source(text_target=texts.english).input_ids
    tags = {*tokens._source.all_special_ids, *tokens.start} - {tokens._source.unk_token_id}
    stripped = [[*(token for token in ids if token not in tags), tokens.eos] for ids in own]
    assert tokens.encode_targets(texts.english) == stripped


def test_targets_end_once_and_hold_no_tag(any_model: BaseModel, texts: Texts) -> None:
    tokens = any_model.tokens
    for ids in tokens.encode_targets([*texts.english, *TRAPS]):
        assert ids[-1] == tokens.eos
        assert tokens.eos not in ids[:-1]
        assert tokens.pad not in ids
        assert not set(tokens.start[1:]) & set(ids)


@pytest.mark.parametrize("kind", ["marian", "marian-separate", "fsmt", "m2m100", "nllb", "bart"])
def test_typed_special_tokens_are_text_in_sources(model_of, kind: str) -> None:
    """The unigram tokenizers of T5 and mBART are excluded: their special tokens are ordinary pieces."""
    tokens = model_of(kind).tokens
    plain, typed = tokens.encode_sources(["a b", "a </s> b"])
    assert typed.count(tokens.eos) == plain.count(tokens.eos)
    assert len(typed) > len(plain)


@pytest.mark.parametrize("kind", ["marian", "marian-separate", "m2m100", "fsmt"])
def test_round_trip(model_of, texts: Texts, kind: str) -> None:
    """These tokenizers have all letters of the sentences, and normalise only the ellipsis."""
    tokens = model_of(kind).tokens
    known = [text for text in texts.english if text.isascii() and '"' not in text and "--" not in text]
    assert len(known) > 200
    wrong = [
        (text, again)
        for text, ids in zip(known, tokens.encode_targets(known), strict=True)
        if (again := tokens.decode(ids)) != text
    ]
    # Moses' detokenizer (FSMT) does not restore every space.
    assert len(wrong) <= (len(known) // 10 if kind == "fsmt" else 0), wrong[:5]


def test_empty_lists(any_model: BaseModel) -> None:
    assert any_model.tokens.encode_sources([]) == []
    assert any_model.tokens.encode_targets([]) == []
    assert any_model.tokens.decode([]) == ""


def test_show_names_every_target_token(any_model: BaseModel, texts: Texts) -> None:
    ids = any_model.tokens.encode_targets(texts.english[:1])[0]
    shown = any_model.tokens.show(ids)
    assert len(shown) == len(ids)
    assert shown[-1] == "</s>"


def test_vocabulary_has_both_sides(any_model: BaseModel, texts: Texts) -> None:
    vocabulary = any_model.tokens.vocabulary()
    for ids in any_model.tokens.encode_targets(texts.english[:20]):
        for number, piece in zip(ids, any_model.tokens.show(ids), strict=True):
            assert number in {vocabulary.get(piece), vocabulary.get(f"target {piece}")}


@pytest.mark.parametrize("kind", ["marian", "marian-separate"])
def test_fast_marian_tokenizer_equals_the_tokenizer_on_all_sentences(model_of, texts: Texts, kind: str) -> None:
    tokenizer = model_of(kind).tokens._source
    everything = texts.both()
    source, target = (FastMarianTokenizer(tokenizer, target=side) for side in (False, True))
    assert source.encode(everything) == tokenizer(everything).input_ids
    assert target.encode(everything) == tokenizer(text_target=everything).input_ids


@pytest.mark.parametrize("kind", ["marian", "marian-separate"])
@settings(deadline=None, max_examples=200)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@example(text="</s>")
@example(text=" a  </s> <pad> b ")
@example(text=">>fr<< x")
@example(text="a\0b")
@example(text="\u2581x")
def test_fast_marian_tokenizer_equals_the_tokenizer_on_any_text(model_of, kind: str, text: str) -> None:
    tokens = model_of(kind).tokens
    own = tokens._source([text], split_special_tokens=True).input_ids
    assert tokens.encode_sources([text]) == own
    target = tokens._source(text_target=[text], split_special_tokens=True).input_ids
    assert tokens.encode_targets([text]) == target


def test_tagged_line_does_not_change_other_lines(model_of) -> None:
    tokens = model_of("marian").tokens
    assert tokens.encode_sources(["Hallo", ">>fr<< x"])[0] == tokens.encode_sources(["Hallo"])[0]


@pytest.mark.parametrize("kind", MULTILINGUAL)
def test_multilingual_model_requires_languages(model_of, kind: str) -> None:
    folder = model_of(kind).name
    options = KINDS[kind].options
    for side in ("source", "target"):
        others = {name: tag for name, tag in options.items() if not name.startswith(side)}
        with pytest.raises(ModelError, match=f"--{side}-language") as missing:
            load_model(folder, device="cpu", **others)
        with pytest.raises(ModelError, match=f"Unknown {side} language 'tlh'.*--{side}-language") as unknown:
            load_model(folder, device="cpu", **others, **{f"{side}_language": "tlh"})
        assert "\n" not in f"{missing.value}{unknown.value}"


@pytest.mark.parametrize("kind", MULTILINGUAL)
def test_positions_of_language_tags(model_of, kind: str) -> None:
    """The source has its own tag, the decoder's prompt the target's, as in the papers of these models."""
    tokens = model_of(kind).tokens
    options = KINDS[kind].options
    spelt = "__{}__" if kind == "m2m100" else "{}"
    source_tag, target_tag = (
        tokens._source.convert_tokens_to_ids(spelt.format(options[name]))
        for name in ("source_language", "target_language")
    )
    ids = tokens.encode_sources(["Datei"])[0]
    assert ids.count(source_tag) == 1
    assert target_tag not in ids
    assert tokens.start == ([target_tag] if kind == "mbart" else [tokens.eos, target_tag])
    assert (tokens.source_language, tokens.target_language) == tuple(options.values())


def test_language_is_found_by_its_short_name(model_of) -> None:
    model = load_model(model_of("mbart50").name, device="cpu", source_language="de", target_language="EN")
    assert (model.tokens.source_language, model.tokens.target_language) == ("de_DE", "en_XX")


def test_prefix_goes_before_every_source(model_of) -> None:
    model = model_of("t5")
    bare = load_model(model.name, device="cpu")
    assert model.tokens.encode_sources(["Datei"]) == bare.tokens.encode_sources(["translate German to English: Datei"])
    assert model.tokens.encode_targets(["file"]) == bare.tokens.encode_targets(["file"])


@pytest.mark.parametrize("traps", [False, True])
def test_both_sides_are_encoded_in_several_threads(any_model: BaseModel, texts: Texts, traps: bool) -> None:
    """Threads encode sources and targets at the same time, and tokenizers switch sides by changing their state."""
    tokens = any_model.tokens
    # The fast Marian tokenizer does not read tags.
    sources = [">> " + text if traps else text for text in texts.german[:20]]
    targets = [">> " + text if traps else text for text in texts.english[:20]]
    expected = (tokens.encode_sources(sources), tokens.encode_targets(targets))

    def encode(number: int) -> bool:
        if number % 2:
            return tokens.encode_sources(sources) == expected[0]
        return tokens.encode_targets(targets) == expected[1]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(encode, range(60)))
    finally:
        sys.setswitchinterval(interval)


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


@pytest.mark.usefixtures("first_model_only")
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
    """Such files are refused where the model does not state its languages."""
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
    """Write languages, and tokens that select target languages, into a Marian folder."""
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
    """The target language selects the tag before the source, which changes the translation."""
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
    """Languages that are given with a loaded model are checked, not ignored."""
    assert Translator(tiny, source_language="de", target_language="en").model is tiny
    with pytest.raises(UsageError, match=r"loaded already and translates from de to en; .* from en to de now"):
        Translator(tiny, **swapped())
    with pytest.raises(UsageError, match="loaded already and does not state"):
        Translator(model_of("bart"), source_language="de")
    with pytest.raises(UsageError, match="loaded already"):
        Memory.learn(tiny, train=corpus_file, path=tmp_path / "memory", **swapped())
    assert not (tmp_path / "memory").exists()


def test_memory_of_other_languages_is_refused(model_of, tmp_path: Path) -> None:
    """BART's tokenizer does not state its languages; the memory stores them."""
    folder = model_of("bart").name
    german = load_model(folder, device="cpu", source_language="de", target_language="en")
    MemoryWriter(tmp_path / "memory", german).add_pair("Datei", "file")
    MemoryWriter(tmp_path / "memory", load_model(folder, device="cpu")).add_pair("Haus", "house")
    assert Translator(memory=tmp_path / "memory", device="cpu", target_language="en-GB").memories
    with pytest.raises(MismatchError, match=r"holds translations from de to en, but .* is to translate from fr to en"):
        Translator(memory=tmp_path / "memory", device="cpu", source_language="fr")
    with pytest.raises(MismatchError, match="holds translations from de to en"):
        MemoryWriter(tmp_path / "memory", load_model(folder, device="cpu", source_language="de", target_language="fr"))
