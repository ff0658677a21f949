"""The one batched beam search over model, index and combiner, and what people call to translate."""

from ibidem.decode.beams import Hypothesis
from ibidem.decode.documents import translate_document
from ibidem.decode.explaining import join_explanations
from ibidem.decode.explanation import CitedPair, Explanation, Neighbour, Token, Word
from ibidem.decode.processor import MemoryLogitsProcessor
from ibidem.decode.scoring import BaseScorer, BlendedScorer, MemoryScorer, Scorer, Votes
from ibidem.decode.search import SearchSettings, beam_search
from ibidem.decode.searcher import Searcher
from ibidem.decode.translator import Translator

__all__ = [
    "BaseScorer",
    "BlendedScorer",
    "CitedPair",
    "Explanation",
    "Hypothesis",
    "MemoryLogitsProcessor",
    "MemoryScorer",
    "Neighbour",
    "Scorer",
    "SearchSettings",
    "Searcher",
    "Token",
    "Translator",
    "Votes",
    "Word",
    "beam_search",
    "join_explanations",
    "translate_document",
]
