"""Documents whose texts are replaced by their translations, such as HTML or a word processor's file."""

from __future__ import annotations

from bisect import bisect_right
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, lookup
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import TextError
from ibidem.text.document import Document, DocumentBuilder, Edit
from ibidem.text.inline import Code, has_letters, plain_text
from ibidem.text.stream import BLOCK_BYTES, RECODE, invalid_byte, refuse_binary

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.text.document import Segment
    from ibidem.text.inline import Pieces

_MARKS = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16-le", BOM_UTF16_BE: "utf-16-be"}
_MAX_SHOWN = 40

MAX_TEXTS = 100_000
"""The most texts of one document, each of which takes some kilobytes of memory."""


class _Text(NamedTuple):
    """The bytes of a text in its file, and the function that encodes a translation in their place."""

    original: bytes | None
    encode: Callable[[Pieces], bytes]


@dataclass(slots=True)
class ReplacementBuilder(DocumentBuilder):
    """Collects the texts of a document that translations replace; a translation equal to its source changes no byte.

    Attributes:
        name: The name of the file, for messages.
        texts: The original bytes and the encoder of each text, by the number of its segment.
    """

    name: str = "the document"
    texts: dict[int, _Text] = field(default_factory=dict)

    def replace(
        self,
        data: bytes,
        span: tuple[int, int],
        source: Pieces,
        location: int,
        encode: Callable[[Pieces], bytes],
        *,
        edits: list[Edit] | None = None,
        accelerators: bool = False,
        **details: Any,
    ) -> int | None:
        """Add a text; one without letters is left as it is and is no segment.

        Args:
            data: The bytes of the file.
            span: The positions of the first byte of the text and of the byte after the last one.
            source: The text and its codes.
            location: The line of the text.
            encode: Encodes a translation; raises ValueError for a text that the format cannot contain.
            edits: The list that gets the edit, by default that of the builder.
            accelerators: Whether the text may be a label of a user interface; prose has no accelerators.
            **details: Other fields of the `Segment`.

        Returns:
            The number of the segment, None if the text has no letters.

        Raises:
            TextError: If there are more than MAX_TEXTS texts.
        """
        if not has_letters(plain_text(source)):
            return None
        if len(self.texts) == MAX_TEXTS:
            raise TextError(f"{self.name}: more than {MAX_TEXTS:,} texts. Divide it into several files.")
        number = self.add(source, location, accelerators=accelerators, **details)
        self.set_text(number, data[slice(*span)], encode)
        (self.edits if edits is None else edits).append(Edit(*span, (number,), (number,)))
        return number

    def set_text(self, number: int, original: bytes | None, encode: Callable[[Pieces], bytes]) -> None:
        """Set how the translation of a segment is encoded.

        Args:
            number: The number of the segment.
            original: The bytes that are written for a translation equal to the source; None to encode it too.
            encode: As in `replace`.
        """
        self.texts[number] = _Text(original, encode)

    def encode(self, segment: Segment, pieces: Pieces) -> bytes:
        """Encode a translation, or return the original bytes if it is the same text.

        Args:
            segment: The segment.
            pieces: Its translation.
        """
        text = self.texts[segment.number]
        if text.original is not None and _normalise(pieces) == _normalise(segment.source):
            return text.original
        return text.encode(pieces)

    def build_replaced(self, name: str, format: str, data: bytes) -> Document:
        """Return the document of everything that was added.

        Args:
            name: The name of the file, for messages.
            format: The name of the format, for reports.
            data: The bytes of the file.
        """
        return self.build(name, format, data, self.encode)


def _normalise(pieces: Pieces) -> list[str | Code]:
    """Join adjacent strings, and make each run of white space one space."""
    found: list[str | Code] = []
    for is_code, group in groupby(pieces, lambda piece: isinstance(piece, Code)):
        members = list(group)
        found += members if is_code else [" ".join("".join(map(str, members)).split())]
    return [piece for piece in found if piece != ""]


class TextFile:
    r"""A text file, decoded as a whole, with the positions of its characters in bytes and lines.

    Args:
        data: The bytes of the file. A byte order mark decides between UTF-8 and UTF-16.
        name: The name of the file, for messages.
        codec: The encoding of a file without a mark.
        remedy: The advice for a byte that the encoding does not have.

    Attributes:
        data: The bytes.
        text: The characters, without the mark.
        codec: The encoding.
        newline: The line end that the file uses.

    Raises:
        TextError: If the file is not in this encoding.

    Examples:
        >>> file = TextFile("ä\nb".encode(), "a.txt")
        >>> file.line_of(2), file.span(2, 3)
        (2, (3, 4))
    """

    def __init__(self, data: bytes, name: str, codec: str = "utf-8", remedy: str = RECODE) -> None:
        mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
        self.data = data
        self.name = name
        self.codec = _MARKS.get(mark, codec)
        self._first = len(mark)
        if not self.codec.startswith("utf-16"):
            refuse_binary(data[:BLOCK_BYTES], name)
        try:
            self.text = data[len(mark) :].decode(self.codec)
        except UnicodeDecodeError as error:
            start = len(mark) + error.start
            raise invalid_byte(name, data.count(b"\n", 0, start) + 1, data[start], remedy) from error
        except LookupError as error:
            raise TextError(f"{name}: the encoding {codec[:_MAX_SHOWN]!r} is unknown. {remedy}") from error
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self._width = {"utf-16-le": 2, "utf-16-be": 2}.get(self.codec, 1)
        self._is_direct = self.text.isascii() or lookup(self.codec).name in ("iso8859-1", "cp1252", "ascii")
        self._lines = [0]
        place = self.text.find("\n")
        while place >= 0:
            self._lines.append(place + 1)
            place = self.text.find("\n", place + 1)
        self._known = (0, 0)

    def line_of(self, place: int) -> int:
        """Return the line of a character, from 1.

        Args:
            place: The number of the character, from 0.
        """
        return bisect_right(self._lines, place)

    def position(self, place: int) -> int:
        """Return the position of a character in bytes; positions that are requested in order cost linear time.

        Args:
            place: The number of the character, from 0; the length of the text stands for its end.
        """
        if self._is_direct:
            return self._first + place * self._width
        known, position = self._known if self._known[0] <= place else (0, 0)
        position += len(self.text[known:place].encode(self.codec))
        self._known = (place, position)
        return self._first + position

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the positions in bytes of the start and the end of a text.

        Args:
            start: The number of its first character.
            end: The number of the character after it.
        """
        first = self.position(start)
        return first, self.position(end)

    def encode(self, text: str) -> bytes:
        """Encode a text for the file.

        Args:
            text: The text.

        Raises:
            ValueError: If the encoding lacks a character.
        """
        try:
            return text.encode(self.codec)
        except UnicodeEncodeError as error:
            character = ord(text[error.start])
            raise ValueError(f"the encoding {self.codec} lacks the character U+{character:04X}") from error
