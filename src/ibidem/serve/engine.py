"""The base models and the memories of a server: translates pieces of texts with any selection of the memories."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ibidem.decode import Translator, combine_scorers, never_stop
from ibidem.errors import UsageError
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import Check, Explanation, Hypothesis, LoadedMemory, Scorer, Splitting, TextLayout
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
    """

    translation: str
    alternatives: tuple[str, ...] = ()
    explanation: Explanation | None = None


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
            name = loaded.memory.path.resolve().name
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

    def models_by_memory(self) -> dict[str, BaseModel]:
        """Return the base model of each memory by the name of the memory."""
        return {name: self.model_for(self.pair_of(name)) for name in self.memories}

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
        """The weights of the memories of the default pair by name."""
        return self.weights_for(self.pairs[0])

    def weights_for(self, pair: Pair) -> dict[str, float]:
        """Return the weights of the memories of a pair of languages by name.

        Args:
            pair: One of `pairs`.
        """
        return {name: loaded.weight for name, loaded in self.memories.items() if self.pair_of(name) == pair}

    @property
    def names_by_folder(self) -> dict[str, str]:
        """The names of the memories by folder."""
        return {str(loaded.memory.path): name for name, loaded in self.memories.items()}

    def split(self, texts: Sequence[str], options: RequestOptions, splitting: Splitting | None) -> list[TextLayout]:
        """Split texts into pieces that are translated separately; any thread may call this.

        Args:
            texts: Texts of any number of lines.
            options: The languages and memories; a line that is the source of one of their pairs is not split.
            splitting: Where to split; None for the setting of the server.

        Returns:
            The pieces of each text, and what stands between them.
        """
        direction = self._directions[options.pair or self.pairs[0]]
        # A pair that was just added counts: the decoding thread has not loaded it yet.
        memories = [self.memories[name].memory.pinned() for name, _ in options.memories]
        return direction.translator.split(texts, mode=splitting or direction.splitting, memories=memories)

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
        translator = self._directions[options.pair or self.pairs[0]].translator
        scorer = self._make_scorer(options.memories)
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
        return [
            PieceTranslation(best, tuple(others), explanation)
            for (best, *others), explanation in zip(texts, explanations, strict=True)
        ]

    def _make_scorer(self, memories: Sequence[tuple[str, float]]) -> Scorer:
        """Make a scorer over the current state of some memories."""
        selected = [self.memories[name] for name, _ in memories]
        for loaded in selected:
            loaded.refresh()
        return combine_scorers([loaded.scorer for loaded in selected], [weight for _, weight in memories])


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
