"""JSON files of translations: every string value is a text, at any depth.

Of ARB files and of the files of browser extensions only the messages are texts, not the descriptions beside them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.inline import Code, plain_text
from ibidem.text.replacement import ReplacementBuilder, TextFile
from ibidem.text.stream import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*+")|(?P<mark>[{}\[\],:])|(?P<other>[^\s{}\[\],:"]++))"""
)
_MESSAGE_KEYS = frozenset({"message", "defaultMessage"})
_NESTING = re.compile(r"\$t\([^()\n]*\)")


class JsonString(NamedTuple):
    """A string value of a JSON file.

    Attributes:
        path: The keys and numbers that lead to it.
        start: The number of its first character, the quote.
        end: The number of the character after its last quote.
        value: The text.
    """

    path: tuple[str, ...]
    start: int
    end: int
    value: str


def find_strings(file: TextFile) -> Iterator[JsonString]:
    """Yield the string values of a JSON file in order.

    Args:
        file: The file.

    Raises:
        TextError: If the file is not valid JSON, or is nested too deeply; the message names the line.
    """
    # An entry for each open object or list: the key or the number of the current member, None before it is known.
    stack: list[str | int | None] = []
    expects_value, place = True, 0
    text = file.text
    while found := _TOKEN.match(text, place):
        place = found.end()
        start = found.start(found.lastgroup or 0)
        if found.lastgroup == "string":
            value = _decode(file, start, found["string"])
            if expects_value:
                yield JsonString(tuple(str(key) for key in stack), start, place, value)
                expects_value = False
            elif stack and stack[-1] is None:
                stack[-1] = value
            else:
                raise _error(file, start)
        elif found["mark"] in ("{", "[") and expects_value:
            if len(stack) == MAX_DEPTH:
                raise TextError(
                    f"{file.name}, line {file.line_of(start)}: more than {MAX_DEPTH} levels. Check the file."
                )
            stack.append(None if found["mark"] == "{" else 0)
            expects_value = found["mark"] == "["
        elif found["mark"] in ("}", "]") and stack and isinstance(stack[-1], int) == (found["mark"] == "]"):
            stack.pop()
            expects_value = False
        elif found["mark"] == ":" and stack and isinstance(stack[-1], str) and not expects_value:
            expects_value = True
        elif found["mark"] == "," and stack and stack[-1] is not None:
            top = stack[-1]
            stack[-1] = top + 1 if isinstance(top, int) else None
            expects_value = isinstance(top, int)
        elif found["other"] and expects_value:
            expects_value = False
        else:
            raise _error(file, start)
    if stack or text[place:].strip():
        raise _error(file, place)


def _decode(file: TextFile, start: int, written: str) -> str:
    try:
        value = str(json.loads(written))
        value.encode("utf-8")
    except (ValueError, UnicodeEncodeError) as error:
        raise _error(file, start) from error
    return value


def _error(file: TextFile, place: int) -> TextError:
    return TextError(
        f"{file.name}, line {file.line_of(place)}: not valid JSON. `python -m json.tool FILE` shows the place."
    )


def read_json_document(data: bytes, name: str) -> Document:
    """Read a JSON file as a document whose string values are replaced by their translations.

    Args:
        data: The file, in UTF-8, or UTF-16 with a byte order mark.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not valid JSON.
    """
    file, builder = TextFile(data, name), ReplacementBuilder(name=name)
    strings = list(find_strings(file))
    keys = {string.path[-1] for string in strings if len(string.path) > 1}
    only = _MESSAGE_KEYS & keys if keys & {"description", "placeholders"} else set()
    escapes = data.isascii() and b"\\u" in data

    def encode(pieces: Pieces) -> bytes:
        return file.encode(json.dumps("".join(map(_write, pieces)), ensure_ascii=escapes))

    for string in strings:
        is_metadata = any(key.startswith("@") for key in string.path)
        if is_metadata or (only and string.path[-1] not in only):
            continue
        span = file.span(string.start, string.end)
        context = ".".join(string.path)
        pieces = _split_nesting(string.value)
        builder.replace(data, span, pieces, file.line_of(string.start), encode, accelerators=True, context=context)
    return builder.build_replaced(name, "JSON", data)


def _split_nesting(text: str) -> Pieces:
    """Return a text in which references to other texts (`$t(key)` of i18next) are codes."""
    pieces: list[str | Code] = []
    last = 0
    for found in _NESTING.finditer(text):
        pieces += [text[last : found.start()], Code(found[0])]
        last = found.end()
    return tuple(piece for piece in (*pieces, text[last:]) if piece != "")


def _write(piece: str | Code) -> str:
    return piece.text if isinstance(piece, Code) else plain_text((piece,))
