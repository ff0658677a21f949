"""Beam search over model, index and combiner, and the `Translator`."""

from ibidem.decode.assessment import (
    AssessedSegment,
    AssessedTranslation,
    RecordedTranslations,
    SegmentMatch,
    assess_segments,
    check_min_confidence,
    encode_sources,
    join_confidences,
    match_pieces,
    translate_and_assess,
)
from ibidem.decode.beam_search import BeamSearcher, BestTokens, Check, SearchSettings, beam_search, never_stop
from ibidem.decode.beams import Hypothesis, missing_shards
from ibidem.decode.confidence import (
    FEATURES,
    GENERAL_CONFIDENCE,
    ConfidenceEstimator,
    ConfidenceModel,
    load_confidence,
    load_general_confidence,
)
from ibidem.decode.document_translation import translate_document
from ibidem.decode.explain import CitedPair, Explanation, Neighbour, Term, Token, Word
from ibidem.decode.loaded_memory import LoadedMemory, load_memory_scorer, load_model_for
from ibidem.decode.logits_processor import MemoryLogitsProcessor
from ibidem.decode.scorer import (
    BaseScorer,
    EnsembleScorer,
    MemoryScorer,
    OverlayScorer,
    Retrieved,
    Scorer,
    combine_scorers,
)
from ibidem.decode.text_splitter import Piece, Splitting, TextLayout, find_lines
from ibidem.decode.translator import Translator, UnmetTerm, Work

__all__ = [
    "FEATURES",
    "GENERAL_CONFIDENCE",
    "AssessedSegment",
    "AssessedTranslation",
    "BaseScorer",
    "BeamSearcher",
    "BestTokens",
    "Check",
    "CitedPair",
    "ConfidenceEstimator",
    "ConfidenceModel",
    "EnsembleScorer",
    "Explanation",
    "Hypothesis",
    "LoadedMemory",
    "MemoryLogitsProcessor",
    "MemoryScorer",
    "Neighbour",
    "OverlayScorer",
    "Piece",
    "RecordedTranslations",
    "Retrieved",
    "Scorer",
    "SearchSettings",
    "SegmentMatch",
    "Splitting",
    "Term",
    "TextLayout",
    "Token",
    "Translator",
    "UnmetTerm",
    "Word",
    "Work",
    "assess_segments",
    "beam_search",
    "check_min_confidence",
    "combine_scorers",
    "encode_sources",
    "find_lines",
    "join_confidences",
    "load_confidence",
    "load_general_confidence",
    "load_memory_scorer",
    "load_model_for",
    "match_pieces",
    "missing_shards",
    "never_stop",
    "translate_and_assess",
    "translate_document",
]
