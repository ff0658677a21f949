"""Text in, text out: what people call to translate."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from ibidem.decode.explaining import Part, explain
from ibidem.decode.mounts import Given, LoadedMemory, join_scorers, open_memories
from ibidem.decode.search import SearchSettings, never_stop
from ibidem.decode.searcher import BeamSearcher
from ibidem.decode.splitting import PIECE_TOKENS, Piece, split_text
from ibidem.errors import UsageError
from ibidem.model import BaseModel, load_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ibidem.combine import Combiner
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.explanation import Explanation
    from ibidem.decode.scoring import Scorer
    from ibidem.decode.search import Check
    from ibidem.memory import Memory
    from ibidem.retrieve import Index

# Batches of one length waste no padding: lines are sorted over this many batches, and answered in order.
_SORTED_BATCHES = 16


@dataclass
class Work:
    """What a translator has done so far: sentences, tokens of the best hypotheses with their ends, seconds."""

    sentences: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Translator:
    """Translates with a base model and, if there are any, memories.

    Memories are followed: what is added to them or removed from them, by any thread or process, counts from the next
    batch on. One thread translates; `ibidem.learn.Scribe` adds and removes in others.

    >>> translator = Translator(memory="memories/it")        # doctest: +SKIP
    >>> translator.translate(["Zwischenablage einfügen"])    # doctest: +SKIP
    >>> Translator(memory=["memories/it", ("memories/client", 2)])    # doctest: +SKIP
    """

    def __init__(
        self,
        model: BaseModel | str | Path | None = None,
        memory: Given | None = None,
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
    ) -> None:
        """Load the model (the memory's own where none is named, else the shipped one) and mount the memory.

        `memory` is a memory or its folder, or a list of them, each alone or in a tuple with its weight (else 1).
        A named combiner or index setting is every memory's own of that name. A text of more than `piece_tokens` source
        tokens, or than the model reads, is split and translated in pieces; None: only the model's own limit counts.
        Raises UsageError or ModelError for a language that the model does not have, and MismatchError for one that
        differs from a memory's.
        """
        if piece_tokens is not None and piece_tokens < 2:
            raise UsageError(f"Pieces of {piece_tokens} tokens hold no text: give 2 or more, or None.")
        if batch_size < 1:
            raise UsageError(f"A batch of {batch_size} sentences cannot be translated: use 1 or more.")
        opened = open_memories(memory)
        if isinstance(model, BaseModel):
            model.check_languages(source_language, target_language)
            self.model = model
        else:
            identity = opened[0][0].identity if opened else None
            self.model = load_model(
                model if model is not None or identity is None else identity.name,
                device=device,
                dtype=dtype,
                source_language=source_language or (identity.source_language if identity else None),
                target_language=target_language or (identity.target_language if identity else None),
                source_prefix=source_prefix or (identity.source_prefix if identity else ""),
            )
        self.mounts = [
            LoadedMemory(found, self.model, combiner=combiner, index=index, share=share) for found, share in opened
        ]
        self.scorer: Scorer = self._join()
        self._own_scorer = self.scorer
        self.settings = settings or SearchSettings()
        self.batch_size = batch_size
        self.piece_tokens = piece_tokens
        self.work = Work()
        self._searcher = BeamSearcher(self.model)

    def refresh(self) -> None:
        """Take up what was added to the memories, or removed from them, by anybody; called before every batch.

        A scorer that somebody else has put in place stays.
        """
        changed = [mount.refresh() for mount in self.mounts]
        if any(changed) and self.scorer is self._own_scorer:
            self.scorer = self._own_scorer = self._join()

    def _join(self) -> Scorer:
        return join_scorers([mount.scorer for mount in self.mounts], self.mounts)

    @property
    def memories(self) -> list[Memory]:
        """The memories that are mounted, as they are used now."""
        return [mount.memory for mount in self.mounts]

    def scorer_with(self, combiner: Combiner | str) -> Scorer:
        """A scorer over the same memories with another combiner."""
        return join_scorers([mount.scorer_with(combiner) for mount in self.mounts], self.mounts)

    def translate(
        self, texts: Iterable[str], *, prefixes: Sequence[str] | None = None, check: Check = never_stop
    ) -> list[str]:
        """One translation for each text, in order; prefixes are beginnings of the translations, forced.

        check: is called before every decoding step, in this thread; what it raises ends the work and is raised here.
        """
        found = self.search(list(texts), prefixes=prefixes, check=check)
        return [self._text(parts) for parts in found]

    def translate_stream(self, lines: Iterable[str]) -> Iterator[str]:
        """One translation for each line, as many lines ahead as fill some batches."""
        for window in self.windows(lines):
            yield from self.translate(window)

    def windows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The lines in lists just long enough that sorting each by length fills the batches well.

        With batches of one there is nothing to fill, and each line is answered before the next is read.
        """
        source = iter(lines)
        size = self.batch_size * _SORTED_BATCHES if self.batch_size > 1 else 1
        while window := list(islice(source, size)):
            yield window

    def alternatives(
        self, texts: Sequence[str], count: int, *, prefixes: Sequence[str] | None = None
    ) -> list[list[tuple[str, float]]]:
        """For each text its best translations with their scores; a blank or a split one has one only."""
        settings = replace(self.settings, n_best=count, beam=max(count, self.settings.beam))
        found = self.search(texts, prefixes=prefixes, settings=settings)
        return [
            [(self.model.tokens.decode(best.tokens), best.score) for best in parts[0]]
            if len(parts) == 1
            else [(self._text(parts), sum(part[0].score for part in parts))]
            for parts in found
        ]

    def explain(
        self, texts: Iterable[str], *, prefixes: Sequence[str] | None = None, check: Check = never_stop
    ) -> list[Explanation]:
        """Translate each text as `translate` does, and say for every word who decided on it.

        What was found is forced through the model once more: one forward pass, and nothing while it is not asked for.
        """
        given = list(texts)
        return self.explain_found(given, self.search(given, prefixes=prefixes, check=check), check=check)

    def explain_found(
        self, texts: Sequence[str], found: Sequence[list[list[Hypothesis]]], *, check: Check = never_stop
    ) -> list[Explanation]:
        """Explain the best hypotheses that `search` found for these texts."""
        parts = [
            [Part(piece.ids, hypotheses[0]) for piece, hypotheses in zip(pieces, hypotheses_of_text, strict=True)]
            for pieces, hypotheses_of_text in zip(self.split(texts), found, strict=True)
        ]
        return explain(self.model, self.scorer, texts, parts, self.batch_size, check)

    def search(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        settings: SearchSettings | None = None,
        check: Check = never_stop,
    ) -> list[list[list[Hypothesis]]]:
        """For each text the hypotheses of each of its parts: none for a blank text, one part unless it is long."""
        pieces = self.split(texts)
        flat = [piece.ids for pieces_of_text in pieces for piece in pieces_of_text]
        forced = None if prefixes is None else self._force(pieces, prefixes)
        hypotheses = iter(self._search_sorted(flat, forced, settings or self.settings, check))
        return [[next(hypotheses) for _ in pieces_of_text] for pieces_of_text in pieces]

    def split(self, texts: Sequence[str]) -> list[list[Piece]]:
        """Split each text into pieces of at most `piece_tokens` tokens; a blank text has none.

        A piece is split no further: translating the texts of the pieces one by one gives what translating the whole
        text gives.
        """
        tokens = self.model.tokens
        clean = [_clean(text) for text in texts]
        pieces: list[list[Piece]] = []
        for text, ids in zip(clean, tokens.encode_sources(clean), strict=True):
            cut = [Piece(text, ids)]
            if len(ids) > self._most_tokens:
                parts = split_text(text, self._fits)
                cut = [Piece(*piece) for piece in zip(parts, tokens.encode_sources(parts), strict=True)]
            # With no token but the end of sentence there is nothing to translate, such as in a lone control character.
            pieces.append([piece for piece in cut if piece.text and len(piece.ids) > 1])
        return pieces

    def _force(self, pieces: Sequence[Sequence[Piece]], prefixes: Sequence[str]) -> list[list[int]]:
        """The tokens that the translation of each piece begins with: the prefix of its text for the first one."""
        if len(prefixes) != len(pieces):
            raise UsageError(f"{len(pieces)} texts but {len(prefixes)} prefixes: give one prefix for each text.")
        forced: list[list[int]] = []
        for pieces_of_text, prefix in zip(pieces, map(_clean, prefixes), strict=True):
            first = self.model.tokens.encode_targets([prefix])[0][:-1] if prefix else []
            forced += [first if number == 0 else [] for number in range(len(pieces_of_text))]
        return forced

    @property
    def _most_tokens(self) -> int:
        longest = self.model.tokens.longest_source
        return longest if self.piece_tokens is None else min(self.piece_tokens, longest)

    def _fits(self, text: str) -> bool:
        return len(self.model.tokens.encode_sources([text])[0]) <= self._most_tokens

    def _search_sorted(
        self,
        sources: Sequence[list[int]],
        prefixes: Sequence[list[int]] | None,
        settings: SearchSettings,
        check: Check,
    ) -> list[list[Hypothesis]]:
        """Search in batches of similar length; results in the order of the sources."""
        started = time.perf_counter()
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        results: list[list[Hypothesis]] = [[] for _ in sources]
        for first in range(0, len(order), self.batch_size):
            rows = order[first : first + self.batch_size]
            forced = None if prefixes is None else [prefixes[i] for i in rows]
            self.refresh()
            found = self._searcher([sources[i] for i in rows], settings, self.scorer, forced, check)
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = hypotheses
                self.work.tokens += len(hypotheses[0].tokens) + 1
        self.work.sentences += len(sources)
        self.work.seconds += time.perf_counter() - started
        return results

    def _text(self, parts: list[list[Hypothesis]]) -> str:
        return " ".join(self.model.tokens.decode(hypotheses[0].tokens) for hypotheses in parts)


def _clean(text: str) -> str:
    """One line of valid Unicode: lone surrogates become U+FFFD, line breaks spaces."""
    return " ".join(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").split())
