"""Marian's tokens by SentencePiece directly, many times as fast as the Python tokenizer around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class MarianPieces:
    """One side of a Marian tokenizer: SentencePiece numbers pieces in its own way, the model in another."""

    def __init__(self, tokenizer: Any, *, target: bool) -> None:
        self._processor = tokenizer.spm_target if target else tokenizer.spm_source
        self._numbers = tokenizer.target_encoder if target and tokenizer.separate_vocabs else tokenizer.encoder
        self._unknown: int = self._numbers[tokenizer.unk_token]
        self._eos: int = tokenizer.eos_token_id
        pieces = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
        self._renumbered = [self._number(piece) for piece in pieces]

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """Token ids of each text, with the end of sentence; None where one starts with a >>language<< tag."""
        if any(text.startswith(">>") for text in texts):
            return None
        # For a list SentencePiece starts threads, which takes ten times as long as encoding one line.
        encode = self._processor.encode
        lines = [encode(texts[0], out_type=int)] if len(texts) == 1 else encode(list(texts), out_type=int)
        strange = self._processor.unk_id()
        return [
            self._encode_strange(text) if strange in line else [*map(self._renumbered.__getitem__, line), self._eos]
            for text, line in zip(texts, lines, strict=True)
        ]

    def _encode_strange(self, text: str) -> list[int]:
        """A text with pieces that this side's SentencePiece has no number for: the other side's may have one."""
        return [*map(self._number, self._processor.encode(text, out_type=str)), self._eos]

    def _number(self, piece: str) -> int:
        number: int = self._numbers.get(piece, self._unknown)
        return number


def pieces_of(tokenizer: Any, *, target: bool) -> MarianPieces | None:
    """The pieces of one side; None for other tokenizers than Marian's."""
    return MarianPieces(tokenizer, target=target) if type(tokenizer).__name__ == "MarianTokenizer" else None
