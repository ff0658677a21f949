"""The one batched beam search over model, index and combiner, and what people call to translate."""

from ibidem.decode.beams import Hypothesis
from ibidem.decode.documents import translate_document
from ibidem.decode.explaining import join_explanations
from ibidem.decode.explanation import CitedPair, Explanation, Neighbour, Token, Word
from ibidem.decode.mounting import check_complete, check_identity, load_combiner, load_values, place_combiner
from ibidem.decode.mounts import LoadedMemory, load_memory
from ibidem.decode.processor import MemoryLogitsProcessor
from ibidem.decode.scoring import BaseScorer, EnsembleScorer, MemoryScorer, Retrieved, Scorer
from ibidem.decode.search import BestTokens, Check, SearchSettings, beam_search, never_stop
from ibidem.decode.searcher import BeamSearcher
from ibidem.decode.splitting import Piece
from ibidem.decode.translator import Translator, Work

__all__ = [
    "BaseScorer",
    "BeamSearcher",
    "BestTokens",
    "Check",
    "CitedPair",
    "EnsembleScorer",
    "Explanation",
    "Hypothesis",
    "LoadedMemory",
    "MemoryLogitsProcessor",
    "MemoryScorer",
    "Neighbour",
    "Piece",
    "Retrieved",
    "Scorer",
    "SearchSettings",
    "Token",
    "Translator",
    "Word",
    "Work",
    "beam_search",
    "check_complete",
    "check_identity",
    "join_explanations",
    "load_combiner",
    "load_memory",
    "load_values",
    "never_stop",
    "place_combiner",
    "translate_document",
]
