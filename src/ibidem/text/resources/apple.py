"""Apple's .strings files: the values are texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.inline import plain_text
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_ENTRY = re.compile(
    rf"(?P<space>\s++|/\*.*?\*/|//[^\n]*+)|(?P<key>{_QUOTED}|[\w.$-]++)\s*+=\s*+(?P<value>{_QUOTED}|[\w.$-]++)\s*+;",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:[uU]([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r"}


def read_strings_document(data: bytes, name: str) -> Document:
    """Read a .strings file as a document whose values are replaced by their translations.

    Args:
        data: The file, in UTF-8, or UTF-16 with a byte order mark.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not valid; the message names the line.
    """
    file, builder = TextFile(data, name), ReplacementBuilder(name=name)

    def encode(pieces: Pieces) -> bytes:
        return file.encode(f'"{_escape(plain_text(pieces))}"')

    place = 0
    while place < len(file.text):
        found = _ENTRY.match(file.text, place)
        if found is None:
            raise TextError(
                f'{name}, line {file.line_of(place)}: not an entry of the form "key" = "value"; . Correct this line; '
                "`plutil -lint FILE` shows the place."
            )
        place = found.end()
        if found["value"] and found["value"].startswith('"'):
            span = file.span(found.start("value"), found.end("value"))
            line = file.line_of(found.start("value"))
            source = _unescape(found["value"][1:-1])
            builder.replace(data, span, (source,), line, encode, accelerators=True, context=found["key"].strip('"'))
    return builder.build_replaced(name, "strings", data)


def _unescape(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _CHARACTERS.get(found[2], found[2])

    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
