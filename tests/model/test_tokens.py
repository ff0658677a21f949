"""Text to token ids and back, as each model was trained with."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ibidem.errors import ModelError
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


def test_sources_equal_the_tokenizer(any_model: BaseModel, texts: Texts) -> None:
    """On plain sentences ibidem encodes what a user of the tokenizer gets."""
    tokens = any_model.tokens
    plain = [tokens.source_prefix + text for text in texts.german]
    assert tokens.encode_sources(texts.german) == tokens._source(plain).input_ids


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fsmt"])
def test_targets_equal_the_tokenizer_without_tag(model_of, texts: Texts, kind: str) -> None:
    """FSMT's tokenizer has no target mode to compare with: it makes the round trip."""
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
    """Not so for the unigram tokenizers of T5 and mBART, whose special tokens are pieces like any other."""
    tokens = model_of(kind).tokens
    plain, typed = tokens.encode_sources(["a b", "a </s> b"])
    assert typed.count(tokens.eos) == plain.count(tokens.eos)
    assert len(typed) > len(plain)


@pytest.mark.parametrize("kind", ["marian", "marian-separate", "m2m100", "fsmt"])
def test_round_trip(model_of, texts: Texts, kind: str) -> None:
    """These tokenizers know all letters of the sentences, and normalise the ellipsis only."""
    tokens = model_of(kind).tokens
    known = [text for text in texts.english if text.isascii() and '"' not in text and "--" not in text]
    assert len(known) > 200
    wrong = [
        (text, again)
        for text, ids in zip(known, tokens.encode_targets(known), strict=True)
        if (again := tokens.decode(ids)) != text
    ]
    # Moses' detokenizer (FSMT) cannot know where each space stood.
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
    """The source carries its own tag, the decoder's prompt the target's, as in the papers of these models."""
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
    """A server encodes sources in many threads while another learns; tokenizers switch sides by changing themselves."""
    tokens = any_model.tokens
    # Marian's quick way does not read tags.
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
