"""Parallel text as a stream of pairs, and documents to translate, of all formats in `formats.FORMATS`."""

from __future__ import annotations

from ibidem.text.corpus import Corpus, PairFilter, Written, names_pair_format, write_pairs
from ibidem.text.document import FillReport, FillSettings, check_languages, fill
from ibidem.text.formats import document_endings, find_document_format, format_of, open_document
from ibidem.text.html import find_blocks, write_markup
from ibidem.text.inline import Code, Pieces, Request, Role, Translate, Untranslated, plain_text, translate_pieces
from ibidem.text.language import primary_language, same_language
from ibidem.text.output import check_output, open_output
from ibidem.text.pair import Counts, Pair, join_lines
from ibidem.text.sentences import find_sentences
from ibidem.text.stream import COMPRESSED_ENDINGS, ReadLimits, Stream, refuse_binary
from ibidem.text.translation_check import check_translation, is_copy, is_much_shorter
from ibidem.text.xml import Kind as XmlKind
from ibidem.text.xml import read_tokens as read_xml

__all__ = [
    "COMPRESSED_ENDINGS",
    "Code",
    "Corpus",
    "Counts",
    "FillReport",
    "FillSettings",
    "Pair",
    "PairFilter",
    "Pieces",
    "ReadLimits",
    "Request",
    "Role",
    "Stream",
    "Translate",
    "Untranslated",
    "Written",
    "XmlKind",
    "check_languages",
    "check_output",
    "check_translation",
    "document_endings",
    "fill",
    "find_blocks",
    "find_document_format",
    "find_sentences",
    "format_of",
    "is_copy",
    "is_much_shorter",
    "join_lines",
    "names_pair_format",
    "open_document",
    "open_output",
    "plain_text",
    "primary_language",
    "read_xml",
    "refuse_binary",
    "same_language",
    "translate_pieces",
    "write_markup",
    "write_pairs",
]
