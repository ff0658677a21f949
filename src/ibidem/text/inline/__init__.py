"""Text with markup and placeholders inside, translated so that none of them is lost unnoticed."""

from ibidem.text.inline.code import Code, Pieces, Role, plain_text
from ibidem.text.inline.protection import Loss, Request, Translate, translate_pieces

__all__ = ["Code", "Loss", "Pieces", "Request", "Role", "Translate", "plain_text", "translate_pieces"]
