"""The base models and the memories of a server: translates pieces of texts with any selection of the memories."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ibidem.decode import (
    Translator,
    combine_scorers,
    encode_sources,
    join_confidences,
    missing_shards,
    never_stop,
)
from ibidem.errors import IbidemError, UsageError
from ibidem.serve.http_error import HttpError
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ibidem.decode import Check, Explanation, Hypothesis, LoadedMemory, Splitting, TextLayout
    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.serve.request import RequestOptions

# Source and target language.
Pair: TypeAlias = tuple[str, str]

# Largest cost of a batch on a CPU (see `batcher.decoding_cost`). On a GPU a step takes as long for many lines as for
# few.
_CPU_BUDGET = 1_024.0


class PieceTranslation(NamedTuple):
    """The translation of one piece of a text.

    Attributes:
        translation: The best translation.
        alternatives: Further translations, best first.
        explanation: The explanation, if the request has the option `explain`.
        confidence: The probability that the best translation needs no edit; None if it is unknown.
        vectors: The source vector for each memory, if the request has the option `with_vectors`.
        missing_shards: The shards of a memory, from 1, that some step of the search had no answer of.
    """

    translation: str
    alternatives: tuple[str, ...] = ()
    explanation: Explanation | None = None
    confidence: float | None = None
    vectors: Mapping[str, NDArray[np.int8]] = {}
    missing_shards: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Direction:
    """One pair of languages with its base model.

    Attributes:
        translator: Has no memories and no glossary of its own: every batch has a selection of them.
        splitting: Where texts are split.
    """

    translator: Translator
    splitting: Splitting


class Engine:
    """Splits texts, and translates their pieces with any selection of the memories of a pair of languages.

    Only one thread may call `translate`.

    Args:
        translator: Provides the base model, the loaded memories and the search settings of the default pair.
        others: Translators of further pairs of languages.

    Attributes:
        pairs: Source and target languages, as two-letter codes where there are some; the default pair first.
        source: The source language of the default pair.
        target: The target language of the default pair.
        memories: The loaded memories of all pairs by name.
        glossary: The glossary of requests that do not name one; None for none.
        glossary_pair: The languages of this glossary.
        splitting: Where texts of the default pair are split.

    Raises:
        UsageError: A model does not name its languages, two models have the same languages, or two memories have
            folders of the same name.
    """

    def __init__(self, translator: Translator, *others: Translator) -> None:
        self._directions: dict[Pair, _Direction] = {}
        self.memories: dict[str, LoadedMemory] = {}
        self._pairs_of_memories: dict[str, Pair] = {}
        self._in_use: frozenset[str] = frozenset()
        self._batch = threading.Condition()
        for one in (translator, *others):
            self._add(one)
        self.pairs = tuple(self._directions)
        self.source, self.target = self.pairs[0]
        with_glossary = [one for one in (translator, *others) if one.glossary is not None]
        self.glossary = with_glossary[0].glossary if with_glossary else None
        self.glossary_pair = _languages(with_glossary[0] if with_glossary else translator)
        self.splitting = translator.splitting

    def _add(self, translator: Translator) -> None:
        pair = _languages(translator)
        if pair in self._directions:
            raise UsageError(
                f"Two models translate from {pair[0]} to {pair[1]}: a server has one model for each pair of languages."
            )
        plain = Translator(
            translator.model,
            settings=translator.settings,
            batch_size=translator.batch_size,
            split="off",  # the pieces that it receives were split before
            piece_tokens=translator.piece_tokens,
        )
        self._directions[pair] = _Direction(plain, translator.splitting)
        for loaded in translator.loaded_memories:
            # Not `resolve`: the folder of a replica is a link, which changes.
            name = Path(os.path.abspath(loaded.memory.path)).name  # noqa: PTH100
            if name in self.memories:
                raise UsageError(
                    "Two memories have folders of the same name, which clients use as their name: rename one."
                )
            self.memories[name] = loaded
            self._pairs_of_memories[name] = pair

    @property
    def model(self) -> BaseModel:
        """The base model of the default pair."""
        return self.model_for(self.pairs[0])

    def model_for(self, pair: Pair) -> BaseModel:
        """Return the base model of a pair of languages.

        Args:
            pair: One of `pairs`.
        """
        return self._directions[pair].translator.model

    def pair_of(self, memory: str) -> Pair:
        """Return the languages of a memory.

        Args:
            memory: Its name.
        """
        return self._pairs_of_memories.get(memory, self.pairs[0])

    def pair_for(self, memory: Memory) -> Pair:
        """Return the pair of languages that a memory is for; the default pair if it names no languages of the server.

        Args:
            memory: The memory, loaded or not.
        """
        identity = memory.identity
        pair = primary_language(identity.source_language or ""), primary_language(identity.target_language or "")
        return pair if pair in self._directions else self.pairs[0]

    def model_of(self, memory: Memory) -> BaseModel:
        """Return the base model for the languages of a memory.

        Args:
            memory: The memory, loaded or not.
        """
        return self.model_for(self.pair_for(memory))

    @property
    def batch_size(self) -> int:
        """Largest number of pieces of a batch."""
        return min(direction.translator.batch_size for direction in self._directions.values())

    @property
    def budget(self) -> float:
        """Largest cost of a batch, see `batcher.decoding_cost`."""
        return _CPU_BUDGET if self.model.device.type == "cpu" else math.inf

    @property
    def default_weights(self) -> dict[str, float]:
        """The weights of all memories by name."""
        return {name: loaded.weight for name, loaded in self.memories.items()}

    @property
    def names_by_folder(self) -> dict[str, str]:
        """The names of the memories by folder."""
        return {str(loaded.memory.path): name for name, loaded in self.memories.items()}

    def attach(self, name: str, loaded: LoadedMemory) -> None:
        """Add a memory; the next request can use it.

        Args:
            name: Its name.
            loaded: The memory.
        """
        self._pairs_of_memories = {**self._pairs_of_memories, name: self.pair_for(loaded.memory)}
        self.memories = {**self.memories, name: loaded}  # other threads iterate over the old dictionary

    def detach(self, name: str) -> LoadedMemory:
        """Remove a memory, and wait for the batch that uses it, so that its folder can be moved afterwards.

        Args:
            name: Its name.

        Returns:
            The memory.
        """
        memories = dict(self.memories)
        loaded = memories.pop(name)
        self.memories = memories
        with self._batch:
            self._batch.wait_for(lambda: name not in self._in_use)
        return loaded

    def split(self, texts: Sequence[str], options: RequestOptions, splitting: Splitting | None) -> list[TextLayout]:
        """Split texts into pieces that are translated separately; any thread may call this.

        Args:
            texts: Texts of any number of lines.
            options: The languages and memories, which may keep lines whole (see `Translator.split`).
            splitting: Where to split; None for the setting of the server.

        Returns:
            The pieces of each text, and what stands between them.
        """
        direction = self._directions[options.pair or self.pairs[0]]
        # A pair that was just added counts: the decoding thread has not loaded it yet.
        with self.open_newest([name for name, _ in options.memories]) as memories:
            return direction.translator.split(texts, mode=splitting or direction.splitting, memories=memories)

    @contextlib.contextmanager
    def open_newest(self, names: Sequence[str]) -> Iterator[list[Memory]]:
        """Provide the newest state of some memories, which may be moved meanwhile; any thread may call this.

        Args:
            names: The names of the memories.

        Yields:
            The memories, with all files open.

        Raises:
            HttpError: 404, a memory was renamed or deleted since the request arrived.
        """
        loaded = self._find(names)
        try:
            yield [one.memory.pinned() for one in loaded]
        except IbidemError:
            self._find(names)
            raise

    def translate(
        self, options: RequestOptions, pieces: Sequence[str], check: Check = never_stop
    ) -> list[PieceTranslation]:
        """Translate pieces of texts.

        Args:
            options: The memories and the outputs.
            pieces: The texts of the pieces.
            check: Called before every decoding step; it may raise an exception to end the work.

        Returns:
            One translation for each piece.
        """
        names = [name for name, _ in options.memories]
        with self._batch:
            loaded = self._find(names)
            self._in_use = frozenset(names)
        try:
            return self._translate(options, loaded, pieces, check)
        finally:
            with self._batch:
                self._in_use = frozenset()
                self._batch.notify_all()

    def _translate(
        self, options: RequestOptions, loaded: Sequence[LoadedMemory], pieces: Sequence[str], check: Check
    ) -> list[PieceTranslation]:
        translator = self._directions[options.pair or self.pairs[0]].translator
        for one in loaded:
            one.refresh()
        scorer = combine_scorers([one.scorer for one in loaded], [weight for _, weight in options.memories])
        settings = translator.settings
        count = options.alternatives + 1
        if count > 1:
            settings = replace(settings, n_best=count, beam=max(count, settings.beam))
        layouts = translator.split(pieces, memories=())
        found = translator.search(layouts, settings=settings, check=check, scorer=scorer, glossary=options.glossary)
        explanations: Sequence[Explanation | None] = [None] * len(pieces)
        if options.explain:
            explanations = translator.explain_found(layouts, found, check=check, scorer=scorer)
        texts = [_decode_hypotheses(translator.model, parts) for parts in found]
        confidences = translator.estimator.estimate(scorer, layouts, found, check)
        vectors: dict[str, NDArray[np.int8]] = {}
        if options.with_vectors:
            memories = {name: one.memory for (name, _), one in zip(options.memories, loaded, strict=True)}
            vectors = encode_sources(translator.model, memories, [layout.pieces[0] for layout in layouts])
        return [
            PieceTranslation(
                best,
                tuple(others),
                explanations[number],
                join_confidences(confidences[number]),
                {name: of_memory[number] for name, of_memory in vectors.items()},
                missing_shards(found[number]),
            )
            for number, (best, *others) in enumerate(texts)
        ]

    def _find(self, names: Sequence[str]) -> list[LoadedMemory]:
        """Return memories by their names, which may have been renamed or deleted since the request arrived."""
        present = self.memories
        missing = next((name for name in names if name not in present), None)
        if missing is not None:
            raise HttpError(404, f"There is no memory {missing[:40]} any more: it was renamed or deleted.")
        return [present[name] for name in names]


def _languages(translator: Translator) -> Pair:
    """Return the languages of a translator, without regions."""
    source, target = translator.model.tokens.source_language, translator.model.tokens.target_language
    if not source or not target:
        raise UsageError(
            f"The model {translator.model.name} does not specify its languages: set --source-language and "
            "--target-language."
        )
    return primary_language(source), primary_language(target)


def _decode_hypotheses(model: BaseModel, parts: list[list[Hypothesis]]) -> list[str]:
    """Return the distinct translations of a piece, best first."""
    return list(dict.fromkeys(model.tokens.decode(hypothesis.tokens) for hypothesis in parts[0]))
