"""Evaluation of translations: BLEU and chrF with sacreBLEU's signatures, paired bootstrap resampling, and speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError
from ibidem.evaluate.bootstrap import (
    SAMPLES,
    SEED,
    SIGNIFICANCE_LEVEL,
    compare_runs,
    count_bleu,
    count_chrf,
    resample,
    score_bleu,
    score_chrf,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sacrebleu.metrics.base import Metric

    from ibidem.decode import Scorer, Translator
    from ibidem.glossary import Glossary

# Lines that each system translates before it is timed.
WARM_UP_LINES = 32


@dataclass(frozen=True)
class Score:
    """Hold the value of a metric.

    Attributes:
        name: "BLEU" or "chrF".
        value: From 0 to 100.
        signature: sacreBLEU's signature of how it was computed.
    """

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Comparison:
    """Hold the comparison of two systems by one metric.

    Attributes:
        metric: "BLEU" or "chrF".
        baseline: Score of the baseline.
        system: Score of the system.
        low: Lower end of the 95 % interval of the difference, system minus baseline.
        high: Upper end of it.
        p_value: Two-sided p of the difference: twice the share of resamples in which it is zero or has the other sign.
        samples: Number of resamples.
        seed: Seed of the resamples.
        signature: sacreBLEU's signature of how the scores were computed.
    """

    metric: str
    baseline: float
    system: float
    low: float
    high: float
    p_value: float
    samples: int
    seed: int
    signature: str

    @property
    def difference(self) -> float:
        """Score of the system minus that of the baseline."""
        return self.system - self.baseline

    @property
    def significant(self) -> bool:
        """Whether the difference, in either direction, is significant (p < 0.05)."""
        return self.p_value < SIGNIFICANCE_LEVEL


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """Score hypotheses against one reference each.

    Args:
        hypotheses: The translations.
        references: A reference for each, in the same order.

    Returns:
        Corpus BLEU, then corpus chrF.

    Raises:
        UsageError: The numbers of lines differ, or there are none.

    Examples:
        >>> [f"{found.name} {found.value:.1f}" for found in score(["Paste the text here."], ["Paste the text here."])]
        ['BLEU 100.0', 'chrF 100.0']
    """
    _check_lengths(references, hypotheses=hypotheses)
    scores = []
    for name, metric in _build_metrics(references).items():
        value = metric.corpus_score(hypotheses, None).score
        scores.append(Score(name, float(value), str(metric.get_signature())))
    return scores


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """Compare two systems by paired bootstrap resampling of the sentences (Koehn 2004), two-sided.

    Args:
        baseline: Translations of the baseline.
        system: Translations of the system, in the same order.
        references: A reference for each, in the same order.
        samples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The comparison by BLEU, then by chrF; equal translations have a p value of 1.

    Raises:
        UsageError: The numbers of lines differ, there are none, samples is below 1, or seed is below 0.

    Examples:
        >>> references = ["Paste the text here.", "Close the window.", "Save the file now."]
        >>> better = compare(["Text.", "Window.", "Save."], references, references, samples=20)[0]
        >>> better.metric, better.system > better.baseline
        ('BLEU', True)
    """
    _check_lengths(references, baseline=baseline, system=system)
    metrics = {"BLEU": (count_bleu, score_bleu), "chrF": (count_chrf, score_chrf)}
    signatures = {name: str(metric.get_signature()) for name, metric in _build_metrics(references).items()}
    comparisons = []
    for name, (count, score_counts) in metrics.items():
        counts = [count(translations, references) for translations in (baseline, system)]
        first, second = resample(counts, score_counts, samples=samples, seed=seed)
        difference = compare_runs([first], [second])
        comparisons.append(
            Comparison(
                metric=name,
                baseline=first.score,
                system=second.score,
                low=difference.low,
                high=difference.high,
                p_value=difference.p_value,
                samples=samples,
                seed=seed,
                signature=signatures[name],
            )
        )
    return comparisons


def _build_metrics(references: Sequence[str]) -> dict[str, Metric]:
    """Build sacreBLEU's default metrics by name, with one reference a sentence already counted in each.

    BLEU has 13a tokenisation, case and exponential smoothing; chrF is chrF2, character 6-grams without words.
    """
    # sacrebleu imports numpy and takes long to load, so it is imported only to measure.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"BLEU": BLEU(references=[references]), "chrF": CHRF(references=[references])}


def _check_lengths(references: Sequence[str], **systems: Sequence[str]) -> None:
    """Raise UsageError unless every system has one hypothesis for each of one or more references."""
    for name, hypotheses in systems.items():
        if isinstance(hypotheses, str) or isinstance(references, str):
            raise UsageError(f"{name} and references must be lists of sentences: split one string into its lines.")
        if len(hypotheses) != len(references):
            raise UsageError(
                f"{name} has {len(hypotheses)} sentences but there are {len(references)} references: "
                "give one line of each for every source sentence, in the same order."
            )
    if not references:
        raise UsageError("There is nothing to score: 0 hypotheses, 0 references. Give at least one line of each.")


@dataclass(frozen=True)
class Speed:
    """Hold the speed of a translator.

    Attributes:
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

    Attributes:
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
            "interval_against_base": {found.metric: [found.low, found.high] for found in self.comparisons},
        }


def evaluate_systems(
    translator: Translator,
    scorers: Mapping[str, Scorer],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    glossaries: Mapping[str, Glossary] | None = None,
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
        glossaries: The glossaries of systems that have one, by name of the system.

    Returns:
        The results in the order of the scorers.

    Raises:
        UsageError: The numbers of lines differ, there are none, samples is below 1, or seed is below 0.

    Examples:
        >>> translator = Translator(memory="memories/it")                                        # doctest: +SKIP
        >>> scorers = {"base": BaseScorer(), "memory": translator.scorer}                        # doctest: +SKIP
        >>> evaluate_systems(translator, scorers, sources, references)[1].speed.tokens_per_second    # doctest: +SKIP
    """
    results: list[SystemResult] = []
    for name, scorer in scorers.items():
        glossary = (glossaries or {}).get(name)
        translator.translate(_spread(sources, WARM_UP_LINES), scorer=scorer, glossary=glossary)
        translator.work = type(translator.work)()
        translations = translator.translate(sources, scorer=scorer, glossary=glossary)
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
