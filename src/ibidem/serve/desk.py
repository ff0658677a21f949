"""The base model and the memories of a server, by their names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ibidem.decode import Piece, Translator, combine_scorers, join_explanations, never_stop
from ibidem.errors import UsageError
from ibidem.serve.choice import Choice, Line
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode import Check, Explanation, Hypothesis, Scorer
    from ibidem.model import BaseModel


# The most that the lines of a batch cost together on a CPU (see `grouping.cost`): less than a second on one idle core
# with the shipped model. On a GPU a step takes as long for many lines as for few.
_CPU_BUDGET = 1_024.0


class Desk:
    """Translates lines with any choice of the translator's memories; only the decoding thread may translate."""

    def __init__(self, translator: Translator) -> None:
        source, target = translator.model.tokens.source_language, translator.model.tokens.target_language
        if not source or not target:
            raise UsageError(
                f"The model {translator.model.name} does not say which languages it translates: name them with "
                "--source-language and --target-language."
            )
        self.source, self.target = primary_language(source), primary_language(target)
        self.mounts = {mount.memory.path.resolve().name: mount for mount in translator.mounts}
        if len(self.mounts) < len(translator.mounts):
            raise UsageError("Two memories have folders of the same name, by which clients call them: rename one.")
        # It has no memories of its own: every batch gives it a scorer over those that were chosen.
        self._translator = Translator(
            translator.model,
            settings=translator.settings,
            batch_size=translator.batch_size,
            piece_tokens=translator.piece_tokens,
        )

    @property
    def batch_size(self) -> int:
        """Lines that are decoded together."""
        return self._translator.batch_size

    @property
    def budget(self) -> float:
        """The most that the lines of a batch cost together."""
        return _CPU_BUDGET if self.model.device.type == "cpu" else math.inf

    @property
    def model(self) -> BaseModel:
        """The base model."""
        return self._translator.model

    @property
    def folders(self) -> dict[str, str]:
        """The names of the memories by their folders."""
        return {str(mount.memory.path): name for name, mount in self.mounts.items()}

    @property
    def default(self) -> tuple[tuple[str, float], ...]:
        """All memories with the weights that the server was started with."""
        return tuple((name, mount.share) for name, mount in self.mounts.items())

    def split(self, lines: Sequence[str]) -> list[list[Piece]]:
        """Split lines into the pieces that are translated one by one; any thread may call this.

        A line that is not split, or in which there is nothing to translate, is one piece.
        """
        return [
            pieces if len(pieces) > 1 else [Piece(line, [id for piece in pieces for id in piece.ids])]
            for line, pieces in zip(lines, self._translator.split(lines), strict=True)
        ]

    @staticmethod
    def join(line: str, parts: Sequence[Line]) -> Line:
        """Join the translations of the pieces of a line; one of several pieces has no alternatives."""
        if len(parts) == 1:
            return parts[0]
        explanations = [part.explanation for part in parts if part.explanation is not None]
        explanation = join_explanations(line, explanations) if explanations else None
        return Line(" ".join(part.translation for part in parts), (), explanation)

    def translate(self, choice: Choice, lines: Sequence[str], check: Check = never_stop) -> list[Line]:
        """The translation of each line; check: is called before every decoding step, and may end the work."""
        translator = self._translator
        scorer = self._join(choice.memories)
        settings = translator.settings
        count = choice.alternatives + 1
        if count > 1:
            settings = replace(settings, n_best=count, beam=max(count, settings.beam))
        found = translator.search(lines, settings=settings, check=check, scorer=scorer)
        explanations: Sequence[Explanation | None] = [None] * len(lines)
        if choice.explain:
            explanations = translator.explain_found(lines, found, check=check, scorer=scorer)
        texts = [self._texts(parts) for parts in found]
        return [
            Line(best, tuple(others), explanation)
            for (best, *others), explanation in zip(texts, explanations, strict=True)
        ]

    def _texts(self, parts: list[list[Hypothesis]]) -> list[str]:
        """The best translations of a line, each once; a very long line has one only."""
        decode = self._translator.model.tokens.decode
        if len(parts) != 1:
            return [" ".join(decode(part[0].tokens) for part in parts)]
        return list(dict.fromkeys(decode(hypothesis.tokens) for hypothesis in parts[0]))

    def _join(self, memories: Sequence[tuple[str, float]]) -> Scorer:
        """A scorer over these memories as they are now."""
        mounts = [self.mounts[name] for name, _ in memories]
        for mount in mounts:
            mount.refresh()
        return combine_scorers([mount.scorer for mount in mounts], [weight for _, weight in memories])
