"""Parallel text, plain or compressed, as a stream of pairs: aligned lines, TSV, JSONL, TMX, XLIFF, PO and MO."""

from ibidem.text.corpus import Corpus
from ibidem.text.counts import Counts
from ibidem.text.documents.filling import FillReport, FillSettings, check_languages, fill
from ibidem.text.documents.opening import format_of, open_document
from ibidem.text.inline.code import Code, Pieces, Role
from ibidem.text.inline.protection import Loss, Request, Translate, translate_pieces
from ibidem.text.language import primary_language, same_language
from ibidem.text.limits import ReadLimits
from ibidem.text.output import open_output
from ibidem.text.pair import Pair, join_lines
from ibidem.text.stream import COMPRESSED, Stream
from ibidem.text.writing import Written, write_pairs

__all__ = [
    "COMPRESSED",
    "Code",
    "Corpus",
    "Counts",
    "FillReport",
    "FillSettings",
    "Loss",
    "Pair",
    "Pieces",
    "ReadLimits",
    "Request",
    "Role",
    "Stream",
    "Translate",
    "Written",
    "check_languages",
    "fill",
    "format_of",
    "join_lines",
    "open_document",
    "open_output",
    "primary_language",
    "same_language",
    "translate_pieces",
    "write_pairs",
]
