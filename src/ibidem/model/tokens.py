"""Text to token ids and back, in the way the base model was trained with."""

from __future__ import annotations

import copy
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError
from ibidem.model.languages import (
    LanguagePair,
    find_code,
    find_language,
    is_family,
    known_languages,
    own_languages,
    settle_languages,
    target_codes,
)
from ibidem.model.marian import MarianPieces, pieces_of
from ibidem.model.spans import Spans
from ibidem.text import same_language

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Models with relative positions (T5) know no limit: what they were trained on is the sensible one.
_POSITIONS = 512


class Tokens:
    """Both sides' tokenizers, and the tokens every translation starts and ends with.

    `start` is the decoder's prompt: its start token and, for multilingual models, the forced language tag.
    A target is its text's tokens and the end-of-sentence token, without any tag. `assumed` holds the languages that
    were given and that the model could not confirm, since it does not state its own. Any thread may encode.
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
        """Raises UsageError or ModelError for a language that the model does not have; `name` is for its message."""
        self.source_language: str | None
        self.target_language: str | None
        self.source_prefix = source_prefix
        self.assumed = LanguagePair(None, None)
        # A T5 configuration has no begin-of-sentence token at all.
        start = _first(
            generation.decoder_start_token_id,
            config.decoder_start_token_id,
            getattr(config, "bos_token_id", None),
        )
        forced = generation.forced_bos_token_id
        if known_languages(tokenizer):
            tokenizer = copy.copy(tokenizer)
            self.source_language, _ = find_language(tokenizer, source_language, "source")
            self.target_language, tag = find_language(tokenizer, target_language, "target")
            tokenizer.src_lang, tokenizer.tgt_lang = self.source_language, self.target_language
            # mBART of 2020 starts the decoder with the tag itself; every later model forces it as first word.
            if config.model_type == "mbart" and type(tokenizer).__name__.startswith("MBartTokenizer"):
                start, forced = tag, None
            else:
                forced = tag
        else:
            self._settle_pair(tokenizer, LanguagePair(source_language, target_language), name)
        self.start = [start] if forced is None else [start, forced]
        self.eos: int = _first(*_as_list(generation.eos_token_id), *_as_list(config.eos_token_id))
        self.pad: int = _first(generation.pad_token_id, config.pad_token_id, self.eos)
        positions = int(getattr(config, "max_position_embeddings", _POSITIONS))
        self.longest_source = min(int(tokenizer.model_max_length), positions)
        self.longest_target = positions - len(self.start)
        self._source = tokenizer
        self._target = _target_tokenizer(tokenizer)
        # A tokenizer changes itself while it encodes targets: its language tags, or its vocabulary.
        self._lock = threading.Lock()

    def _settle_pair(self, tokenizer: Any, given: LanguagePair, name: str) -> None:
        """Set the languages of a model of one pair, or of a Marian model that a tag in the source tells the target."""
        own, codes = own_languages(tokenizer), target_codes(tokenizer)
        stated = given.target is None or (own.target is not None and same_language(own.target, given.target))
        if codes and given.target is not None and not stated:
            code = find_code(codes, given.target, name)
            own, given = LanguagePair(own.source, code), LanguagePair(given.source, code)
            if not self.source_prefix.startswith(">>"):
                self.source_prefix = f"{codes[code]} {self.source_prefix}"
            elif not self.source_prefix.startswith(codes[code]):
                raise UsageError(
                    f"--target-language {code} and the tag in --source-prefix '{self.source_prefix}' differ: leave one "
                    "of them out."
                )
        self.source_language, self.target_language = settle_languages(name, own, given)
        self.assumed = LanguagePair(
            *(wanted if tag is None or is_family(tag) else None for tag, wanted in zip(own, given, strict=True))
        )

    @cached_property
    def _source_pieces(self) -> MarianPieces | None:
        return pieces_of(self._source, target=False)

    @cached_property
    def _target_pieces(self) -> MarianPieces | None:
        return pieces_of(self._target, target=True)

    def special_ids(self) -> list[int]:
        """The tokens that stand for nothing in a text, such as padding and unknown, but for the end of sentence."""
        return sorted({int(token) for token in self._target.all_special_ids} - {self.eos})

    def encode_sources(self, texts: Iterable[str]) -> list[list[int]]:
        """Token ids of each source, with the model's own special tokens, never truncated."""
        batch = [self.source_prefix + text for text in texts]
        if not batch:
            return []
        pieces = self._source_pieces
        quick = None if pieces is None else pieces.encode(batch)
        if quick is not None:
            return quick
        with self._lock:
            encoded: list[list[int]] = self._source(batch, **_WHOLE).input_ids
        return encoded

    def encode_targets(self, texts: Iterable[str]) -> list[list[int]]:
        """Token ids of each target with the end-of-sentence token last, and no language tag."""
        batch = list(texts)
        if not batch:
            return []
        pieces = self._target_pieces
        quick = None if pieces is None else pieces.encode(batch)
        if quick is not None:
            return quick
        with self._lock:
            encoded = self._target(text_target=batch, add_special_tokens=False, **_WHOLE).input_ids
        # Unigram tokenizers (T5, mBART) read a typed "</s>" as the special token whatever they are told.
        reserved = {self.eos, self.pad, *self.start}
        return [[*(number for number in ids if number not in reserved), self.eos] for ids in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of target token ids, special tokens left out."""
        text: str = self._source.decode(list(ids), skip_special_tokens=True)
        return " ".join(text.split())

    def show(self, ids: Sequence[int]) -> list[str]:
        """Each target token as a person would read it."""
        shown: list[str] = self._source.convert_ids_to_tokens(list(ids))
        return shown

    def spans(self, ids: Sequence[int], text: str) -> Spans:
        """Where each of the target tokens `ids` stands in the text that they are of."""
        return Spans(self.decode, ids, text)

    def vocabulary(self) -> dict[str, int]:
        """Pieces of both sides; where they differ, a target piece that the source side lacks or numbers otherwise."""
        merged = dict(self._source.get_vocab())
        own = getattr(self._target, "target_encoder", None) or self._target.get_vocab()
        merged.update({f"target {piece}": number for piece, number in own.items() if merged.get(piece) != number})
        return merged


# `split_special_tokens`: a "</s>" that a user typed is text, not the end of the sentence.
_WHOLE = {"truncation": False, "padding": False, "return_attention_mask": False, "split_special_tokens": True}


def _target_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer of targets: FSMT's has no target mode, so it gets a twin with the target's language and pieces."""
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
