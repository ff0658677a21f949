"""Parallel text, plain or compressed, as a stream of pairs: aligned lines, TSV, JSONL, TMX, XLIFF, PO and MO."""

from ibidem.text.corpus import Corpus
from ibidem.text.counts import Counts
from ibidem.text.pair import Pair

__all__ = ["Corpus", "Counts", "Pair"]
