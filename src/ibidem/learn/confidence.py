"""Fitting of the model of confidence: which translations of a dev set needed no edit, and by which evidence."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ibidem.decode import (
    FEATURES,
    ConfidenceEstimator,
    ConfidenceModel,
    LoadedMemory,
    Translator,
    load_general_confidence,
)
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.combine import Combiner
    from ibidem.decode import Scorer
    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.retrieve import Index

LEAST_SENTENCES = 40
"""With fewer sentences no model is fitted."""

NEAR_GENERAL = 30.0
"""How strongly the weights of a memory's model are kept near the general ones; see `fit_confidence`."""

# Few translations of a dev set have these features, so their weights are kept near what is expected of them.
_PRIOR = {"suspicious": -1.5, "cut": -2.0}
_BATCH = 32
_UPDATES = 4_000
_TOLERANCE = 1e-10
_QUOTES = str.maketrans(
    {**dict.fromkeys("„“”«»‟", '"'), **dict.fromkeys("‚‘’‹›`´", "'"), "–": "-", "—": "-", "…": "..."}
)
_SPACE_BEFORE = re.compile(r"\s+(?=[.,;:!?)\]}'\"])")


class ConfidenceExamples(NamedTuple):
    """Translations with their features.

    Attributes:
        features: [n, m] the features of `ibidem.decode.FEATURES`.
        unedited: [n] whether the translation is the reference; see `needs_no_edit`.
        translations: The n translations.
        references: The n references.
    """

    features: NDArray[np.float64]
    unedited: NDArray[np.bool_]
    translations: list[str]
    references: list[str]


def needs_no_edit(translation: str, reference: str) -> bool:
    """Return whether a translation equals the reference, but for white space, kinds of quotes and kinds of dashes.

    Args:
        translation: The translation.
        reference: The reference.

    Examples:
        >>> needs_no_edit('The file  "a" .', "The file “a”."), needs_no_edit("the file", "The file")
        (True, False)
    """
    return _normalise(translation) == _normalise(reference)


def _normalise(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.translate(_QUOTES)).translate(_QUOTES)
    return " ".join(_SPACE_BEFORE.sub("", plain).split())


def collect_confidence_examples(
    model: BaseModel,
    scorer: Scorer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    progress: Progress = silent,
) -> ConfidenceExamples:
    """Translate sentences, and compare the translations with references.

    Sentences that are too long for one piece are left out.

    Args:
        model: The base model.
        scorer: The scorer.
        sources: The sources.
        references: Their references.
        progress: Receives the number of sentences that are done.
    """
    translator, estimator = Translator(model, split="off", batch_size=_BATCH), ConfidenceEstimator(model)
    layouts = translator.split(list(sources), memories=())
    usable = [number for number, layout in enumerate(layouts) if len(layout.pieces) == 1]
    rows, translations = [], []
    # Sentences of similar length share a batch.
    usable.sort(key=lambda number: len(layouts[number].pieces[0].ids))
    for first in range(0, len(usable), _BATCH):
        chosen = [layouts[number] for number in usable[first : first + _BATCH]]
        found = translator.search(chosen, scorer=scorer)
        rows.append(estimator.describe(scorer, chosen, found))
        translations += [model.tokens.decode(hypotheses[0].tokens) for (hypotheses,) in found]
        done = min(first + _BATCH, len(usable))
        progress("Translating for the confidence", done / len(usable), done, "sentences")
    kept = [references[number] for number in usable]
    unedited = [needs_no_edit(*pair) for pair in zip(translations, kept, strict=True)]
    features = np.concatenate([np.empty((0, len(FEATURES))), *rows])
    return ConfidenceExamples(features, np.array(unedited, bool), translations, kept)


def fit_confidence(
    features: NDArray[np.float64],
    unedited: NDArray[np.bool_],
    *,
    start: ConfidenceModel | None = None,
    strength: float = 1.0,
    info: dict[str, object] | None = None,
) -> ConfidenceModel:
    """Fit a logistic regression whose weights have the signs of FEATURES.

    It minimises the negative log-likelihood plus strength / 2 times the squared differences of the weights, each times
    the standard deviation of its feature, from those of another model.

    Args:
        features: [n, m] the features.
        unedited: [n] whether the translation needed no edit.
        start: The other model; None for weights of 0, but for rare features of which a sign of faults is expected.
        strength: How strongly the weights are kept near it.
        info: What the model was fitted on.
    """
    signs = np.array(list(FEATURES.values()))
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviation > 1e-9, deviation, 1.0)
    inputs = np.column_stack([(features - mean) / scale, np.ones(len(features))])
    labels = unedited.astype(np.float64)
    known = np.array([_PRIOR.get(name, 0.0) for name in FEATURES] if start is None else start.weights)
    rate = (labels.sum() + 0.5) / (len(labels) + 1)
    bias = np.log(rate / (1 - rate)) if start is None else start.bias + known @ mean
    prior = np.append(known * scale, bias)
    # The bias alone is free: the rates of domains differ.
    penalty = np.append(np.full(len(FEATURES), strength), min(strength, 1e-2 * strength))
    step = 1 / (np.linalg.eigvalsh(inputs.T @ inputs)[-1] / 4 + strength)

    def project(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        allowed = np.where(signs > 0, np.maximum(weights[:-1], 0), weights[:-1])
        return np.append(np.where(signs < 0, np.minimum(allowed, 0), allowed), weights[-1])

    weights = ahead = project(prior)
    momentum = 1.0
    for _ in range(_UPDATES):
        probabilities = 1 / (1 + np.exp(-np.clip(inputs @ ahead, -30, 30)))
        gradient = inputs.T @ (probabilities - labels) + penalty * (ahead - prior)
        new = project(ahead - step * gradient)
        if (ahead - new) @ (new - weights) > 0:  # the momentum leads upwards
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        change, weights, momentum = float(np.abs(new - weights).max()), new, following
        if change < _TOLERANCE:
            break
    plain = weights[:-1] / scale
    # Rounded, so that the file does not depend on the last bits.
    rounded = tuple(float(f"{weight:.6g}") for weight in plain)
    return ConfidenceModel(rounded, float(f"{weights[-1] - plain @ mean:.6g}"), dict(info or {}))


def tune_confidence(
    memory: Memory,
    model: BaseModel,
    index: Index,
    combiner: Combiner,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    hidden: Sequence[range] | None,
    sentences: int,
    progress: Progress = silent,
) -> ConfidenceModel | None:
    """Fit the model of confidence of a memory on a dev set, near the general one.

    Args:
        memory: The memory.
        model: Its base model.
        index: The index to search.
        combiner: The combiner that translates.
        sources: The sources of the dev set.
        references: Their references.
        hidden: For each sentence its own entries, if the dev set is from the memory: the entries of all chosen
            sentences are hidden, which are those of at most a tenth of the pairs.
        sentences: The most sentences to translate.
        progress: Receives the number of sentences that are done.

    Returns:
        The model; None with fewer than LEAST_SENTENCES.
    """
    most = sentences if hidden is None else min(sentences, memory.active_pairs // 10)
    count = min(most, len(sources))
    if count < LEAST_SENTENCES:
        return None
    chosen = np.sort(np.random.default_rng(memory.manifest.seed).permutation(len(sources))[:count]).tolist()
    own = None if hidden is None else np.concatenate([np.arange(hidden[i].start, hidden[i].stop) for i in chosen])
    scorer = LoadedMemory(memory, model, combiner=combiner, index=index, hidden=own).scorer
    examples = collect_confidence_examples(
        model, scorer, [sources[i] for i in chosen], [references[i] for i in chosen], progress=progress
    )
    if len(examples.unedited) < LEAST_SENTENCES:
        return None
    info: dict[str, object] = {
        "sentences": len(examples.unedited),
        "unedited": int(examples.unedited.sum()),
        "from_memory": hidden is not None,
    }
    start = load_general_confidence(model)
    strength = 1.0 if start is None else NEAR_GENERAL
    return fit_confidence(examples.features, examples.unedited, start=start, strength=strength, info=info)
