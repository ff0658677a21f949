"""JSON files of translations: every string value is a text, at any depth.

Of ARB files and of the files of browser extensions only the messages are texts, not the descriptions beside them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

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
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?")
_MESSAGE_KEYS = frozenset({"message", "defaultMessage"})
_NESTING = re.compile(r"\$t\([^()\n]*\)")


class JsonValue(NamedTuple):
    """A value of a JSON file.

    Attributes:
        path: The keys and numbers that lead to it.
        start: The number of its first character; that of a string is its quote.
        end: The number of the character after its last one.
        kind: What it is; a literal is a number, `true`, `false` or `null`.
        text: The text of a string without escapes, a literal as it is written, "" for an object or a list.
    """

    path: tuple[str, ...]
    start: int
    end: int
    kind: Literal["string", "literal", "object", "list"]
    text: str = ""


def find_values(file: TextFile) -> Iterator[JsonValue]:
    """Yield the values of a JSON file in the order of their ends: an object comes after its members.

    Args:
        file: The file.

    Raises:
        TextError: If the file is not valid JSON, or is nested too deeply; the message names the line.
    """
    # An entry for each open object or list: the key or the number of the current member, None before it is known.
    stack: list[str | int | None] = []
    starts: list[int] = []
    last, place = "", 0
    text = file.text
    while found := _TOKEN.match(text, place):
        place = found.end()
        start = found.start(found.lastgroup or 0)
        in_list = bool(stack) and isinstance(stack[-1], int)
        expects_value = last == ":" or (not stack and not last) or (in_list and last in ("[", ","))
        written = found["mark"]
        if found.lastgroup == "string":
            value = _decode(file, start, found["string"])
            if expects_value:
                yield JsonValue(_path(stack), start, place, "string", value)
                last = "value"
            elif stack and not in_list and last in ("{", ","):
                stack[-1] = value
                last = "key"
            else:
                raise _error(file, start)
        elif found["other"] and expects_value and _LITERAL.fullmatch(found["other"]):
            yield JsonValue(_path(stack), start, place, "literal", found["other"])
            last = "value"
        elif written in ("{", "[") and expects_value:
            if len(stack) == MAX_DEPTH:
                raise TextError(
                    f"{file.name}, line {file.line_of(start)}: more than {MAX_DEPTH} levels. Check the file."
                )
            stack.append(None if written == "{" else 0)
            starts.append(start)
            last = written
        elif (
            written in ("}", "]")
            and stack
            and last in ("value", "[" if in_list else "{")
            and in_list == (written == "]")
        ):
            stack.pop()
            yield JsonValue(_path(stack), starts.pop(), place, "list" if in_list else "object")
            last = "value"
        elif written == ":" and last == "key":
            last = written
        elif written == "," and stack and last == "value":
            top = stack[-1]
            stack[-1] = top + 1 if isinstance(top, int) else None
            last = written
        else:
            raise _error(file, start)
    if last != "value" or stack or text[place:].strip():
        raise _error(file, place)


def _path(stack: list[str | int | None]) -> tuple[str, ...]:
    return tuple(str(key) for key in stack)


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
    strings = [value for value in find_values(file) if value.kind == "string"]
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
        pieces = _split_nesting(string.text)
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
