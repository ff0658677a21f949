"""Translation of texts and documents with a base model and memories."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ibidem.decode.assessment import rank_translations, warn_of_suspicious
from ibidem.decode.beam_search import BeamSearcher, SearchSettings, never_stop
from ibidem.decode.beams import mark_missing
from ibidem.decode.confidence import ConfidenceEstimator
from ibidem.decode.explain import explain
from ibidem.decode.loaded_memory import (
    LoadedMemory,
    MemoryArgument,
    choose_divided,
    load_model_for,
    open_memories,
    prepare_meanwhile,
    verify_meanwhile,
)
from ibidem.decode.scorer import combine_scorers
from ibidem.decode.term_search import TermSearcher
from ibidem.decode.text_splitter import PIECE_TOKENS, Splitting, TextLayout, check_splitting, clean, split_texts
from ibidem.errors import UsageError
from ibidem.glossary import Glossary, TermMatcher, load_glossary
from ibidem.model import BaseModel, resolve_device
from ibidem.retrieve import noted_missing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ibidem.combine import Combiner
    from ibidem.decode.beam_search import Check
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.explain import Explanation
    from ibidem.decode.scorer import Scorer
    from ibidem.decode.text_splitter import Piece
    from ibidem.glossary import Entry
    from ibidem.memory import Memory
    from ibidem.retrieve import Index
    from ibidem.retrieve.sharded import ShardSettings

# (number of a text from 0, message)
Warn: TypeAlias = Callable[[int, str], None]

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

    The translator follows its memories: pairs that any thread or process adds or removes count from the next call on.
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
        split: "sentences" translates the lines and sentences of a text one by one, and keeps the white space between
            them; "nonewlines" splits at ends of sentences only; "off" splits only a text that is too long. A line that
            is the source of a pair of a memory is not split, nor is one like a source of as many sentences, nor one of
            at most 35 source tokens if at least 10 % of the sources have as many sentences.
        piece_tokens: A sentence of more source tokens than this, or than the model reads, is cut into pieces; None for
            the model's limit only.
        glossary: A glossary, or its file (.glossary, CSV, TSV, TBX): the terms that translations must contain.
        shards: Addresses of `ibidem shard` (HOST:PORT or unix:PATH), or settings with them: the index of the memory is
            searched there. None searches all memories in this process.

    Attributes:
        model: The base model.
        glossary: The glossary; None without one.
        loaded_memories: The loaded memories.
        settings: The settings of the beam search.
        batch_size: How many sentences are translated at once.
        splitting: Where texts are split.
        piece_tokens: The most source tokens of a piece.
        work: The work done so far.
        estimator: Estimates the confidence of translations.

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
        split: Splitting = "sentences",
        piece_tokens: int | None = PIECE_TOKENS,
        glossary: Glossary | str | os.PathLike[str] | None = None,
        shards: ShardSettings | str | Sequence[str] | None = None,
    ) -> None:
        if piece_tokens is not None and piece_tokens < 2:
            raise UsageError(f"Invalid piece_tokens {piece_tokens}: give 2 or more, or None.")
        if batch_size < 1:
            raise UsageError(f"Invalid batch size {batch_size}: give 1 or more.")
        self.splitting = check_splitting(split)
        opened = open_memories(memory)
        served, divided = choose_divided(opened, shards)
        if isinstance(model, BaseModel):
            model.check_languages(source_language, target_language)
            self.model = model
        else:
            on_cpu = index is None and resolve_device(device).type == "cpu"  # elsewhere the stored index is not used
            with verify_meanwhile([found for found, _ in opened] if on_cpu else []):
                self.model = load_model_for(
                    opened[0][0].identity if opened else None,
                    model,
                    device=device,
                    dtype=dtype,
                    source_language=source_language,
                    target_language=target_language,
                    source_prefix=source_prefix,
                )
        with prepare_meanwhile(self.model, wanted=bool(opened)):
            self.loaded_memories = [
                LoadedMemory(
                    found,
                    self.model,
                    combiner=combiner,
                    index=index,
                    weight=weight,
                    shards=served if found is divided else None,
                )
                for found, weight in opened
            ]
        self._scorer = self._combine([loaded.scorer for loaded in self.loaded_memories])
        self.settings = settings or SearchSettings()
        self.batch_size = batch_size
        self.piece_tokens = piece_tokens
        self.work = Work()
        self._searcher = BeamSearcher(self.model)
        self._term_searcher = TermSearcher(self.model)
        self.estimator = ConfidenceEstimator(self.model)
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
        """Load what was added to the memories or removed from them; `split` and `search` begin with it."""
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
        warn: Warn | None = None,
    ) -> list[str]:
        """Translate texts.

        Args:
            texts: Source texts of any number of lines and sentences.
            prefixes: The beginning that each translation is forced to have, "" for none. A text with one is not split
                into sentences.
            scorer: Another scorer than `self.scorer`; `BaseScorer()` for the base model alone. The memories are not
                refreshed then.
            glossary: Another glossary than `self.glossary`.
            check: Called before every decoding step, in this thread; an exception that it raises ends the work.
            warn: Called with the number of a text, from 0, and a message for each suspicious translation (see
                `check_translation`).

        Returns:
            One translation for each text, in order, with the line breaks and the white space of the text.

        Raises:
            UsageError: If there are not as many prefixes as texts, or a prefix is too long for the model.

        Examples:
            >>> translator = Translator(device="cpu")
            >>> translator.translate(["Guten Morgen.", ""])
            ['Good morning.', '']
            >>> translator.translate(["Guten Morgen.\\n\\nDie Datei ist leer.  Guten Morgen."])
            ['Good morning.\\n\\nThe file is empty.  Good morning.']
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
        layouts = self.split(list(texts), prefixes=prefixes, scorer=scorer)
        found = self.search(layouts, prefixes=prefixes, scorer=scorer, glossary=glossary, check=check)
        translated = []
        for number, (layout, parts) in enumerate(zip(layouts, found, strict=True)):
            translations = self._decode_best(parts)
            if warn is not None:
                warn_of_suspicious(number, layout, translations, warn)
            translated.append(layout.fill(translations)[0])
        return translated

    def translate_stream(self, lines: Iterable[str], warn: Warn | None = None) -> Iterator[str]:
        """Yield one translation for each line, in order; lines are read in windows of some batches.

        Args:
            lines: Source texts; they are read as they are needed.
            warn: See `translate`.

        Yields:
            The translation of each line.
        """
        first = 0
        for window in self.windows(lines):
            shifted = None if warn is None else partial(_warn_shifted, warn, first)
            yield from self.translate(window, warn=shifted)
            first += len(window)

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
        warn: Warn | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Find several translations of each text, best first, with their scores.

        Args:
            texts: Source texts.
            count: How many translations to find; the beam is at least as wide. A blank text has only one. In the n-th
                translation of a text of several sentences, each sentence has its n-th translation.
            prefixes: See `translate`.
            scorer: See `translate`.
            glossary: See `translate`.
            warn: See `translate`; the best translation of each text is checked.

        Returns:
            For each text its translations, each with the sum of the scores of its sentences.
        """
        settings = replace(self.settings, n_best=count, beam=max(count, self.settings.beam))
        layouts = self.split(texts, prefixes=prefixes, scorer=scorer)
        found = self.search(layouts, prefixes=prefixes, settings=settings, scorer=scorer, glossary=glossary)
        listed: list[list[tuple[str, float]]] = []
        for number, (layout, parts) in enumerate(zip(layouts, found, strict=True)):
            if warn is not None:
                warn_of_suspicious(number, layout, self._decode_best(parts), warn)
            listed.append(rank_translations(layout, parts, self.model.tokens.decode))
        return listed

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
        layouts = self.split(list(texts), prefixes=prefixes, scorer=scorer)
        found = self.search(layouts, prefixes=prefixes, scorer=scorer, glossary=glossary, check=check)
        return self.explain_found(layouts, found, scorer=scorer, check=check)

    def explain_found(
        self,
        layouts: Sequence[TextLayout],
        found: Sequence[list[list[Hypothesis]]],
        *,
        scorer: Scorer | None = None,
        check: Check = never_stop,
    ) -> list[Explanation]:
        """Explain the best hypotheses that `search` found for these texts with the same scorer.

        Args:
            layouts: The texts, as `split` returns them.
            found: The result of `search` for them.
            scorer: The scorer that was given to `search`.
            check: See `translate`.

        Returns:
            An explanation for each text.
        """
        hypotheses = [[best for best, *_ in parts] for parts in found]
        return explain(self.model, scorer or self.scorer, layouts, hypotheses, self.batch_size, check)

    def search(
        self,
        layouts: Sequence[TextLayout],
        *,
        prefixes: Sequence[str] | None = None,
        settings: SearchSettings | None = None,
        scorer: Scorer | None = None,
        glossary: Glossary | None = None,
        check: Check = never_stop,
    ) -> list[list[list[Hypothesis]]]:
        """Find the best hypotheses of texts that are split already.

        Args:
            layouts: The texts, as `split` returns them.
            prefixes: See `translate`.
            settings: Other settings than `self.settings`.
            scorer: See `translate`.
            glossary: See `translate`.
            check: See `translate`.

        Returns:
            For each text the hypotheses of each of its pieces, best first.
        """
        pieces = [piece for layout in layouts for piece in layout.pieces]
        forced = None if prefixes is None else self._encode_prefixes(layouts, prefixes)
        chosen = settings or self.settings
        found = self._search_sorted([piece.ids for piece in pieces], forced, chosen, scorer, check)
        matcher = self._matcher_of(glossary)
        if matcher is not None:
            found = self._use_terms(pieces, found, matcher, forced, chosen, scorer, check)
        hypotheses = iter(found)
        return [[next(hypotheses) for _ in layout.pieces] for layout in layouts]

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
            with noted_missing() as missing:
                best = self._term_searcher(piece, hypotheses, matcher, settings, scorer or self.scorer, prefix, check)
            results.append(mark_missing(best, missing.union(hypotheses[0].missing_shards)))
            uses = best[0].terms
            self.work.terms += len(uses)
            self.work.forced_terms += sum(use.forced for use in uses)
            self.work.unmet_terms += (UnmetTerm(piece.text, use.entry) for use in uses if not use.is_met)
        del self.work.unmet_terms[:-_MAX_UNMET]
        self.work.seconds += time.perf_counter() - started
        return results

    def split(
        self,
        texts: Sequence[str],
        *,
        mode: Splitting | None = None,
        prefixes: Sequence[str] | None = None,
        scorer: Scorer | None = None,
        memories: Sequence[Memory] | None = None,
    ) -> list[TextLayout]:
        """Split each text into the pieces that are translated one by one.

        A line of several sentences is one piece if it is the source of a stored pair, so that the translation of the
        pair is found, if it is like a stored source of as many sentences, or if it is short and lines of as many
        sentences are usual in the memories.

        Args:
            texts: Source texts.
            mode: Where to split; None for `self.splitting`.
            prefixes: See `translate`.
            scorer: See `translate`.
            memories: The memories of stored pairs; None for those of the scorer. Any thread may give its own.

        Returns:
            The pieces of each text, and what stands between them. A blank text has no pieces.

        Examples:
            >>> layout = Translator(device="cpu").split(["Eins. Zwei."])[0]
            >>> [piece.text for piece in layout.pieces], layout.gaps
            (['Eins.', 'Zwei.'], ('', ' ', ''))
        """
        chosen = self.splitting if mode is None else mode
        if memories is None:
            if scorer is None:
                self.refresh()
            # A memory is listed once for each of its scorers.
            listed = {id(memory): memory for memory in (scorer or self.scorer).memories if memory is not None}
            memories = list(listed.values())
        modes: list[Splitting] = [
            "off" if prefixes is not None and number < len(prefixes) and prefixes[number].strip() else chosen
            for number in range(len(texts))
        ]
        return split_texts(texts, modes, self.model.tokens, self._most_tokens, memories)

    def _encode_prefixes(self, layouts: Sequence[TextLayout], prefixes: Sequence[str]) -> list[list[int]]:
        """Return the forced tokens of each piece: the prefix of its text for the first piece, none for others."""
        if len(prefixes) != len(layouts):
            raise UsageError(f"{len(layouts)} texts but {len(prefixes)} prefixes: give one prefix for each text.")
        forced: list[list[int]] = []
        for layout, prefix in zip(layouts, map(clean, prefixes), strict=True):
            first = self.model.tokens.encode_targets([prefix])[0][:-1] if prefix else []
            forced += [first if number == 0 else [] for number in range(len(layout.pieces))]
        return forced

    @property
    def _most_tokens(self) -> int:
        longest = self.model.tokens.max_source_length
        return longest if self.piece_tokens is None else min(self.piece_tokens, longest)

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
        if scorer is None:
            # Not before every batch: the evidence of all hypotheses refers to the entries of one state of the memories.
            self.refresh()
        used = scorer or self.scorer
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for first in range(0, len(order), self.batch_size):
            rows = order[first : first + self.batch_size]
            forced = None if prefixes is None else [prefixes[i] for i in rows]
            with noted_missing() as missing:
                found = self._searcher([sources[i] for i in rows], settings, used, forced, check)
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = mark_missing(hypotheses, missing)
                self.work.tokens += len(hypotheses[0].tokens) + 1
        self.work.sentences += len(sources)
        self.work.seconds += time.perf_counter() - started
        return results

    def _decode_best(self, parts: Sequence[list[Hypothesis]]) -> list[str]:
        """Return the best translation of each piece of a text."""
        return [self.model.tokens.decode(hypotheses[0].tokens) for hypotheses in parts]


def _warn_shifted(warn: Warn, first: int, number: int, message: str) -> None:
    warn(first + number, message)
