"""JSON lines: one object a line that contains both sides, by language or as source and target.

The shapes are `{"translation": {"de": …, "en": …}}`, as in Hugging Face datasets, `{"de": …, "en": …}` and
`{"source": …, "target": …}`. Languages are compared by their first subtag.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import TextError
from ibidem.text.document import DocumentBuilder, Edit, read_lines
from ibidem.text.inline import plain_text
from ibidem.text.pair import Dropped, PairWriter, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ibidem.text.document import Document, Line, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.pair import LocatedPair, ReadResult
    from ibidem.text.stream import Stream

_MAX_KEYS = 20
_MAX_KEY = 40
_SPACE = re.compile(r"[ \t\n\r]*")
_NOTES = ("note", "notes", "comment")


def read_jsonl(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pair of each line.

    The "origin" and the "location" of an object, as an exported memory has them, replace its own file and line.

    Args:
        stream: The opened file.
        languages: The two languages; they may be the keys of the sides.

    Raises:
        TextError: If a line is not a JSON object with both sides.
    """
    for number, line in stream.lines():
        if not line.strip():
            yield Dropped("blank line")
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{stream.name}, line {number}: {_describe_invalid(error)}") from error
        try:
            source, target = _find_pair(record, languages)
        except ValueError as error:
            raise TextError(f"{stream.name}, line {number}: {error}") from error
        yield Unit(source, target, number).with_origin(record.get("origin"), record.get("location"))


def _describe_invalid(error: Exception) -> str:
    return f"not valid JSON ({error}). Write one complete JSON object on each line."


def _find_sides(keys: Iterable[str], languages: Languages) -> dict[str, str]:
    """Return the first key of each language."""
    sides: dict[str, str] = {}
    for key in keys:
        if side := languages.match(key):
            sides.setdefault(side, key)
    return sides


def _find_pair(record: Any, languages: Languages) -> tuple[str, str]:
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        record = record["translation"]
    if not isinstance(record, dict):
        raise ValueError(f"a JSON {type(record).__name__} where an object must be. {_describe_shape(languages)}")
    sides = _find_sides(record, languages)
    if not sides and "source" in record and "target" in record:
        sides = {languages.source: "source", languages.target: "target"}
    for language in (languages.source, languages.target):
        if language not in sides:
            raise ValueError(
                f"no {language!r} side; the keys found are: {_list_keys(record)}. {_describe_shape(languages)}"
            )
    return _get_string(record, sides[languages.source]), _get_string(record, sides[languages.target])


def _list_keys(record: Iterable[str]) -> str:
    shown = [repr(key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}…") for key in islice(record, _MAX_KEYS + 1)]
    return ", ".join([*shown[:_MAX_KEYS], *(["…"] if len(shown) > _MAX_KEYS else [])]) or "none"


def _get_string(record: dict[str, Any], key: str) -> str:
    text = record[key]
    if not isinstance(text, str):
        raise ValueError(
            f"the value of {key!r} is {type(text).__name__}, not a string; the keys found are: {_list_keys(record)}. "
            "Make it a string, or remove the line."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the value of {key!r} has half a surrogate pair (\\u{ord(text[error.start]):04x}), which is no "
            "character. Escape both halves, or write the character itself."
        ) from error
    return text


def _describe_shape(languages: Languages) -> str:
    return (
        f'Write {{"translation": {{"{languages.source}": …, "{languages.target}": …}}}}, or choose the '
        "languages with --source-language and --target-language."
    )


class _Member(NamedTuple):
    """A member of an object: its value, and the columns of the end of its key and of its value."""

    value: Any
    key_end: int
    start: int
    end: int


def read_jsonl_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read a document of lines whose target may be missing, null or empty.

    Args:
        data: The file, in UTF-8.
        name: Its name, for messages.
        languages: The two languages; they may be the keys of the sides.

    Raises:
        TextError: If a line is not a JSON object with a source.
    """
    builder = DocumentBuilder()
    for line in read_lines(data, name):
        if not line.text.strip():
            continue
        try:
            _add_segment(line, builder, languages)
        except ValueError as error:
            raise TextError(f"{name}, line {line.number}: {error}") from error
    return builder.build(name, "JSONL", data, _choose_encoder(data))


def _add_segment(line: Line, builder: DocumentBuilder, languages: Languages) -> None:
    outer = _parse_members(line.text, 0)
    nested = outer.get("translation")
    members = _parse_members(line.text, nested.start) if nested and isinstance(nested.value, dict) else outer
    sides = _find_sides(members, languages)
    if languages.source not in sides and "source" in members:
        sides = {languages.source: "source", languages.target: "target"}
    if languages.source not in sides:
        found = _list_keys(members)
        raise ValueError(f'no {languages.source!r} side; the keys found are: {found}. Name it so, or "source".')
    source = members[sides[languages.source]]
    target_key = sides.get(languages.target, languages.target)
    target = members.get(target_key)
    if not isinstance(source.value, str) or not isinstance(target.value if target else None, str | None):
        raise ValueError("the source must be a string, and the target a string or null.")
    context = outer["context"].value if "context" in outer else None
    number = builder.add(
        (source.value,),
        line.number,
        target=(target.value or "") if target else "",
        context=context if isinstance(context, str) else None,
        notes=tuple(str(outer[key].value) for key in _NOTES if key in outer),
    )
    if target is not None:
        edit = Edit(line.position(target.start), line.position(target.end), (number,), (number,))
    else:
        end = line.position(source.end)
        between = line.text[source.key_end : source.start]
        edit = Edit(end, end, (number,), (f", {json.dumps(target_key)}{between}".encode(), number))
    builder.edits.append(edit)


def _parse_members(text: str, position: int) -> dict[str, _Member]:
    """Return the members of the object at a position; of members with the same key, the last one counts."""
    decoder = json.JSONDecoder()
    position = _skip_space(text, position)
    members: dict[str, _Member] = {}
    try:
        whole, end = decoder.raw_decode(text, position)
        if not isinstance(whole, dict):
            raise ValueError(f"a JSON {type(whole).__name__} where an object must be. Write one object on each line.")
        if position == _skip_space(text, 0) and _skip_space(text, end) < len(text):
            raise ValueError("something follows the object. Write one JSON object on each line.")
        position = _skip_space(text, position + 1)
        while text[position] != "}":
            key, key_end = decoder.raw_decode(text, position)
            start = _skip_space(text, _skip_space(text, key_end) + 1)
            value, end = decoder.raw_decode(text, start)
            members[key] = _Member(value, key_end, start, end)
            position = _skip_space(text, end)
            if text[position] == ",":
                position = _skip_space(text, position + 1)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(_describe_invalid(error)) from error
    return members


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _choose_encoder(data: bytes) -> Callable[[Segment, Pieces], bytes]:
    """Return an encoder that escapes what is not ASCII if the file does so."""
    escapes = data.isascii() and b"\\u" in data

    def encode(_: Segment, pieces: Pieces) -> bytes:
        return json.dumps(plain_text(pieces), ensure_ascii=escapes).encode("utf-8")

    return encode


def _format_pair(pair: LocatedPair, languages: Languages) -> tuple[str, bool]:
    sides = {languages.source: pair.source, languages.target: pair.target}
    record = {"translation": sides, "origin": pair.origin, "location": pair.location}
    return f"{json.dumps(record, ensure_ascii=False)}\n", False


JSONL_WRITER = PairWriter(lambda _: "", _format_pair)
"""Writes pairs as JSON lines, with their origins and locations."""
