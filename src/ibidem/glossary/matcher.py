"""Terms in sources, and their translations in targets."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ibidem.glossary.inflection import capitalise, forms_of_term, is_german_verb
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ibidem.glossary.glossary import Entry, Glossary

_WORD = re.compile(r"[^\W_]+(?:['’.&+][^\W_]+)*(?:\+\+|#)?")
# A word next to one of these characters is part of a placeholder, a path, a name of a variable or an address.
_CODE_BEFORE, _CODE_AFTER = frozenset("{$%@#_\\&<="), frozenset("}_\\@>=(")


class TermMatch(NamedTuple):
    """A term of a glossary in a source text.

    Attributes:
        entry: The entry of the glossary.
        start: The term is `text[start:end]`.
        end: See `start`.
    """

    entry: Entry
    start: int
    end: int


class TermUse(NamedTuple):
    """What became of a term of the source in its translation.

    Attributes:
        entry: The entry of the glossary.
        start: The translation of the term is `translation[start:end]`; both are -1 for a term that is not there.
        end: See `start`.
        forced: Whether the translation without the glossary lacks the term.
        glossary: The name of the glossary.
    """

    entry: Entry
    start: int = -1
    end: int = -1
    forced: bool = False
    glossary: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the translation has the term."""
        return self.start >= 0


class TermMatcher:
    """Finds the terms of a glossary in source texts, and their translations in target texts.

    A term matches whole words, in any form that `forms_of_term` gives. Of overlapping terms the longest one counts. A
    term in lower case matches in any case; a term with capitals needs them, or a word all in capitals. A part of a
    word does not match (Mandant in Mandantenverwaltung); parts of words with a hyphen do (Mandanten-ID).

    Args:
        glossary: The glossary.

    Examples:
        >>> from ibidem.glossary import Entry, Glossary
        >>> glossary = Glossary("app", "de", "en", [Entry("Mandant", ("tenant",))])
        >>> matcher = TermMatcher(glossary)
        >>> text = "Alle Mandanten wurden gelöscht."
        >>> [text[found.start : found.end] for found in matcher.find(text)]
        ['Mandanten']
        >>> [use.is_met for use in matcher.check([glossary.entries[0]], "All tenants were deleted.")]
        [True]
    """

    def __init__(self, glossary: Glossary) -> None:
        self.glossary = glossary
        # By the first word of each form, folded: the words of the form as they are written, and the entry.
        self._by_word: dict[str, list[tuple[tuple[str, ...], Entry]]] = {}
        for entry in glossary.entries:
            for form in self._source_forms(entry):
                words = tuple(match[0] for match in _WORD.finditer(form))
                if words:
                    self._by_word.setdefault(words[0].casefold(), []).append((words, entry))
        for forms in self._by_word.values():
            forms.sort(key=lambda form: -sum(map(len, form[0])))

    def _source_forms(self, entry: Entry) -> tuple[str, ...]:
        language = self.glossary.source_language
        return forms_of_term(entry.source, language, verb=self._is_verb(entry))

    def _is_verb(self, entry: Entry) -> bool:
        """Return whether an entry is a verb: its German side shows it, or an English side with "to"."""
        sides = ((self.glossary.source_language, entry.source), (self.glossary.target_language, entry.targets[0]))
        for language, term in sides:
            if primary_language(language) == "de":
                return is_german_verb(term.split(" ")[-1]) and term.islower()
        return any(term.startswith("to ") for _, term in sides)

    def target_forms(self, entry: Entry) -> tuple[str, ...]:
        """Return the forms of all translations of an entry, without those for the beginning of a sentence.

        Args:
            entry: An entry of the glossary.
        """
        verb = self._is_verb(entry)
        forms = [
            form
            for target in entry.targets
            for form in forms_of_term(target.removeprefix("to "), self.glossary.target_language, verb=verb)
        ]
        return tuple(dict.fromkeys(forms))

    def find(self, text: str) -> list[TermMatch]:
        """Find the terms in a source text, in order, without overlaps.

        Args:
            text: The source text.
        """
        words = list(_WORD.finditer(text))
        found: list[TermMatch] = []
        place = 0
        while place < len(words):
            length, entry = self._longest(text, words, place)
            if entry is not None:
                found.append(TermMatch(entry, words[place].start(), words[place + length - 1].end()))
            place += length
        return found

    def _longest(self, text: str, words: Sequence[re.Match[str]], place: int) -> tuple[int, Entry | None]:
        """Return how many words the longest term at this place has, and its entry; 1 and None without a term."""
        for form, entry in self._by_word.get(words[place][0].casefold(), ()):
            here = words[place : place + len(form)]
            if len(here) < len(form) or not all(map(_fits, (word[0] for word in here), form)):
                continue
            if _is_code(text, here[0].start(), here[-1].end()):
                continue
            gaps = (text[one.end() : other.start()] for one, other in pairwise(here))
            if all(gap in (" ", "-", "\u00a0") for gap in gaps):
                return len(form), entry
        return 1, None

    def check(self, entries: Sequence[Entry], translation: str) -> list[TermUse]:
        """Find the translations of terms in a target text, each at a place of its own.

        Args:
            entries: The terms of the source; one that occurs twice is there twice.
            translation: The target text.

        Returns:
            One for each entry, in order.
        """
        places = [
            (start, end, number)
            for number, entry in enumerate(entries)
            for start, end in find_forms(self.target_forms(entry), translation)
        ]
        name = self.glossary.name
        uses: dict[int, TermUse] = {}
        taken: list[tuple[int, int]] = []
        # Longer terms first, so that "tenant" in "tenant administration" does not count for another term.
        for start, end, number in sorted(places, key=lambda place: (place[0] - place[1], place[0], place[2])):
            if number not in uses and all(end <= other[0] or other[1] <= start for other in taken):
                uses[number] = TermUse(entries[number], start, end, glossary=name)
                taken.append((start, end))
        return [uses.get(number, TermUse(entry, glossary=name)) for number, entry in enumerate(entries)]


def find_forms(forms: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text has one of some forms as whole words.

    Args:
        forms: The forms; one in lower case is found in any case, one with capitals as it is or all in capitals.
        text: The text.

    Yields:
        Start and end of each place.
    """
    for form in forms:
        for place in re.finditer(rf"(?<!\w){re.escape(form)}(?!\w)", text, re.IGNORECASE):
            if _fits(place[0], form) or place[0] == capitalise(form):
                yield place.start(), place.end()


def _fits(word: str, form: str) -> bool:
    """Return whether a word of a text is a form, by its letters and its capitals."""
    if word.casefold() != form.casefold():
        return False
    return word == form or form.islower() or (word.isupper() and len(word) > 1)


def _is_code(text: str, start: int, end: int) -> bool:
    return text[max(start - 1, 0) : start] in _CODE_BEFORE or text[end : end + 1] in _CODE_AFTER
