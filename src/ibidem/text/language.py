"""Language tags, compared by their primary subtag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEPARATOR = re.compile(r"[-_.@]")
_PRIMARY = re.compile(r"[a-z]{2,8}")
# Three-letter codes (ISO 639-3), as in the tags of NLLB, and the two-letter codes (ISO 639-1) that files use.
_CODES = """
afr:af sqi:sq amh:am arb:ar ara:ar hye:hy asm:as azj:az aze:az eus:eu bel:be ben:bn bos:bs bul:bg cat:ca ces:cs
cym:cy dan:da deu:de ell:el eng:en epo:eo est:et ekk:et pes:fa fas:fa fin:fi fra:fr gle:ga glg:gl guj:gu heb:he
hin:hi hrv:hr hun:hu isl:is ind:id ita:it jpn:ja kan:kn kat:ka kaz:kk khm:km kir:ky kor:ko lao:lo lat:la lav:lv
lvs:lv lit:lt ltz:lb mkd:mk mal:ml mar:mr mlt:mt khk:mn mon:mn mya:my npi:ne nep:ne nld:nl nob:nb nno:nn ory:or
pan:pa pol:pl por:pt ron:ro rus:ru sin:si slk:sk slv:sl som:so spa:es srp:sr swe:sv swh:sw swa:sw tam:ta tel:te
tgk:tg tgl:tl tha:th tur:tr tuk:tk uig:ug ukr:uk urd:ur uzn:uz uzb:uz vie:vi xho:xh yor:yo zho:zh zsm:ms msa:ms
zul:zu
"""
_TWO_LETTERS = dict(code.split(":") for code in _CODES.split())


def primary_language(tag: str) -> str:
    """Return the primary subtag of a language tag, as a two-letter code where there is one.

    Args:
        tag: A tag of BCP 47, POSIX or NLLB, in upper or lower case.

    Returns:
        The subtag in lower case; it is not checked that the language exists.

    Examples:
        >>> [primary_language(tag) for tag in ("DE", "de-AT", "de_AT.UTF-8", "deu_Latn")]
        ['de', 'de', 'de', 'de']
    """
    subtag = _SEPARATOR.split(tag.strip(), maxsplit=1)[0].lower()
    return _TWO_LETTERS.get(subtag, subtag)


def same_language(first: str, second: str) -> bool:
    """Compare two language tags.

    Args:
        first: A language tag.
        second: Another one.

    Returns:
        Whether the primary languages are equal and, if both tags have more subtags, the tags too.

    Examples:
        >>> same_language("de", "deu_Latn"), same_language("zho_Hans", "zho_Hant")
        (True, False)
    """
    one, other = (re.sub(r"[-_]", "-", tag.strip()).lower() for tag in (first, second))
    return one == other or (primary_language(first) == primary_language(second) and not ("-" in one and "-" in other))


@dataclass(frozen=True, slots=True)
class Languages:
    """The primary subtags of the languages of a corpus.

    Attributes:
        source: The language of the sources.
        target: The language of the targets.
        catalogue: The language of the msgstr entries of a PO or MO file, None if the user does not state it.
    """

    source: str
    target: str
    catalogue: str | None = None

    @classmethod
    def from_tags(cls, source: str, target: str, catalogue: str | None) -> Languages:
        """Reduce language tags to their primary subtags.

        Args:
            source: The tag of the source language.
            target: The tag of the target language.
            catalogue: The tag of the language of the msgstr entries, None if the user does not state it.

        Raises:
            UsageError: If a tag names no language, if both sides are the same language, or if the catalogue's
                language is neither of them.
        """
        languages = cls(
            primary_language(source),
            primary_language(target),
            None if catalogue is None else primary_language(catalogue),
        )
        for tag, subtag in ((source, languages.source), (target, languages.target)):
            if not _PRIMARY.fullmatch(subtag):
                raise UsageError(f"{tag!r} is not a language tag. Use one such as 'de', 'en' or 'pt-BR'.")
        if languages.source == languages.target:
            raise UsageError(
                f"The source language {source!r} and the target language {target!r} are the same: "
                "languages are compared by their first subtag. Name two different ones."
            )
        if languages.catalogue not in (None, languages.source, languages.target):
            raise UsageError(
                f"The catalogue language {catalogue!r} is neither the source language {source!r} nor the "
                f"target language {target!r}. Give one of these with "
                f"{describe_option('--catalogue-language', languages.target)}."
            )
        return languages

    def match(self, tag: str) -> str | None:
        """Find which of the two languages a tag names.

        Args:
            tag: A language tag as a file states it.

        Returns:
            The primary subtag, None if it is neither the source nor the target language.
        """
        subtag = primary_language(tag)
        return subtag if subtag in (self.source, self.target) else None


def infer_language(path: str, languages: Languages) -> str | None:
    """Infer from its path which of the two languages a catalogue translates into.

    Supported are `de/LC_MESSAGES/x.mo`, as gettext has it, and the names `de.po`, `x.de.po`, `x-de_DE.po` and
    `x_de.po`, each with or without the ending of a compressed file.

    Args:
        path: The path as the user gave it; the file is not opened.
        languages: The two languages of the corpus.

    Returns:
        The primary subtag, None if the path names neither language.
    """
    *folders, name = PurePath(path).parts or ("",)
    if len(folders) > 1 and folders[-1] == "LC_MESSAGES" and (found := languages.match(folders[-2])):
        return found
    stem = re.sub(r"\.(?:po|pot|mo|gmo)(?:\.(?:gz|xz))?$", "", name, flags=re.IGNORECASE)
    return next(filter(None, map(languages.match, _candidates(stem))), None)


def _candidates(stem: str) -> Iterable[str]:
    """Yield the parts of a file name that may be its language, the most probable first."""
    parts = _SEPARATOR.split(stem.partition("@")[0])
    if len(parts) > 1 and parts[-1].isupper():
        yield parts[-2]
    yield parts[-1]
