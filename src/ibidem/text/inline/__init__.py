"""Translation of text with inline codes and placeholders, none of which is lost unnoticed."""

from __future__ import annotations

from ibidem.text.inline.placeholders import Code, Pieces, Role, is_blank, plain_text
from ibidem.text.inline.protection import Loss, Request, Translate, translate_pieces

__all__ = ["Code", "Loss", "Pieces", "Request", "Role", "Translate", "is_blank", "plain_text", "translate_pieces"]
