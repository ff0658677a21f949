"""Java property files: the values are texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.text.inline import plain_text
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

# A logical line: continued lines end with an odd number of backslashes.
_ENTRY = re.compile(
    r"^[ \t\f]*+(?![#!\r\n])(?P<key>(?:[^\\\s=:]|\\.)++)(?P<between>[ \t\f]*+[=:]?[ \t\f]*+)"
    r"(?P<value>(?:[^\\\r\n]|\\(?:\r\n|[^\r]))*+)",
    re.MULTILINE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(?:\r\n|\n)[ \t\f]*|(.))", re.DOTALL)
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ARGUMENT = re.compile(r"\{[0-9]+[,}]")


def read_properties_document(data: bytes, name: str) -> Document:
    r"""Read a property file as a document whose values are replaced by their translations.

    A file that is not UTF-8 is read as ISO-8859-1, as Java up to version 8 does. Characters that are not ASCII are
    written as `\uXXXX` if the file has none of them. Where a value has arguments (`{0}`), an apostrophe is doubled, as
    MessageFormat needs it.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not text.
    """
    codec = "utf-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        codec = "iso-8859-1"
    file, builder = TextFile(data, name, codec), ReplacementBuilder(name=name)
    escapes = codec != "utf-8" or data.isascii()
    for found in _ENTRY.finditer(file.text):
        value = _unescape(found["value"])
        has_arguments = _ARGUMENT.search(value) is not None
        source = value.replace("''", "'") if has_arguments else value

        def encode(pieces: Pieces, has_arguments: bool = has_arguments) -> bytes:
            text = plain_text(pieces)
            written = _escape(text.replace("'", "''") if has_arguments else text)
            return _to_ascii(written).encode("ascii") if escapes else file.encode(written)

        span = file.span(found.start("value"), found.end("value"))
        line = file.line_of(found.start())
        builder.replace(data, span, (source,), line, encode, accelerators=True, context=_unescape(found["key"]))
    return builder.build_replaced(name, "properties", data)


def _unescape(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _CHARACTERS.get(found[2], found[2]) if found[2] else ""

    unescaped = _ESCAPE.sub(character, text)
    # Characters beyond the first plane are written as two surrogates.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str) -> str:
    written = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    )
    return f"\\{written}" if written.startswith(" ") else written


def _to_ascii(text: str) -> str:
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)
