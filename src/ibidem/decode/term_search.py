"""The terms of a glossary in translations: sentences that lack one are searched again.

A sentence is first translated without the glossary. If every term of its source is there in some form, this is the
translation. Otherwise the constrained search finds one with all terms. It is guided by an alignment: the words of the
first translation that become improbable when the term is erased from the source are its translation so far. The term
is expected in their place, and they are penalised elsewhere.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ibidem.decode.constrained_search import ConstrainedSearcher, Constraints, Form
from ibidem.glossary import capitalise
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ibidem.decode.beam_search import Check, SearchSettings
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scorer import Scorer
    from ibidem.decode.text_splitter import Piece
    from ibidem.glossary import Entry, TermMatch, TermMatcher, TermUse
    from ibidem.model import BaseModel

# Differences of log-probability.
_REPLACED_PENALTY = -3.0
_WRONG_NUMBER = -4.0
_ALIGNED = 1.0
# A word belongs to the aligned words if its difference is at least this fraction of the largest one.
_ALIGNED_FRACTION = 0.3
# The words before the aligned ones that may change with the term, such as articles and adjectives.
_CONTEXT_WORDS = 3
_MAX_REPEATS = 3
# The most terms of a sentence that are forced; more would make a search too long.
_MAX_TERMS = 16
_WORD = re.compile(r"\w+")
# Words that a term never replaces, though they change with it.
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those my your his her its our their of to in on at by for from with and or is are "
        "was were be been has have had not no any each every all some der die das den dem des ein eine einen einem "
        "einer eines dieser diese dieses diesen diesem mein dein sein ihr unser euer jeder jede jedes von zu auf bei "
        "für mit und oder ist sind war waren wird werden wurde wurden hat haben nicht kein keine alle "
        "zum zur im am vom",
    )
)
_VOWEL_SOUND = re.compile(r"(?!eu|ew|one\b|once|uni|us[aeiu]|ut[ie])[aeiou]|hour|hono|heir", re.IGNORECASE)
_VOWEL_LETTERS = "AEFHILMNORSX"


class Alignment(NamedTuple):
    """The translation of a source term in a hypothesis.

    Attributes:
        words: The aligned words, as they are in the translation.
        first: The number of the first token of these words.
        context: The number of tokens before the `_CONTEXT_WORDS` words in front of them.
    """

    words: tuple[str, ...]
    first: int
    context: int


class TermSearcher:
    """Finds translations with the terms of a glossary, with one model.

    Args:
        model: The base model.
    """

    def __init__(self, model: BaseModel) -> None:
        self._model = model
        self._constrained = ConstrainedSearcher(model)

    def __call__(
        self,
        piece: Piece,
        found: list[Hypothesis],
        matcher: TermMatcher,
        settings: SearchSettings,
        scorer: Scorer,
        prefix: Sequence[int],
        check: Check,
    ) -> list[Hypothesis]:
        """Return translations of a piece with the terms of a glossary.

        Args:
            piece: The piece of the source.
            found: Its translations without the glossary, best first.
            matcher: The glossary.
            settings: The settings of the search.
            scorer: Retrieves and weights neighbours.
            prefix: Token ids that the translations are forced to begin with.
            check: Called before every step; an exception that it raises ends the search.

        Returns:
            `found` itself for a source without terms. Else the best translations, with `Hypothesis.terms`; where the
            constrained search finds none with more terms, those of `found`.
        """
        matches = matcher.find(piece.text)
        if not matches:
            return found
        entries = [match.entry for match in matches]
        before = self._check(matcher, entries, found[0])
        if all(use.is_met for use in before):
            return [one._replace(terms=tuple(self._check(matcher, entries, one))) for one in found]
        missing = {number for number, use in enumerate(before) if not use.is_met}
        best = self._search_again(piece, matches, missing, found[0], matcher, settings, scorer, prefix, check)
        if not best or _count(best[0].terms) <= _count(before):
            return [found[0]._replace(terms=tuple(before)), *found[1:]]
        return [
            one._replace(
                terms=tuple(
                    use._replace(forced=use.is_met and number in missing) for number, use in enumerate(one.terms)
                )
            )
            for one in best[: settings.n_best]
        ]

    def _search_again(
        self,
        piece: Piece,
        matches: Sequence[TermMatch],
        missing: set[int],
        hypothesis: Hypothesis,
        matcher: TermMatcher,
        settings: SearchSettings,
        scorer: Scorer,
        prefix: Sequence[int],
        check: Check,
    ) -> list[Hypothesis]:
        """Find translations with as many of the terms as possible, best first; none where none ended.

        The search first keeps the beginning of the translation that lacks terms, up to some words before the first
        aligned ones.
        """
        entries = [match.entry for match in matches]
        lacking = [match for number, match in enumerate(matches) if number in missing][:_MAX_TERMS]
        alignments = dict(zip(lacking, self._align(piece, lacking, hypothesis, check), strict=True))
        context = min((0 if one is None else one.context for one in alignments.values()), default=0)
        prefixes = [list(prefix)]
        if context > len(prefix):
            prefixes.insert(0, hypothesis.tokens[:context])
        best: list[Hypothesis] = []
        for kept in prefixes:
            there = matcher.check(entries, self._model.tokens.decode(kept))
            wanted = [match for match, use in zip(matches, there, strict=True) if not use.is_met][:_MAX_TERMS]
            if not wanted:
                continue
            constraints = self._constrain(piece, wanted, alignments, hypothesis, matcher)
            usual = len(hypothesis.tokens)
            results = self._constrained(piece.ids, constraints, usual, settings, scorer, kept, check)
            judged = [
                one._replace(terms=tuple(self._check(matcher, entries, one)))
                for one in results
                if not _repeats(one, hypothesis)
            ]
            most = max((_count(one.terms) for one in judged), default=0)
            if not best or most > _count(best[0].terms):
                best = [one for one in judged if _count(one.terms) == most]
            if most == len(entries):
                break
        return best

    def _check(self, matcher: TermMatcher, entries: Sequence[Entry], hypothesis: Hypothesis) -> list[TermUse]:
        return matcher.check(entries, self._model.tokens.decode(hypothesis.tokens))

    def _constrain(
        self,
        piece: Piece,
        matches: Sequence[TermMatch],
        alignments: Mapping[TermMatch, Alignment | None],
        hypothesis: Hypothesis,
        matcher: TermMatcher,
    ) -> Constraints:
        """Return the constraints of a piece, guided by the alignments with the translation that lacks terms."""
        english = primary_language(matcher.glossary.target_language) == "en"
        writer = _FormWriter(self._constrained, self._articles if english else {}, piece.text)
        terms, penalties = [], {}
        for match in matches:
            forms = matcher.target_forms(match.entry)
            alignment = alignments.get(match)
            plural = None if alignment is None or not english else _is_plural(alignment.words[-1])
            anchor = None if alignment is None else tuple(hypothesis.tokens[: alignment.first])
            terms.append(list(writer.write(forms, match.entry.targets, plural, anchor)))
            if alignment is not None:
                penalties.update(self._penalise(alignment, forms, hypothesis))
        return Constraints(terms, penalties)

    @cached_property
    def _articles(self) -> dict[int, str]:
        """The tokens of the English indefinite articles."""
        words = ("a", "an", "A", "An")
        encoded = self._model.tokens.encode_targets(words)
        return {ids[0]: word for ids, word in zip(encoded, words, strict=True) if len(ids) == 2}

    def _align(
        self, piece: Piece, missing: Sequence[TermMatch], hypothesis: Hypothesis, check: Check
    ) -> list[Alignment | None]:
        """Find the translation of each term in a hypothesis, by erasing the term from the source."""
        if not hypothesis.tokens:
            return [None] * len(missing)
        erased = [f"{piece.text[: match.start]}{piece.text[match.end :]}" for match in missing]
        sources = [piece.ids, *self._model.tokens.encode_sources(erased)]
        target = [*hypothesis.tokens, self._model.tokens.eos]
        _, log_probs = self._model.force_decode(sources, [target] * len(sources), check)
        whole, *without = log_probs.view(len(sources), len(target)).tolist()
        text = self._model.tokens.decode(hypothesis.tokens)
        spans = self._model.tokens.spans(hypothesis.tokens, text)
        places = [spans[number] for number in range(len(hypothesis.tokens))]
        return [
            _find_aligned(text, places, [one - other for one, other in zip(whole, others, strict=True)])
            for others in without
        ]

    def _penalise(self, alignment: Alignment, forms: Sequence[str], hypothesis: Hypothesis) -> dict[int, float]:
        """Return penalties for the words that a term replaces, unless the translation needs them elsewhere."""
        text = self._model.tokens.decode(hypothesis.tokens).casefold()
        own = {word for form in forms for word in _WORD.findall(form.casefold())}
        words = [
            word
            for word in alignment.words
            if word.casefold() not in own and len(re.findall(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text)) == 1
        ]
        words += [word.removesuffix("s") for word in words if _is_plural(word)]
        cased = {form for word in words for form in (word, word.lower(), capitalise(word)) if len(word) > 2}
        encoded = self._model.tokens.encode_targets(sorted(cased))
        return {ids[0]: _REPLACED_PENALTY for ids in encoded if len(ids) > 1}


class _FormWriter:
    """Makes the forms of terms that fit into a sentence: capitals, articles, number, expected place."""

    def __init__(self, searcher: ConstrainedSearcher, articles: dict[int, str], source: str) -> None:
        self._searcher = searcher
        self._articles = articles
        self._upper = source.isupper() and len(source) > 3
        first = next((sign for sign in source if sign.isalpha()), "")
        self._starts_upper = first.isupper()

    def write(
        self, forms: Sequence[str], singulars: Sequence[str], plural: bool | None, anchor: tuple[int, ...] | None
    ) -> Iterator[Form]:
        """Yield the forms of a term.

        Args:
            forms: The forms as text.
            singulars: Those of them that are singular.
            plural: Whether the replaced word is in the plural; None if unknown.
            anchor: The beginning of the translation before the replaced word; None if unknown.
        """
        for form in forms:
            is_plural = form not in singulars
            bias = _WRONG_NUMBER if plural is not None and plural != is_plural else 0.0
            if self._upper:
                yield from (one._replace(bias=bias, anchor=anchor) for one in self._searcher.encode(form.upper()))
                continue
            article = "an" if _begins_with_vowel(form) else "a"
            wrong = frozenset(token for token, word in self._articles.items() if is_plural or word.lower() != article)
            yield from self._cased(form, Form((), bias, not_after=wrong, anchor=anchor))
            before = self._articles.get(anchor[-1]) if anchor else None
            if anchor and before is not None and before.lower() != article and not is_plural:
                yield from self._cased(f"{article} {form}", Form((), bias, anchor=anchor[:-1]))

    def _cased(self, form: str, like: Form) -> Iterator[Form]:
        """Yield the encodings of a form inside and at the beginning of a sentence."""
        start = capitalise(form) if self._starts_upper else form
        for text, at_start, inside in ((form, start == form, True), (start, True, start == form)):
            if inside or text != form:
                for one in self._searcher.encode(text):
                    yield like._replace(tokens=one.tokens, attached=one.attached, at_start=at_start, inside=inside)


def _find_aligned(text: str, places: Sequence[tuple[int, int]], losses: Sequence[float]) -> Alignment | None:
    """Return the adjacent words whose log-probabilities fall most without the term; None where none falls."""
    words = list(_WORD.finditer(text))
    totals = [
        sum(
            loss
            for (start, end), loss in zip(places, losses, strict=False)
            if start < word.end() and end > word.start()
        )
        if word[0].casefold() not in _FUNCTION_WORDS
        else 0.0
        for word in words
    ]
    if not totals or max(totals) < _ALIGNED:
        return None
    best = max(range(len(totals)), key=totals.__getitem__)
    least = max(_ALIGNED, _ALIGNED_FRACTION * totals[best])
    first = last = best
    while first > 0 and totals[first - 1] >= least:
        first -= 1
    while last + 1 < len(totals) and totals[last + 1] >= least:
        last += 1
    token, context = (
        next(number for number, (_, end) in enumerate(places) if end > words[word].start())
        for word in (first, max(0, first - _CONTEXT_WORDS))
    )
    return Alignment(tuple(word[0] for word in words[first : last + 1]), token, context)


def _is_plural(word: str) -> bool:
    """Guess whether an English word is in the plural."""
    return len(word) > 3 and bool(re.search(r"[^su]s$", word)) and not word.endswith("is")


def _begins_with_vowel(form: str) -> bool:
    """Return whether an English word is spoken with a vowel at its beginning."""
    word = re.split(r"\W", form, maxsplit=1)[0]
    if word.isupper():
        return word[:1] in _VOWEL_LETTERS
    return _VOWEL_SOUND.match(form) is not None


def _count(uses: Sequence[TermUse]) -> int:
    return sum(use.is_met for use in uses)


def _repeats(hypothesis: Hypothesis, usual: Hypothesis) -> bool:
    """Return whether a hypothesis repeats three tokens more often than the usual translation does."""
    return _most_repeats(hypothesis.tokens) > max(_MAX_REPEATS - 1, _most_repeats(usual.tokens))


def _most_repeats(tokens: Sequence[int]) -> int:
    seen: dict[tuple[int, ...], int] = {}
    for first in range(len(tokens) - 2):
        key = tuple(tokens[first : first + 3])
        seen[key] = seen.get(key, 0) + 1
    return max(seen.values(), default=0)
