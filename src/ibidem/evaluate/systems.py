"""Several systems on one test set: what each scores, how fast it is, and whether it beats the first by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ibidem.evaluate.comparison import Comparison, compare
from ibidem.evaluate.quality import Score, score
from ibidem.evaluate.speed import Speed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.decode import Scorer, Translator


@dataclass(frozen=True)
class SystemResult:
    """A system's translations, scores and speed, and its comparisons with the first system (none for that one)."""

    name: str
    translations: list[str]
    scores: list[Score]
    speed: Speed
    comparisons: list[Comparison]

    def to_json(self) -> dict[str, Any]:
        """Figures only, for reports."""
        return {
            "scores": {found.name: found.value for found in self.scores},
            "sentences_per_second": self.speed.sentences_per_second,
            "tokens_per_second": self.speed.tokens_per_second,
            "p_value_against_base": {found.metric: found.p_value for found in self.comparisons},
        }


def evaluate_systems(
    translator: Translator,
    scorers: Mapping[str, Scorer],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = 1000,
    seed: int = 12345,
) -> list[SystemResult]:
    """Translate with each scorer in turn and compare each with the first by paired bootstrap."""
    results: list[SystemResult] = []
    for name, scorer in scorers.items():
        translator.work = type(translator.work)()
        translations = translator.translate(sources, scorer=scorer)
        work = translator.work
        first = results[0].translations if results else None
        results.append(
            SystemResult(
                name,
                translations,
                score(translations, references),
                Speed(work.sentences, work.tokens, work.seconds),
                [] if first is None else compare(first, translations, references, samples=samples, seed=seed),
            )
        )
    return results
