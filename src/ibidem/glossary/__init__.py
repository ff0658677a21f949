"""Glossaries: terms with the translations that must be used for them."""

from ibidem.glossary.formats import FORMATS, TermList, format_of, load_glossary, parse_terms, read_terms, write_terms
from ibidem.glossary.glossary import ENDING, MAX_BYTES, Entry, Glossary, clean_term, update_glossary
from ibidem.glossary.inflection import capitalise
from ibidem.glossary.matcher import TermMatch, TermMatcher, TermUse

__all__ = [
    "ENDING",
    "FORMATS",
    "MAX_BYTES",
    "Entry",
    "Glossary",
    "TermList",
    "TermMatch",
    "TermMatcher",
    "TermUse",
    "capitalise",
    "clean_term",
    "format_of",
    "load_glossary",
    "parse_terms",
    "read_terms",
    "update_glossary",
    "write_terms",
]
