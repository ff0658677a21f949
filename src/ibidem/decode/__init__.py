"""The one batched beam search over model, index and combiner, and what people call to translate."""

from ibidem.decode.documents import translate_document
from ibidem.decode.processor import MemoryLogitsProcessor
from ibidem.decode.scoring import BaseScorer, MemoryScorer, Scorer
from ibidem.decode.search import Hypothesis, SearchSettings, beam_search
from ibidem.decode.translator import Translator

__all__ = [
    "BaseScorer",
    "Hypothesis",
    "MemoryLogitsProcessor",
    "MemoryScorer",
    "Scorer",
    "SearchSettings",
    "Translator",
    "beam_search",
    "translate_document",
]
