"""Translation of text with inline codes and placeholders, none of which is lost unnoticed."""

from __future__ import annotations

from ibidem.text.inline.layout import has_letters
from ibidem.text.inline.placeholders import Code, Pieces, Role, is_blank, plain_text
from ibidem.text.inline.protection import Request, Translate, Untranslated, translate_pieces

__all__ = [
    "Code",
    "Pieces",
    "Request",
    "Role",
    "Translate",
    "Untranslated",
    "has_letters",
    "is_blank",
    "plain_text",
    "translate_pieces",
]
