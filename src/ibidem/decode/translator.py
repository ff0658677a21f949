"""Translation of texts and documents with a base model and memories."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ibidem.decode.beam_search import BeamSearcher, SearchSettings, never_stop
from ibidem.decode.explain import Part, explain
from ibidem.decode.loaded_memory import LoadedMemory, MemoryArgument, load_model_for, open_memories
from ibidem.decode.scorer import combine_scorers
from ibidem.decode.term_search import TermSearcher
from ibidem.decode.text_splitter import PIECE_TOKENS, Piece, split_text
from ibidem.errors import UsageError
from ibidem.glossary import Glossary, TermMatcher, load_glossary
from ibidem.model import BaseModel
from ibidem.progress import Progress, silent
from ibidem.text import FillReport, FillSettings, check_languages, fill, open_document, open_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from ibidem.combine import Combiner
    from ibidem.decode.beam_search import Check
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.explain import Explanation
    from ibidem.decode.scorer import Scorer
    from ibidem.glossary import Entry
    from ibidem.memory import Memory
    from ibidem.retrieve import Index

# A stream is read in windows of this many batches. Each window is sorted by length, which saves padding.
_SORTED_BATCHES = 16
_MAX_MATCHERS = 8
_MAX_UNMET = 1_000


class UnmetTerm(NamedTuple):
    """A term of a glossary that a translation lacks.

    Attributes:
        text: The sentence of the source.
        entry: The entry of the glossary.
    """

    text: str
    entry: Entry


@dataclass
class Work:
    """The work that a translator has done.

    Attributes:
        sentences: The number of translated sentences (pieces of texts).
        tokens: The number of tokens of the best hypotheses, their ends included.
        seconds: The time that the search took.
        terms: The number of terms of glossaries in the sources.
        forced_terms: How many of them the translations lacked without the glossary, and have with it.
        unmet_terms: The terms that translations lack, at most the last 1,000.
    """

    sentences: int = 0
    tokens: int = 0
    seconds: float = 0.0
    terms: int = 0
    forced_terms: int = 0
    unmet_terms: list[UnmetTerm] = field(default_factory=list)


class Translator:
    """Translates with a base model and any number of memories.

    The translator follows its memories: pairs that any thread or process adds or removes count from the next batch on.
    Only one thread may translate; an `ibidem.MemoryWriter` adds and removes pairs in others.

    Args:
        model: A loaded model, or the name or folder of one; None for the model that the first memory was learnt with,
            or the shipped model without a memory.
        memory: A memory or its folder, or a list of them, each alone or in a tuple with its weight (by default 1).
        combiner: A combiner for all memories, or the name of one that every memory holds ("contextual", "adaptive",
            "fixed" or "distance-decay"); None for the best one that each memory holds.
        index: An index over the memory's keys, or an index setting; None for the memory's own.
        settings: The settings of the beam search.
        batch_size: How many sentences to translate at once.
        device: "cpu", "cuda", … or "auto", for a model that is not loaded yet.
        dtype: "float32", "bfloat16", "int8", … or "auto", for a model that is not loaded yet.
        source_language: The language to translate from, for a model of several languages; by default the memory's.
        target_language: The language to translate to.
        source_prefix: Text to put before every source, such as T5's task; by default the memory's.
        piece_tokens: A text of more source tokens than this, or than the model reads, is split into pieces that are
            translated one by one; None for the model's limit only.
        glossary: A glossary, or its file (.glossary, CSV, TSV, TBX): the terms that translations must contain.

    Attributes:
        model: The base model.
        glossary: The glossary; None without one.
        loaded_memories: The loaded memories.
        settings: The settings of the beam search.
        batch_size: How many sentences are translated at once.
        piece_tokens: The most source tokens of a piece.
        work: The work done so far.

    Raises:
        UsageError: If an argument is invalid, or the model does not have a language.
        ModelError: If the model cannot be loaded.
        MismatchError: If a memory was learnt with another model or for other languages.

    Examples:
        >>> from ibidem import Translator
        >>> translator = Translator(device="cpu")
        >>> translator.translate(["Guten Morgen."])
        ['Good morning.']

    With one memory, and with two of which the second has twice the weight:

    Examples:
        >>> translator = Translator(memory="memories/it")  # doctest: +SKIP
        >>> translator = Translator(memory=["memories/it", ("memories/client", 2)])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: BaseModel | str | Path | None = None,
        memory: MemoryArgument | None = None,
        *,
        combiner: Combiner | str | None = None,
        index: Index | str | None = None,
        settings: SearchSettings | None = None,
        batch_size: int = 32,
        device: str = "auto",
        dtype: str = "auto",
        source_language: str | None = None,
        target_language: str | None = None,
        source_prefix: str = "",
        piece_tokens: int | None = PIECE_TOKENS,
        glossary: Glossary | str | os.PathLike[str] | None = None,
    ) -> None:
        if piece_tokens is not None and piece_tokens < 2:
            raise UsageError(f"Invalid piece_tokens {piece_tokens}: give 2 or more, or None.")
        if batch_size < 1:
            raise UsageError(f"Invalid batch size {batch_size}: give 1 or more.")
        opened = open_memories(memory)
        if isinstance(model, BaseModel):
            model.check_languages(source_language, target_language)
            self.model = model
        else:
            self.model = load_model_for(
                opened[0][0].identity if opened else None,
                model,
                device=device,
                dtype=dtype,
                source_language=source_language,
                target_language=target_language,
                source_prefix=source_prefix,
            )
        self.loaded_memories = [
            LoadedMemory(found, self.model, combiner=combiner, index=index, weight=weight) for found, weight in opened
        ]
        self._scorer = self._combine([loaded.scorer for loaded in self.loaded_memories])
        self.settings = settings or SearchSettings()
        self.batch_size = batch_size
        self.piece_tokens = piece_tokens
        self.work = Work()
        self._searcher = BeamSearcher(self.model)
        self._term_searcher = TermSearcher(self.model)
        self._matchers: dict[int, TermMatcher] = {}
        self.glossary = self._load_glossary(glossary)

    @property
    def scorer(self) -> Scorer:
        """The scorer over all memories, in the state of the last `refresh`."""
        return self._scorer

    @property
    def memories(self) -> list[Memory]:
        """The memories, in the state of the last `refresh`."""
        return [loaded.memory for loaded in self.loaded_memories]

    def refresh(self) -> None:
        """Load what was added to the memories or removed from them; every batch begins with it."""
        changed = [loaded.refresh() for loaded in self.loaded_memories]
        if any(changed):
            self._scorer = self._combine([loaded.scorer for loaded in self.loaded_memories])

    def scorer_with(self, combiner: Combiner | str) -> Scorer:
        """Return a scorer over the same memories with another combiner, or each memory's own of this name.

        Args:
            combiner: A combiner, or the name of one that each memory stores.
        """
        return self._combine([loaded.scorer_with(combiner) for loaded in self.loaded_memories])

    def _load_glossary(self, given: Glossary | str | os.PathLike[str] | None) -> Glossary | None:
        """Open a glossary, and check that it is for the languages of the model."""
        tokens = self.model.tokens
        if given is None or isinstance(given, Glossary):
            glossary = given
        else:
            glossary = load_glossary(given, tokens.source_language or "de", tokens.target_language or "en")
        if glossary is not None:
            glossary.check_languages(tokens.source_language, tokens.target_language)
        return glossary

    def _matcher_of(self, given: Glossary | None) -> TermMatcher | None:
        """Return the matcher of a glossary, or of the translator's own; it is made once."""
        glossary = self.glossary if given is None else self._load_glossary(given)
        if glossary is None or not len(glossary):
            return None
        matcher = self._matchers.get(id(glossary))
        if matcher is None:
            while len(self._matchers) >= _MAX_MATCHERS:
                self._matchers.pop(next(iter(self._matchers)))
            # The matcher holds the glossary, so that its id stays in use.
            matcher = self._matchers[id(glossary)] = TermMatcher(glossary)
        return matcher

    def _combine(self, scorers: Sequence[Scorer]) -> Scorer:
        return combine_scorers(scorers, [loaded.weight for loaded in self.loaded_memories])

    def translate(
        self,
        texts: Iterable[str],
        *,
        prefixes: Sequence[str] | None = None,
        scorer: Scorer | None = None,
        glossary: Glossary | None = None,
        check: Check = never_stop,
    ) -> list[str]:
        """Translate texts.

        Args:
            texts: Source texts, each one line; line breaks count as spaces.
            prefixes: The beginning that each translation is forced to have, "" for none.
            scorer: Another scorer than `self.scorer`; `BaseScorer()` for the base model alone. The memories are not
                refreshed then.
            glossary: Another glossary than `self.glossary`.
            check: Called before every decoding step, in this thread; an exception that it raises ends the work.

        Returns:
            One translation for each text, in order; "" for a blank text.

        Raises:
            UsageError: If there are not as many prefixes as texts, or a prefix is too long for the model.

        Examples:
            >>> translator = Translator(device="cpu")
            >>> translator.translate(["Guten Morgen.", ""])
            ['Good morning.', '']
            >>> translator.translate(["Guten Morgen."], prefixes=["Hello"])[0].startswith("Hello")
            True

        The base model of a translator with a memory:

        Examples:
            >>> from ibidem.decode import BaseScorer
            >>> translator.translate(["Guten Morgen."], scorer=BaseScorer())
            ['Good morning.']

        With a glossary:

        Examples:
            >>> from ibidem.glossary import Entry, Glossary
            >>> glossary = Glossary("app", "de", "en", [Entry("Mandant", ("tenant",))])
            >>> translator.translate(["Der Mandant wurde gelöscht."], glossary=glossary)
            ['The tenant was deleted.']
        """
        found = self.search(list(texts), prefixes=prefixes, scorer=scorer, glossary=glossary, check=check)
        return [self._text(parts) for parts in found]

    def translate_stream(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield one translation for each line, in order; lines are read in windows of some batches.

        Args:
            lines: Source texts; they are read as they are needed.

        Yields:
            The translation of each line; "" for a blank line.
        """
        for window in self.windows(lines):
            yield from self.translate(window)

    def windows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Yield the lines in lists just long enough that sorting each by length fills the batches well.

        With a batch size of 1 every list has one line, so that it is translated before the next is read.

        Args:
            lines: Source texts; they are read as they are needed.
        """
        source = iter(lines)
        size = self.batch_size * _SORTED_BATCHES if self.batch_size > 1 else 1
        while window := list(islice(source, size)):
            yield window

    def alternatives(
        self,
        texts: Sequence[str],
        count: int,
        *,
        prefixes: Sequence[str] | None = None,
        scorer: Scorer | None = None,
        glossary: Glossary | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Find several translations of each text, best first, with their scores.

        Args:
            texts: Source texts.
            count: How many translations to find; the beam is at least as wide. A blank text, or one that is split, has
                only one.
            prefixes: See `translate`.
            scorer: See `translate`.
            glossary: See `translate`.
        """
        settings = replace(self.settings, n_best=count, beam=max(count, self.settings.beam))
        found = self.search(texts, prefixes=prefixes, settings=settings, scorer=scorer, glossary=glossary)
        return [
            [(self.model.tokens.decode(best.tokens), best.score) for best in parts[0]]
            if len(parts) == 1
            else [(self._text(parts), sum(part[0].score for part in parts))]
            for parts in found
        ]

    def explain(
        self,
        texts: Iterable[str],
        *,
        prefixes: Sequence[str] | None = None,
        scorer: Scorer | None = None,
        glossary: Glossary | None = None,
        check: Check = never_stop,
    ) -> list[Explanation]:
        """Translate texts as `translate` does, and explain every word of the translations.

        An explanation costs one more forward pass of the model.

        Args:
            texts: Source texts.
            prefixes: See `translate`.
            scorer: See `translate`.
            glossary: See `translate`.
            check: See `translate`.

        Returns:
            An explanation for each text: the translation, and for every word and token the weights and probabilities of
            base model and memories, and the neighbours with the sentence pairs that they come from; and the terms of
            the glossary.

        Examples:
            >>> explanation = Translator(device="cpu").explain(["Guten Morgen."])[0]
            >>> explanation.translation
            'Good morning.'
            >>> [word.text for word in explanation.words]
            ['Good', 'morning.', '']
            >>> explanation.words[0].summary
            'from the base model: no neighbour'
        """
        given = list(texts)
        found = self.search(given, prefixes=prefixes, scorer=scorer, glossary=glossary, check=check)
        return self.explain_found(given, found, scorer=scorer, check=check)

    def explain_found(
        self,
        texts: Sequence[str],
        found: Sequence[list[list[Hypothesis]]],
        *,
        scorer: Scorer | None = None,
        check: Check = never_stop,
    ) -> list[Explanation]:
        """Explain the best hypotheses that `search` found for these texts with the same scorer.

        Args:
            texts: The source texts.
            found: The result of `search` for these texts.
            scorer: The scorer that was given to `search`.
            check: See `translate`.

        Returns:
            An explanation for each text.
        """
        parts = [
            [Part(piece.ids, hypotheses[0]) for piece, hypotheses in zip(pieces, hypotheses_of_text, strict=True)]
            for pieces, hypotheses_of_text in zip(self.split(texts), found, strict=True)
        ]
        return explain(self.model, scorer or self.scorer, texts, parts, self.batch_size, check)

    def search(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        settings: SearchSettings | None = None,
        scorer: Scorer | None = None,
        glossary: Glossary | None = None,
        check: Check = never_stop,
    ) -> list[list[list[Hypothesis]]]:
        """Find the best hypotheses of texts.

        Args:
            texts: Source texts.
            prefixes: See `translate`.
            settings: Other settings than `self.settings`.
            scorer: See `translate`.
            glossary: See `translate`.
            check: See `translate`.

        Returns:
            For each text the hypotheses of each of its pieces, best first; a blank text has no pieces.
        """
        pieces = self.split(texts)
        flat = [piece.ids for pieces_of_text in pieces for piece in pieces_of_text]
        forced = None if prefixes is None else self._encode_prefixes(pieces, prefixes)
        found = self._search_sorted(flat, forced, settings or self.settings, scorer, check)
        matcher = self._matcher_of(glossary)
        if matcher is not None:
            sentences = [piece for pieces_of_text in pieces for piece in pieces_of_text]
            found = self._use_terms(sentences, found, matcher, forced, settings or self.settings, scorer, check)
        hypotheses = iter(found)
        return [[next(hypotheses) for _ in pieces_of_text] for pieces_of_text in pieces]

    def _use_terms(
        self,
        pieces: Sequence[Piece],
        found: Sequence[list[Hypothesis]],
        matcher: TermMatcher,
        prefixes: Sequence[list[int]] | None,
        settings: SearchSettings,
        scorer: Scorer | None,
        check: Check,
    ) -> list[list[Hypothesis]]:
        """Search the pieces again whose translations lack terms of a glossary."""
        started = time.perf_counter()
        results = []
        for number, (piece, hypotheses) in enumerate(zip(pieces, found, strict=True)):
            prefix = () if prefixes is None else prefixes[number]
            best = self._term_searcher(piece, hypotheses, matcher, settings, scorer or self.scorer, prefix, check)
            results.append(best)
            uses = best[0].terms
            self.work.terms += len(uses)
            self.work.forced_terms += sum(use.forced for use in uses)
            self.work.unmet_terms += (UnmetTerm(piece.text, use.entry) for use in uses if not use.is_met)
        del self.work.unmet_terms[:-_MAX_UNMET]
        self.work.seconds += time.perf_counter() - started
        return results

    def split(self, texts: Sequence[str]) -> list[list[Piece]]:
        """Split each text into pieces of at most `piece_tokens` tokens; a blank text has none.

        A piece is split no further: translating the texts of the pieces one by one gives what translating the whole
        text gives.

        Args:
            texts: Source texts; line breaks count as spaces.

        Returns:
            The pieces of each text.
        """
        tokens = self.model.tokens
        clean = [_clean(text) for text in texts]
        pieces: list[list[Piece]] = []
        for text, ids in zip(clean, tokens.encode_sources(clean), strict=True):
            cut = [Piece(text, ids)]
            if len(ids) > self._most_tokens:
                parts = split_text(text, self._fits)
                cut = [Piece(*piece) for piece in zip(parts, tokens.encode_sources(parts), strict=True)]
            # A text such as a lone control character has no token but the end of sentence: nothing to translate.
            pieces.append([piece for piece in cut if piece.text and len(piece.ids) > 1])
        return pieces

    def _encode_prefixes(self, pieces: Sequence[Sequence[Piece]], prefixes: Sequence[str]) -> list[list[int]]:
        """Return the forced tokens of each piece: the prefix of its text for the first piece, none for others."""
        if len(prefixes) != len(pieces):
            raise UsageError(f"{len(pieces)} texts but {len(prefixes)} prefixes: give one prefix for each text.")
        forced: list[list[int]] = []
        for pieces_of_text, prefix in zip(pieces, map(_clean, prefixes), strict=True):
            first = self.model.tokens.encode_targets([prefix])[0][:-1] if prefix else []
            forced += [first if number == 0 else [] for number in range(len(pieces_of_text))]
        return forced

    @property
    def _most_tokens(self) -> int:
        longest = self.model.tokens.max_source_length
        return longest if self.piece_tokens is None else min(self.piece_tokens, longest)

    def _fits(self, text: str) -> bool:
        return len(self.model.tokens.encode_sources([text])[0]) <= self._most_tokens

    def _search_sorted(
        self,
        sources: Sequence[list[int]],
        prefixes: Sequence[list[int]] | None,
        settings: SearchSettings,
        scorer: Scorer | None,
        check: Check,
    ) -> list[list[Hypothesis]]:
        """Search in batches of similar length; the results are in the order of the sources."""
        started = time.perf_counter()
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for first in range(0, len(order), self.batch_size):
            rows = order[first : first + self.batch_size]
            forced = None if prefixes is None else [prefixes[i] for i in rows]
            if scorer is None:
                self.refresh()
            found = self._searcher([sources[i] for i in rows], settings, scorer or self.scorer, forced, check)
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = hypotheses
                self.work.tokens += len(hypotheses[0].tokens) + 1
        self.work.sentences += len(sources)
        self.work.seconds += time.perf_counter() - started
        return results

    def _text(self, parts: list[list[Hypothesis]]) -> str:
        return " ".join(self.model.tokens.decode(hypotheses[0].tokens) for hypotheses in parts)


def _clean(text: str) -> str:
    """Turn a text into one line of valid Unicode: lone surrogates become U+FFFD, line breaks spaces."""
    return " ".join(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").split())


def translate_document(
    translator: Translator,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | BinaryIO,
    *,
    format: str | None = None,
    settings: FillSettings | None = None,
    mark_fuzzy: bool = True,
    progress: Progress = silent,
) -> FillReport:
    """Write a document with the translations that it lacks.

    Args:
        translator: The translator.
        path: The document; "-" for standard input.
        output: The path to write to, which may be that of the document, or an open binary file.
        format: The format of the document; by default that of its extension.
        settings: Which segments to translate, and how.
        mark_fuzzy: Whether to mark the translations in a PO file as fuzzy.
        progress: Called as the work proceeds.

    Returns:
        What was translated, kept and lost.

    Raises:
        UsageError: If the model does not state its languages.
        TextError: If the document cannot be read, or names other languages than the model's.

    Examples:
        >>> report = translate_document(Translator(memory="memories/it"), "de.xlf", "en.xlf")  # doctest: +SKIP
    """
    source, target = translator.model.tokens.source_language, translator.model.tokens.target_language
    if source is None or target is None:
        raise UsageError(
            f"The model {translator.model.name} does not name its languages: set them with "
            "--source-language and --target-language."
        )
    document = open_document(path, format=format, source_language=source, target_language=target, mark_fuzzy=mark_fuzzy)
    check_languages(document, source, target)
    with ExitStack() as stack:
        # The output is opened first, so that a missing folder is reported before the work and not after it.
        file = stack.enter_context(open_output(output)) if isinstance(output, str | os.PathLike) else output
        targets, report = fill(document, translator.translate, settings, progress=progress)
        file.writelines(document.write(targets))
    return report
