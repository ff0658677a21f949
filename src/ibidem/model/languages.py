"""The languages that a model translates: a fixed pair, or tags of a multilingual model."""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple

from ibidem.errors import ModelError, UsageError
from ibidem.text import primary_language, same_language

_TAG = re.compile(r"[A-Za-z]{2,8}(?:[-_.@][A-Za-z0-9]+)*")
_MARIAN_CODE = re.compile(r">>([^<>]+)<<")
# Codes of families of languages (ISO 639-5 and `mul`), which OPUS-MT models name as their source or target.
_FAMILY_CODES = """
aav afa alg alv apa aqa aql art ath auf aus awd azc bad bai bat ber bih bnt btk cai cau cba ccn ccs cdc cdd cel cmc
cpe cpf cpp crp csu cus day dmn dra egx esx euq fiu fox gem gme gmq gmw grk hmx hok hyx iir ijo inc ine ira iro itc
jpx kar kdo khi kro map mkh mno mul mun myn nah nai ngf nic nub omq omv oto paa phi plf poz pqe pqw pra qwe roa sai
sal sdv sem sgn sio sit sla smi son sqj ssa syd tai tbq trk tup tut tuw urj wak wen xgn xnd ypk zhx zle zls zlw znd
"""
_FAMILIES = frozenset(_FAMILY_CODES.split())


class LanguagePair(NamedTuple):
    """A source and a target language, each None where it is not known or not given."""

    source: str | None
    target: str | None

    def __str__(self) -> str:
        parts = (("from", self.source), ("to", self.target))
        return " ".join(f"{word} {language}" for word, language in parts if language is not None)

    def options(self) -> str:
        """Name the options that give the languages of this pair which are given."""
        sides = zip(("--source-language", "--target-language"), self, strict=True)
        return " and ".join(option for option, language in sides if language is not None)


def own_languages(tokenizer: Any) -> LanguagePair:
    """The languages that the tokenizer of a model of one language pair states: Marian's and FSMT's do."""
    return LanguagePair(
        _stated(tokenizer, "source_lang", "src_lang"),
        _stated(tokenizer, "target_lang", "tgt_lang"),
    )


def settle_languages(name: str, own: LanguagePair, given: LanguagePair) -> LanguagePair:
    """The languages of a model of one pair; raises UsageError where it states others than the given ones.

    A language that the model does not state, or of which it states the family alone, is taken as it is given.
    """
    for language in given:
        if language is not None and not _TAG.fullmatch(language):
            raise UsageError(f"{language!r} is not a language tag. Use one such as 'de', 'en' or 'pt-BR'.")
    known = LanguagePair(*(None if tag is None or is_family(tag) else tag for tag in own))
    pairs = zip(known, given, strict=True)
    if not all(tag is None or wanted is None or same_language(tag, wanted) for tag, wanted in pairs):
        raise UsageError(
            f"{name} translates {own}, not {given}: leave {given.options()} out, or name another model with --model."
        )
    return LanguagePair(*(tag or wanted or family for tag, wanted, family in zip(known, given, own, strict=True)))


def is_family(tag: str) -> bool:
    """Whether a tag names several languages, as `roa` or ROMANCE does, rather than one."""
    code = primary_language(tag)
    return code in _FAMILIES or not 2 <= len(code) <= 3


def target_codes(tokenizer: Any) -> dict[str, str]:
    """The target languages of a Marian model with several, by the code in the token that selects them (>>fra<<)."""
    tokens = getattr(tokenizer, "supported_language_codes", None) or []
    found = (_MARIAN_CODE.fullmatch(token) for token in tokens)
    return {match[1]: match[0] for match in found if match is not None}


def find_code(codes: dict[str, str], name: str, model: str) -> str:
    """The code that a user means, exact or the only one of that language; raises UsageError where there is none."""
    if name in codes:
        return name
    same = [code for code in codes if same_language(code, name)]
    if len(same) == 1:
        return same[0]
    raise UsageError(
        f"Unknown target language '{name}' for {model}: give --target-language one of its {len(codes)} codes, such as "
        f"{', '.join(_near(name, same, codes))}."
    )


def known_languages(tokenizer: Any) -> dict[str, int]:
    """The tokenizer's language tags and their token ids; empty for a model of one language pair."""
    table = getattr(tokenizer, "lang_code_to_id", None)
    if isinstance(table, dict) and table:
        return dict(table)
    if "src_lang" not in vars(type(tokenizer)):
        return {}
    tags = {token: tokenizer.convert_tokens_to_ids(token) for token in tokenizer.all_special_tokens}
    return {tag: number for tag, number in tags.items() if "_" in tag and "<" not in tag}


def find_language(tokenizer: Any, name: str | None, side: str) -> tuple[str, int]:
    """The tag a user means and its token id: exact, or the only tag of that language (de for de_DE or deu_Latn)."""
    known = known_languages(tokenizer)
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
        f"{len(known)} tags, such as {', '.join(_near(name, same, known))}."
    )


def _near(name: str, same: list[str], known: dict[str, Any]) -> list[str]:
    return same or difflib.get_close_matches(name, known, n=5, cutoff=0.3) or sorted(known)[:5]


def _stated(tokenizer: Any, *names: str) -> str | None:
    found = (getattr(tokenizer, name, None) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)
