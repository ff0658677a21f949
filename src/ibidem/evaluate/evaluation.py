"""Evaluation of several systems on one test set: scores, speed, and significance against the first system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError
from ibidem.evaluate.quality import Comparison, Score, compare, score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.decode import Scorer, Translator

# Lines that each system translates before it is timed.
WARM_UP_LINES = 32


@dataclass(frozen=True)
class Speed:
    """Hold the speed of a translator.

    Args:
        sentences: Number of translated sentences.
        tokens: Number of generated target tokens.
        seconds: Wall-clock time.

    Raises:
        UsageError: A count is negative, or the time is not above 0.

    Examples:
        >>> Speed(sentences=30, tokens=450, seconds=1.5).tokens_per_second
        300.0
    """

    sentences: int
    tokens: int
    seconds: float

    def __post_init__(self) -> None:
        if self.sentences < 0 or self.tokens < 0 or not self.seconds > 0:
            raise UsageError(
                f"Invalid speed of {self.sentences} sentences and {self.tokens} tokens in {self.seconds} s: "
                "counts must not be negative and the time must be above zero."
            )

    @property
    def sentences_per_second(self) -> float:
        """Sentences a second."""
        return self.sentences / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Generated target tokens a second."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class SystemResult:
    """Hold the results of one system.

    Args:
        name: Name of the system.
        translations: Its translations, in the order of the sources.
        scores: BLEU and chrF.
        speed: Its speed after the warm-up.
        comparisons: Its comparisons with the first system; none for the first system.
    """

    name: str
    translations: list[str]
    scores: list[Score]
    speed: Speed
    comparisons: list[Comparison]

    def to_json(self) -> dict[str, Any]:
        """Return the figures, without the translations, as JSON."""
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
    """Translate a test set with each scorer in turn, score it, and compare it with the first by paired bootstrap.

    Each system first translates some lines untimed, because caches, threads and buffers are cold at first.

    Args:
        translator: The translator.
        scorers: The scorer of each system by name; the first is the baseline.
        sources: The source sentences.
        references: A reference for each, in the same order.
        samples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The results in the order of the scorers.

    Raises:
        UsageError: The numbers of lines differ, there are none, or samples or seed is below 1.

    Examples:
        >>> translator = Translator(memory="memories/it")                                        # doctest: +SKIP
        >>> scorers = {"base": BaseScorer(), "memory": translator.scorer}                        # doctest: +SKIP
        >>> evaluate_systems(translator, scorers, sources, references)[1].speed.tokens_per_second    # doctest: +SKIP
    """
    results: list[SystemResult] = []
    for name, scorer in scorers.items():
        translator.translate(_spread(sources, WARM_UP_LINES), scorer=scorer)
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


def _spread(texts: Sequence[str], count: int) -> list[str]:
    """Select at most `count` texts at equal steps."""
    return list(texts[:: max(1, -(-len(texts) // count))])
