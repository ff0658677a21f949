"""Forms of words by simple rules: how a German or English term may be inflected in a text.

The rules have no dictionary. They give all forms that are usual for words with such an ending; some of these do not
exist. A form that does not exist does no harm: no text contains it, and the model gives it a low probability.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice, product
from typing import TYPE_CHECKING

from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Iterator

# The most forms of a term of several words.
MAX_FORMS = 64

_UMLAUTS = str.maketrans("aouAOU", "äöüÄÖÜ")
_ADJECTIVE_ENDINGS = ("", "e", "en", "er", "es", "em")
_VERB_ENDINGS = ("e", "st", "est", "t", "et", "te", "ten", "test", "tet", "ete", "eten", "en", "n", "end", "ende")
_PARTICIPLE_ENDINGS = ("t", "et", "en", "te", "ten", "ter", "tes", "tem", "ete", "eten", "eter", "etes")
_SEPARABLE = (
    *("ab", "an", "auf", "aus", "bei", "durch", "ein", "fest", "frei", "her", "herauf", "heraus", "herein", "herunter"),
    *("hin", "hinauf", "hinaus", "hinein", "hinunter", "hinzu", "hoch", "los", "mit", "nach", "um", "vor", "weg"),
    *("weiter", "wieder", "zu", "zurück", "zusammen"),
)
_IRREGULAR_PLURALS = {
    "analysis": "analyses",
    "appendix": "appendices",
    "basis": "bases",
    "child": "children",
    "criterion": "criteria",
    "foot": "feet",
    "half": "halves",
    "index": "indices",
    "knife": "knives",
    "leaf": "leaves",
    "life": "lives",
    "man": "men",
    "matrix": "matrices",
    "medium": "media",
    "mouse": "mice",
    "person": "people",
    "phenomenon": "phenomena",
    "shelf": "shelves",
    "tooth": "teeth",
    "vertex": "vertices",
    "wife": "wives",
    "woman": "women",
}


@lru_cache(16_384)
def forms_of_term(term: str, language: str, *, verb: bool = False) -> tuple[str, ...]:
    """Return the forms of a term, the given one first.

    Args:
        term: One or several words.
        language: The language of the term; other languages than German and English have no rules.
        verb: Whether the term is a verb. The form of a German term shows it; that of an English one does not.

    Returns:
        At most `MAX_FORMS` different forms.

    Examples:
        >>> forms_of_term("tenant", "en")
        ('tenant', 'tenants')
        >>> forms_of_term("point of contact", "en")
        ('point of contact', 'points of contact')
        >>> "Mandanten" in forms_of_term("Mandant", "de")
        True
    """
    code = primary_language(language)
    found = dict.fromkeys([term])
    if code == "en":
        found.update(dict.fromkeys(_english_verb(term) if verb else _english_noun(term)))
    elif code == "de":
        words = re.split(r"(\s+)", term)
        choices = [[word] if not word.strip() else list(_german_word(word)) for word in words]
        # The forms of all words together can be hundreds of thousands, of which only the first are made.
        for parts in product(*choices) if len(words) < 6 else ():
            found["".join(parts)] = None
            if len(found) == MAX_FORMS:
                break
    return tuple(islice(found, MAX_FORMS))


def is_german_verb(term: str) -> bool:
    """Return whether a German term is a verb: one word in lower case that ends as infinitives do.

    Args:
        term: The term.

    Examples:
        >>> is_german_verb("speichern"), is_german_verb("Speichern"), is_german_verb("grün")
        (True, False, False)
    """
    return term.islower() and bool(re.fullmatch(r"\w{2,}(?:en|[lr]n)", term))


def capitalise(form: str) -> str:
    """Return a form as it begins a sentence.

    Args:
        form: The form.
    """
    return form[:1].upper() + form[1:]


def _english_noun(term: str) -> Iterator[str]:
    """Yield a noun and its plural; the head of "point of contact" is its first word."""
    head, of, rest = term.partition(" of ")
    before, space, last = head.rpartition(" ")
    yield term
    if not last[1:].islower() and not last.isupper() and len(last) > 1:  # a product name
        return
    yield f"{before}{space}{_plural(last)}{of}{rest}"


def _plural(word: str) -> str:
    if word.lower() in _IRREGULAR_PLURALS:
        plural = _IRREGULAR_PLURALS[word.lower()]
        return plural if word.islower() else capitalise(plural)
    if not word or not word[-1].isalpha() or (word.isupper() and len(word) > 1):
        return f"{word}s"
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}es" if re.search(r"(?:s|x|z|ch|sh)$", word) else f"{word}s"


def _english_verb(term: str) -> Iterator[str]:
    """Yield the forms of a regular verb; only its first word changes, as in "sign up"."""
    base, space, rest = term.removeprefix("to ").partition(" ")
    yield f"{base}{space}{rest}"
    short = re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", base) is not None
    stem = base + base[-1] if short else base.removesuffix("e") if base[-1:] == "e" else base
    past = f"{base[:-1]}ied" if re.search(r"[^aeiou]y$", base) else f"{stem}ed"
    for form in (_plural(base), past, f"{stem}ing"):
        yield f"{form}{space}{rest}"


def _german_word(word: str) -> Iterator[str]:
    yield word
    if not word[-1].isalpha() or len(word) < 3:
        return
    if word.isupper() or not word[1:].islower():  # an abbreviation or a product name
        yield f"{word}s"
    elif word[0].isupper():
        yield from _german_noun(word)
    elif is_german_verb(word):
        yield from _german_verb(word)
    else:
        stem = word.removesuffix("e")
        yield from (stem + ending for ending in _ADJECTIVE_ENDINGS)


def _german_noun(word: str) -> Iterator[str]:
    """Yield the forms of a noun in all cases and both numbers."""
    if word.endswith("e"):
        endings: tuple[str, ...] = ("n", "s")
    elif word.endswith("in"):  # Kundin, Kundinnen; Verein, Vereine
        endings = ("nen", "s", "e", "en")
    elif re.search(r"(?:ung|heit|keit|schaft|ion|tät|ei|ik|ur)$", word):
        endings = ("en",)
    elif re.search(r"(?:er|el|en|chen|lein)$", word):
        endings = ("s", "n")
    elif re.search(r"(?:nis)$", word):
        endings = ("ses", "se", "sen")
    else:
        endings = ("s", "es", "e", "en", "n", "er", "ern", "ens")
    yield from (word + ending for ending in endings)
    yield from (f"{word[: -len(latin)]}en" for latin in ("um", "us", "on", "o", "a") if word.endswith(latin))
    changed = _with_umlaut(word)
    if changed is not None:
        yield from (changed + ending for ending in ("", "e", "er", "n", "en", "ern"))


def _with_umlaut(word: str) -> str | None:
    """Return the word with an umlaut in its last syllable that can have one: Vorgang, Vorgäng(e)."""
    found = re.search(r"([Aa]u|[AOUaou])[^aeiouäöü]*(?:e[lrn])?$", word)
    if found is None:
        return None
    start = found.start(1)
    return word[:start] + word[start].translate(_UMLAUTS) + word[start + 1 :]


def _german_verb(word: str) -> Iterator[str]:
    """Yield the regular forms of a verb in one word: speichert, gespeichert; abgemeldet, abzumelden."""
    stem = word.removesuffix("en") if word.endswith("en") else word.removesuffix("n")
    yield from (stem + ending for ending in _VERB_ENDINGS)
    yield from (f"{prefix}{stem}{ending}" for prefix in ("ge", "") for ending in _PARTICIPLE_ENDINGS)
    for prefix in _SEPARABLE:
        rest = stem.removeprefix(prefix)
        if rest != stem and len(rest) > 2:
            yield from (f"{prefix}ge{rest}{ending}" for ending in _PARTICIPLE_ENDINGS)
            yield f"{prefix}zu{word.removeprefix(prefix)}"
