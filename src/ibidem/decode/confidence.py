"""The confidence of a translation: a calibrated probability that it needs no edit.

The search records, for each token of a translation, its probability in the mixture and in the base model, the weight of
the memory and the nearest neighbour (`ibidem.native.Evidence`). `describe` makes FEATURES of them, of the checks of
translations and of the nearest stored pair, and a `ConfidenceModel` makes a probability of these. A memory stores its
own model if it was tuned; other memories, and the base model alone, use the general one of the base model.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ibidem.decode.explain import force_evidence
from ibidem.decode.loaded_memory import estimate_typical_distance
from ibidem.decode.scorer import unpack_entry
from ibidem.errors import DamagedMemoryError, ModelError
from ibidem.memory import CONFIDENCE_ARTEFACT, similarity
from ibidem.model import GENERAL_FOLDER, SHIPPED, find_folder
from ibidem.text import check_translation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.decode.beam_search import Check
    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scorer import Scorer
    from ibidem.decode.text_splitter import Piece, TextLayout
    from ibidem.memory import Memory
    from ibidem.model import BaseModel
    from ibidem.native import Evidence

GENERAL_CONFIDENCE = "confidence.json"
"""The name of the general model's file in the folder `general` of a base model."""

FEATURES: dict[str, int] = {
    "log_prob": 1,
    "worst_log_prob": 1,
    "total_log_prob": 1,
    "base_log_prob": 1,
    "worst_base_log_prob": 1,
    "agreement": 1,
    "disagreement": -1,
    "closeness": 1,
    "tokens": 0,
    "match": 1,
    "stored": 1,
    "suspicious": -1,
    "cut": -1,
    "ratio": -1,
}
"""The features of a translation, each with the sign that its weight must have; 0 for any.

log_prob, worst_log_prob and total_log_prob are the mean, the least and the sum of the tokens' log-probabilities in the
mixture; base_log_prob and worst_base_log_prob the first two in the base model. agreement and disagreement are the mean
weights of the neighbours that have the translation's token, and of the others. closeness is the mean of
1 / (1 + 10 d / t) for the squared distance d of the nearest neighbour and the typical one t of the memory. tokens is
the logarithm of their number. match is how far the similarity to the nearest stored source exceeds 50 %, from 0 to 1;
stored is 1 if the translation is that of an equal source. suspicious is 1 if `check_translation` objects, cut is 1 if
the limit on the length ended the translation, and ratio is how far the lengths of source and translation differ.
"""

_LEAST_LOG_PROB = -8.0
_LEAST_TOTAL = -40.0
_LEAST_MATCH = 50
# The number of tokens whose nearest neighbours are looked up, and of stored pairs that are compared with the source.
_LOOKED_UP = 12
_COMPARED = 2
_RATIO_OFFSET = 8
# The most typical distances that are kept; a batch needs one for each of its memories.
_MOST_TYPICAL = 16


class NearestPair(NamedTuple):
    """The stored pair that is most like a source, among those of the nearest neighbours.

    Attributes:
        percent: Their similarity; 0 if there is none.
        target: The target of the pair.
    """

    percent: int = 0
    target: str = ""


@dataclass(frozen=True)
class ConfidenceModel:
    """A logistic regression over FEATURES.

    Attributes:
        weights: One weight for each feature, in order.
        bias: The bias.
        info: What it was fitted on.

    Examples:
        >>> model = ConfidenceModel((0.0,) * len(FEATURES), 0.0, {})
        >>> model.probabilities(np.zeros((1, len(FEATURES)))).tolist()
        [0.5]
    """

    weights: tuple[float, ...]
    bias: float
    info: dict[str, Any]

    def probabilities(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities [n] of features [n, m].

        Args:
            features: The features of n translations.
        """
        # A sum in a fixed order: a matrix product may differ with the number of rows.
        logits = np.clip((features * np.asarray(self.weights)).sum(axis=1) + self.bias, -30, 30)
        result: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return result

    def store(self) -> bytes:
        """Return the model as JSON."""
        weights = dict(zip(FEATURES, self.weights, strict=True))
        return json.dumps({"weights": weights, "bias": self.bias, "info": self.info}, indent=1).encode()

    @classmethod
    def restore(cls, payload: bytes) -> ConfidenceModel:
        """Read a model that `store` wrote.

        Args:
            payload: The bytes of the file.

        Raises:
            ValueError: The bytes are something else, a weight is not finite, or one has the wrong sign.
        """
        try:
            stored = json.loads(payload)
            weights = tuple(float(stored["weights"][name]) for name in FEATURES)
            bias, info = float(stored["bias"]), dict(stored.get("info", {}))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"it is not a model of confidence ({error!r})") from error
        if not all(map(math.isfinite, (*weights, bias))):
            raise ValueError("some of its weights are not finite")
        if any(weight * sign < 0 for weight, sign in zip(weights, FEATURES.values(), strict=True)):
            raise ValueError("some of its weights have the wrong sign")
        return cls(weights, bias, info)


def load_confidence(memory: Memory) -> ConfidenceModel | None:
    """Load the model of a memory; None if it stores none.

    Args:
        memory: The memory.

    Raises:
        DamagedMemoryError: The file is damaged.
    """
    artefact = memory.artefact(CONFIDENCE_ARTEFACT)
    if artefact is None:
        return None
    try:
        return ConfidenceModel.restore(artefact.path.read_bytes())
    except (OSError, ValueError) as error:
        raise DamagedMemoryError(
            f"The confidence of {memory.path} cannot be read ({error}): run `ibidem tune` again."
        ) from error


def load_general_confidence(model: BaseModel) -> ConfidenceModel | None:
    """Load the model of a base model, or else that of the shipped one; None if neither is installed.

    Args:
        model: The base model.

    Raises:
        ModelError: The file is damaged.
    """
    folders = [folder for folder in (model.general, find_folder(SHIPPED) / GENERAL_FOLDER) if folder is not None]
    path = next((path for folder in folders if (path := folder / GENERAL_CONFIDENCE).is_file()), None)
    if path is None:
        return None
    try:
        return ConfidenceModel.restore(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"The confidence {path} cannot be read ({error}): install the model again.") from error


class ConfidenceEstimator:
    """Estimates the confidence of the translations of a base model with any memories.

    Args:
        model: The base model.

    Examples:
        >>> from ibidem import Translator
        >>> translator = Translator(device="cpu")
        >>> layouts = translator.split(["Guten Morgen."])
        >>> estimator = ConfidenceEstimator(translator.model)
        >>> (confidence,) = estimator.estimate(translator.scorer, layouts, translator.search(layouts))[0]
        >>> 0 < confidence < 1
        True
    """

    def __init__(self, model: BaseModel) -> None:
        self._model = model
        self._general: ConfidenceModel | None = None
        self._has_general = True
        self._of_memory: tuple[Memory, ConfidenceModel | None] | None = None
        self._typical: dict[tuple[str, int], float] = {}

    def model_for(self, scorer: Scorer) -> ConfidenceModel | None:
        """Return the model of the scorer's memory, or the general one for several memories or none.

        Args:
            scorer: The scorer.

        Raises:
            DamagedMemoryError: The file of the memory is damaged.
            ModelError: The file of the base model is damaged.
        """
        memories = {id(memory): memory for memory in scorer.memories if memory is not None}
        own = self._load_own(next(iter(memories.values()))) if len(memories) == 1 else None
        if own is None and self._general is None and self._has_general:
            self._general = load_general_confidence(self._model)
            self._has_general = self._general is not None
        return own or self._general

    def _load_own(self, memory: Memory) -> ConfidenceModel | None:
        if self._of_memory is None or self._of_memory[0] is not memory:
            self._of_memory = (memory, load_confidence(memory))
        return self._of_memory[1]

    def estimate(
        self,
        scorer: Scorer,
        layouts: Sequence[TextLayout],
        found: Sequence[Sequence[Sequence[Hypothesis]]],
        check: Check | None = None,
    ) -> list[list[float | None]]:
        """Estimate the confidence of the best translation of each piece.

        Args:
            scorer: The scorer that found the translations.
            layouts: The texts.
            found: The hypotheses of each piece of each text, as `Translator.search` returns them.
            check: See `Translator.translate`; called if a translation must be forced through the model because its
                search recorded no evidence.

        Returns:
            The probability of each piece that its translation needs no edit; None if there is no model for it.
        """
        chosen = self.model_for(scorer)
        if chosen is None:
            return [[None] * len(parts) for parts in found]
        features = self.describe(scorer, layouts, found, check)
        probabilities = iter(chosen.probabilities(features).tolist())
        return [[next(probabilities) for _ in parts] for parts in found]

    def describe(
        self,
        scorer: Scorer,
        layouts: Sequence[TextLayout],
        found: Sequence[Sequence[Sequence[Hypothesis]]],
        check: Check | None = None,
    ) -> NDArray[np.float64]:
        """Return the features [pieces, m] of the best translation of each piece of each text.

        Args:
            scorer: See `estimate`.
            layouts: See `estimate`.
            found: See `estimate`.
            check: See `estimate`.
        """
        pieces = [piece for layout in layouts for piece in layout.pieces]
        best = [hypotheses[0] for parts in found for hypotheses in parts]
        missing = [number for number, one in enumerate(best) if one.evidence is None]
        evidence = [one.evidence for one in best]
        forced = force_evidence(self._model, scorer, [(pieces[i].ids, best[i]) for i in missing], check)
        for number, one in zip(missing, forced, strict=True):
            evidence[number] = one
        rows = [
            self._describe(scorer, piece, hypothesis, known)
            for piece, hypothesis, known in zip(pieces, best, evidence, strict=True)
            if known is not None
        ]
        return np.array(rows, np.float64).reshape(len(rows), len(FEATURES))

    def _describe(self, scorer: Scorer, piece: Piece, hypothesis: Hypothesis, evidence: Evidence) -> list[float]:
        translation = self._model.tokens.decode(hypothesis.tokens)
        nearest = self._find_nearest(scorer, piece.text, evidence)
        typical = self._typical_distance(scorer, evidence)
        return describe_translation(piece.text, translation, evidence, nearest, typical, cut=hypothesis.cut)

    def _find_nearest(self, scorer: Scorer, source: str, evidence: Evidence) -> NearestPair:
        """Find the most similar source among the pairs that most of the nearest neighbours belong to."""
        retrieved = evidence.entries[evidence.entries >= 0]
        chosen = retrieved[np.linspace(0, len(retrieved) - 1, min(len(retrieved), _LOOKED_UP)).astype(int)]
        counts: Counter[tuple[int, int]] = Counter()
        for place, entry in map(unpack_entry, chosen.tolist()):
            if (memory := scorer.memories[place]) is not None:
                counts[place, memory.locate(entry)[0]] += 1
        best = NearestPair()
        for (place, number), _ in counts.most_common(_COMPARED):
            memory = scorer.memories[place]
            assert memory is not None
            pair = memory.sentence(number)
            if 2 * min(len(source), len(pair.source)) < max(len(source), len(pair.source)):
                continue  # it is less similar than counts
            if (percent := similarity(source, pair.source)) > best.percent:
                best = NearestPair(percent, pair.target)
        return best

    def _typical_distance(self, scorer: Scorer, evidence: Evidence) -> float:
        """Return the typical distance in the memory of the nearest neighbours, the first one found."""
        packed = next((one for one in evidence.entries.tolist() if one >= 0), None)
        memory = None if packed is None else scorer.memories[unpack_entry(packed)[0]]
        if memory is None:
            return 1.0
        key = (str(memory.path), memory.generation)
        if key not in self._typical:
            if len(self._typical) >= _MOST_TYPICAL:
                self._typical.clear()
            self._typical[key] = estimate_typical_distance(memory) or 1.0
        return self._typical[key]


def describe_translation(
    source: str, translation: str, evidence: Evidence, nearest: NearestPair, typical: float, *, cut: bool
) -> list[float]:
    """Return the FEATURES of a translation.

    Args:
        source: The source.
        translation: Its translation.
        evidence: The evidence for its tokens.
        nearest: The most similar stored pair.
        typical: The typical squared distance of the memory.
        cut: Whether the limit on the length ended the translation.
    """
    log_probs = _clip(evidence.log_probs, _LEAST_LOG_PROB)
    base = _clip(evidence.base_log_probs, _LEAST_LOG_PROB)
    weights = np.clip(evidence.weights.astype(np.float64), 0, 1)
    from_memory = np.clip(np.exp(log_probs) - (1 - weights) * np.exp(base), 0, weights)
    agreement = float(from_memory.mean())
    distances = evidence.distances.astype(np.float64)
    closeness = np.where(np.isfinite(distances), 1 / (1 + 10 * np.maximum(distances, 0) / typical), 0)
    return [
        float(log_probs.mean()),
        float(log_probs.min()),
        max(_LEAST_TOTAL, float(log_probs.sum())),
        float(base.mean()),
        float(base.min()),
        agreement,
        float(weights.mean()) - agreement,
        float(closeness.mean()),
        math.log(len(log_probs)),
        max(0, nearest.percent - _LEAST_MATCH) / (100 - _LEAST_MATCH),
        float(nearest.percent == 100 and nearest.target.split() == translation.split()),
        float(check_translation(source, translation) is not None),
        float(cut),
        abs(math.log((len(translation) + _RATIO_OFFSET) / (len(source) + _RATIO_OFFSET))),
    ]


def _clip(values: NDArray[np.float32], least: float) -> NDArray[np.float64]:
    """Return log-probabilities between `least` and 0; NaN, of a row without a distribution, is the least."""
    return np.clip(np.nan_to_num(values.astype(np.float64), nan=least), least, 0)
