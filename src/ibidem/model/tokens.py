"""Conversion between text and token ids, and the languages of a model."""

from __future__ import annotations

import copy
import difflib
import re
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import ModelError, UsageError
from ibidem.model.decoding import Spans
from ibidem.text import primary_language, same_language

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TAG = re.compile(r"[A-Za-z]{2,8}(?:[-_.@][A-Za-z0-9]+)*")
_MARIAN_CODE = re.compile(r">>([^<>]+)<<")
# Codes of language families (ISO 639-5 and `mul`), which OPUS-MT models state as their source or target.
_FAMILY_CODES = """
aav afa alg alv apa aqa aql art ath auf aus awd azc bad bai bat ber bih bnt btk cai cau cba ccn ccs cdc cdd cel cmc
cpe cpf cpp crp csu cus day dmn dra egx esx euq fiu fox gem gme gmq gmw grk hmx hok hyx iir ijo inc ine ira iro itc
jpx kar kdo khi kro map mkh mno mul mun myn nah nai ngf nic nub omq omv oto paa phi plf poz pqe pqw pra qwe roa sai
sal sdv sem sgn sio sit sla smi son sqj ssa syd tai tbq trk tup tut tuw urj wak wen xgn xnd ypk zhx zle zls zlw znd
"""
_FAMILIES = frozenset(_FAMILY_CODES.split())
# Models with relative positions (T5) have no limit; this is the length that they were trained on.
_POSITIONS = 512
# `split_special_tokens`: a "</s>" that a user typed is text, not the end of the sentence.
_WHOLE = {"truncation": False, "padding": False, "return_attention_mask": False, "split_special_tokens": True}


class LanguagePair(NamedTuple):
    """A source and a target language; None where one is unknown or not given.

    Attributes:
        source: The source language, a tag such as "de".
        target: The target language, a tag such as "pt-BR".

    Examples:
        >>> str(LanguagePair("de", "en"))
        'from de to en'
    """

    source: str | None
    target: str | None

    def __str__(self) -> str:
        parts = (("from", self.source), ("to", self.target))
        return " ".join(f"{word} {language}" for word, language in parts if language is not None)

    def options(self) -> str:
        """Return the command-line options that set the languages of this pair."""
        sides = zip(("--source-language", "--target-language"), self, strict=True)
        return " and ".join(option for option, language in sides if language is not None)


class Tokens:
    """The tokenizers of both sides, and the tokens with which translations start and end. It is thread-safe.

    A target consists of the tokens of its text and the end-of-sentence token, without a language tag.

    Examples:
        >>> from ibidem.model import load_model
        >>> tokens = load_model(device="cpu").tokens
        >>> ids = tokens.encode_targets(["The file is empty."])[0]
        >>> ids[-1] == tokens.eos
        True
        >>> tokens.decode(ids)
        'The file is empty.'

    Attributes:
        source_language: The source language; None where it is unknown.
        target_language: The target language; None where it is unknown.
        source_prefix: Text before every source.
        assumed: The given languages that the model could not confirm, since it does not state its own.
        start: The decoder's prompt: its start token and, for multilingual models, the language tag.
        eos: The end-of-sentence token.
        pad: The padding token.
        max_source_length: The largest number of source tokens.
        max_target_length: The largest number of target tokens.
    """

    def __init__(
        self,
        tokenizer: Any,
        config: Any,
        generation: Any,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        source_prefix: str = "",
        name: str = "this model",
    ) -> None:
        """Wrap a tokenizer of transformers.

        Args:
            tokenizer: The tokenizer.
            config: The configuration of the model.
            generation: The generation settings of the model.
            source_language: See `load_model`.
            target_language: See `load_model`.
            source_prefix: Text before every source.
            name: The name of the model for messages.

        Raises:
            ModelError: A multilingual model lacks one of the languages.
            UsageError: A bilingual model translates other languages, or a language tag is invalid.
        """
        self.source_language: str | None
        self.target_language: str | None
        self.source_prefix = source_prefix
        self.assumed = LanguagePair(None, None)
        # The configuration of T5 lacks the attribute.
        start = _first(
            generation.decoder_start_token_id,
            config.decoder_start_token_id,
            getattr(config, "bos_token_id", None),
        )
        forced = generation.forced_bos_token_id
        if language_tags(tokenizer):
            tokenizer = copy.copy(tokenizer)
            self.source_language, _ = find_language(tokenizer, source_language, "source")
            self.target_language, tag = find_language(tokenizer, target_language, "target")
            tokenizer.src_lang, tokenizer.tgt_lang = self.source_language, self.target_language
            # mBART of 2020 starts the decoder with the tag itself; all later models force it as the first token.
            if config.model_type == "mbart" and type(tokenizer).__name__.startswith("MBartTokenizer"):
                start, forced = tag, None
            else:
                forced = tag
        else:
            self._resolve_pair(tokenizer, LanguagePair(source_language, target_language), name)
        self.start = [start] if forced is None else [start, forced]
        self.eos: int = _first(*_as_list(generation.eos_token_id), *_as_list(config.eos_token_id))
        self.pad: int = _first(generation.pad_token_id, config.pad_token_id, self.eos)
        positions = int(getattr(config, "max_position_embeddings", _POSITIONS))
        self.max_source_length = min(int(tokenizer.model_max_length), positions)
        self.max_target_length = positions - len(self.start)
        self._source = tokenizer
        self._target = _target_tokenizer(tokenizer)
        # Encoding targets changes the tokenizer's state: its language tags or its vocabulary.
        self._lock = threading.Lock()

    def _resolve_pair(self, tokenizer: Any, given: LanguagePair, name: str) -> None:
        """Set the languages of a bilingual model, or of a Marian model with several target languages."""
        own, codes = stated_languages(tokenizer), target_codes(tokenizer)
        stated = given.target is None or (own.target is not None and same_language(own.target, given.target))
        if codes and given.target is not None and not stated:
            code = find_code(codes, given.target, name)
            own, given = LanguagePair(own.source, code), LanguagePair(given.source, code)
            if not self.source_prefix.startswith(">>"):
                self.source_prefix = f"{codes[code]} {self.source_prefix}"
            elif not self.source_prefix.startswith(codes[code]):
                raise UsageError(
                    f"The target language {code} and the tag in the source prefix '{self.source_prefix}' differ: omit "
                    "one of them."
                )
        self.source_language, self.target_language = resolve_languages(name, own, given)
        self.assumed = LanguagePair(
            *(
                wanted if tag is None or is_language_family(tag) else None
                for tag, wanted in zip(own, given, strict=True)
            )
        )

    @cached_property
    def _fast_source(self) -> FastMarianTokenizer | None:
        return make_fast_tokenizer(self._source, target=False)

    @cached_property
    def _fast_target(self) -> FastMarianTokenizer | None:
        return make_fast_tokenizer(self._target, target=True)

    def special_ids(self) -> list[int]:
        """Return the special tokens, such as padding and unknown, without the end-of-sentence token."""
        return sorted({int(token) for token in self._target.all_special_ids} - {self.eos})

    def encode_sources(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode sources, with the special tokens of the model and without truncation.

        Args:
            texts: The texts; the prefix is added.

        Returns:
            The token ids of each source.
        """
        batch = [self.source_prefix + text for text in texts]
        if not batch:
            return []
        pieces = self._fast_source
        quick = None if pieces is None else pieces.encode(batch)
        if quick is not None:
            return quick
        with self._lock:
            encoded: list[list[int]] = self._source(batch, **_WHOLE).input_ids
        return encoded

    def encode_targets(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode targets, with the end-of-sentence token at the end and without a language tag.

        Args:
            texts: The texts.

        Returns:
            The token ids of each target.
        """
        batch = list(texts)
        if not batch:
            return []
        pieces = self._fast_target
        quick = None if pieces is None else pieces.encode(batch)
        if quick is not None:
            return quick
        with self._lock:
            encoded = self._target(text_target=batch, add_special_tokens=False, **_WHOLE).input_ids
        # Unigram tokenizers (T5, mBART) read a typed "</s>" as the special token in spite of `split_special_tokens`.
        reserved = {self.eos, self.pad, *self.start}
        return [[*(number for number in ids if number not in reserved), self.eos] for ids in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """Convert target token ids to text, without special tokens and with single spaces.

        Args:
            ids: Token ids of one target.
        """
        text: str = self._source.decode(list(ids), skip_special_tokens=True)
        return " ".join(text.split())

    def show(self, ids: Sequence[int]) -> list[str]:
        """Return each target token as a piece of the vocabulary, such as "▁file".

        Args:
            ids: Token ids of one target.
        """
        shown: list[str] = self._source.convert_ids_to_tokens(list(ids))
        return shown

    def spans(self, ids: Sequence[int], text: str) -> Spans:
        """Return the positions of target tokens in their text.

        Args:
            ids: The token ids of the text.
            text: The text.
        """
        return Spans(self.decode, ids, text)

    def vocabulary(self) -> dict[str, int]:
        """Return the pieces of both sides with their ids.

        A target piece that the source side lacks, or has with another id, has the key "target PIECE".
        """
        merged = dict(self._source.get_vocab())
        own = getattr(self._target, "target_encoder", None) or self._target.get_vocab()
        merged.update({f"target {piece}": number for piece, number in own.items() if merged.get(piece) != number})
        return merged


def _target_tokenizer(tokenizer: Any) -> Any:
    """Return the tokenizer of targets; FSMT's has no target mode, so a copy gets the target's language and pieces."""
    if type(tokenizer).__name__ != "FSMTTokenizer":
        return tokenizer
    twin = copy.copy(tokenizer)
    twin.src_lang = tokenizer.tgt_lang
    twin.encoder = {piece: number for number, piece in tokenizer.decoder.items()}
    return twin


def _as_list(value: int | list[int] | None) -> list[int | None]:
    return list(value) if isinstance(value, list) else [value]


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


class FastMarianTokenizer:
    """One side of a Marian tokenizer, faster than that of transformers.

    SentencePiece and the model number the pieces differently; this class maps the ids by a table.
    """

    def __init__(self, tokenizer: Any, *, target: bool) -> None:
        """Make the table of ids.

        Args:
            tokenizer: A MarianTokenizer of transformers.
            target: Whether to encode targets instead of sources.
        """
        self._processor = tokenizer.spm_target if target else tokenizer.spm_source
        self._numbers = tokenizer.target_encoder if target and tokenizer.separate_vocabs else tokenizer.encoder
        self._unknown: int = self._numbers[tokenizer.unk_token]
        self._eos: int = tokenizer.eos_token_id
        pieces = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
        self._renumbered = [self._number(piece) for piece in pieces]

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """Encode texts.

        Args:
            texts: The texts, at least one.

        Returns:
            The token ids of each text with the end-of-sentence token; None where a text starts with a >>language<< tag.
        """
        if any(text.startswith(">>") for text in texts):
            return None
        # SentencePiece starts threads for a list, which takes longer than encoding one line.
        encode = self._processor.encode
        lines = [encode(texts[0], out_type=int)] if len(texts) == 1 else encode(list(texts), out_type=int)
        unknown = self._processor.unk_id()
        return [
            self._encode_unknown(text) if unknown in line else [*map(self._renumbered.__getitem__, line), self._eos]
            for text, line in zip(texts, lines, strict=True)
        ]

    def _encode_unknown(self, text: str) -> list[int]:
        """Encode a text with pieces that are unknown to this side's SentencePiece; the vocabulary may contain them."""
        return [*map(self._number, self._processor.encode(text, out_type=str)), self._eos]

    def _number(self, piece: str) -> int:
        number: int = self._numbers.get(piece, self._unknown)
        return number


def make_fast_tokenizer(tokenizer: Any, *, target: bool) -> FastMarianTokenizer | None:
    """Return the fast tokenizer of one side; None for other tokenizers than Marian's.

    Args:
        tokenizer: A tokenizer of transformers.
        target: Whether to encode targets instead of sources.
    """
    return FastMarianTokenizer(tokenizer, target=target) if type(tokenizer).__name__ == "MarianTokenizer" else None


def stated_languages(tokenizer: Any) -> LanguagePair:
    """Return the languages that the tokenizer of a bilingual model states, as Marian's and FSMT's do.

    Args:
        tokenizer: A tokenizer of transformers.

    Returns:
        The languages; None for one that the tokenizer does not state.
    """
    return LanguagePair(
        _first_attribute(tokenizer, "source_lang", "src_lang"),
        _first_attribute(tokenizer, "target_lang", "tgt_lang"),
    )


def resolve_languages(name: str, own: LanguagePair, given: LanguagePair) -> LanguagePair:
    """Return the languages of a bilingual model.

    A given language replaces one that the model does not state, or of which it states only the family.

    Args:
        name: The name of the model for messages.
        own: The languages that the model states.
        given: The languages that the user gives.

    Raises:
        UsageError: A given language is no language tag, or the model states another one.
    """
    for language in given:
        if language is not None and not _TAG.fullmatch(language):
            raise UsageError(f"{language!r} is not a language tag: use one such as 'de', 'en' or 'pt-BR'.")
    known = LanguagePair(*(None if tag is None or is_language_family(tag) else tag for tag in own))
    pairs = zip(known, given, strict=True)
    if not all(tag is None or wanted is None or same_language(tag, wanted) for tag, wanted in pairs):
        raise UsageError(
            f"{name} translates {own}, not {given}: leave {given.options()} out, or choose another model with --model."
        )
    return LanguagePair(*(tag or wanted or family for tag, wanted, family in zip(known, given, own, strict=True)))


def is_language_family(tag: str) -> bool:
    """Return whether a tag names several languages, such as `roa` or ROMANCE.

    Args:
        tag: A tag as a model states it.

    Examples:
        >>> is_language_family("roa"), is_language_family("pt-BR")
        (True, False)
    """
    code = primary_language(tag)
    return code in _FAMILIES or not 2 <= len(code) <= 3


def target_codes(tokenizer: Any) -> dict[str, str]:
    """Return the target languages of a multilingual Marian model.

    Args:
        tokenizer: A tokenizer of transformers.

    Returns:
        Language code -> token that selects it (fra -> >>fra<<); empty for other models.
    """
    tokens = getattr(tokenizer, "supported_language_codes", None) or []
    found = (_MARIAN_CODE.fullmatch(token) for token in tokens)
    return {match[1]: match[0] for match in found if match is not None}


def find_code(codes: dict[str, str], name: str, model: str) -> str:
    """Return the target code for a language: an exact match, or the only code of that language.

    Args:
        codes: The result of `target_codes`.
        name: The language that the user gives.
        model: The name of the model for the message.

    Raises:
        UsageError: No code, or more than one, matches.
    """
    if name in codes:
        return name
    same = [code for code in codes if same_language(code, name)]
    if len(same) == 1:
        return same[0]
    raise UsageError(
        f"Unknown target language '{name}' for {model}: give --target-language one of its {len(codes)} codes, such as "
        f"{', '.join(_similar_tags(name, same, codes))}."
    )


def language_tags(tokenizer: Any) -> dict[str, int]:
    """Return the language tags of a multilingual tokenizer and their token ids.

    Args:
        tokenizer: A tokenizer of transformers.

    Returns:
        Tag -> token id; empty for a bilingual model.
    """
    table = getattr(tokenizer, "lang_code_to_id", None)
    if isinstance(table, dict) and table:
        return dict(table)
    if "src_lang" not in vars(type(tokenizer)):
        return {}
    tags = {token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens}
    return {tag: number for tag, number in tags.items() if "_" in tag and "<" not in tag}


def find_language(tokenizer: Any, name: str | None, side: str) -> tuple[str, int]:
    """Return the tag for a language and its token id: an exact match, or the only tag of that language.

    Args:
        tokenizer: The tokenizer of a multilingual model.
        name: The language, such as "de" for the tags de_DE or deu_Latn.
        side: "source" or "target", for messages.

    Raises:
        ModelError: No tag, or more than one, matches, or `name` is None.
    """
    known = language_tags(tokenizer)
    if name is None:
        examples = ", ".join(sorted(known)[:5])
        raise ModelError(
            f"This model translates between many languages: name the {side} language with "
            f"--{side}-language (one of {len(known)}, such as {examples})."
        )
    if name in known:
        return name, known[name]
    same = [tag for tag in known if same_language(tag, name)]
    if len(same) == 1:
        return same[0], known[same[0]]
    raise ModelError(
        f"Unknown {side} language '{name}' for this model: give --{side}-language one of its "
        f"{len(known)} tags, such as {', '.join(_similar_tags(name, same, known))}."
    )


def _similar_tags(name: str, same: list[str], known: dict[str, Any]) -> list[str]:
    return same or difflib.get_close_matches(name, known, n=5, cutoff=0.3) or sorted(known)[:5]


def _first_attribute(tokenizer: Any, *names: str) -> str | None:
    found = (getattr(tokenizer, name, None) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)
