"""JSON lines: an object on each line that names its source, and its target unless it has none yet."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import TextError
from ibidem.text.documents.document import Document, Draft, Edit
from ibidem.text.documents.lines import read_lines
from ibidem.text.documents.segment import State
from ibidem.text.inline import plain_text
from ibidem.text.jsonl import list_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.text.documents.lines import Line
    from ibidem.text.documents.segment import Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages

_SPACE = re.compile(r"[ \t\n\r]*")
_NOTES = ("note", "notes", "comment")


class _Member(NamedTuple):
    """A member of an object: its value, and where key and value begin and end in the line."""

    value: Any
    key_start: int
    key_end: int
    start: int
    end: int


def read_jsonl_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read lines of any of the shapes that `read_jsonl` knows; a target may be missing, null or empty."""
    draft = Draft()
    for line in read_lines(data, name):
        if not line.text.strip():
            continue
        try:
            _add(line, draft, languages)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{name}, line {line.number}: {error}") from error
    return Document(name, "JSONL", data, draft.segments, draft.edits, _encoder(data))


def _add(line: Line, draft: Draft, languages: Languages) -> None:
    outer = _members(line.text, 0)
    nested = outer.get("translation")
    members = _members(line.text, nested.start) if nested and isinstance(nested.value, dict) else outer
    sides = {side: key for key in reversed(members) if (side := languages.match(key))}
    if languages.source not in sides and "source" in members:
        sides = {languages.source: "source", languages.target: "target"}
    if languages.source not in sides:
        found = list_keys(members)
        raise ValueError(f'no {languages.source!r} side; the keys found are: {found}. Name it so, or "source".')
    source = members[sides[languages.source]]
    target_key = sides.get(languages.target, languages.target)
    target = members.get(target_key)
    if not isinstance(source.value, str) or not isinstance(target.value if target else None, str | None):
        raise ValueError("the source must be a string, and the target a string or null.")
    blank = not source.value.strip()
    existing = target.value or "" if target else ""
    context = outer["context"].value if "context" in outer else None
    number = draft.add(
        source=(source.value,),
        location=line.number,
        target=existing,
        state=State.LOCKED if blank else State.FILLED if existing.strip() else State.EMPTY,
        locked="an empty source" if blank else "",
        context=context if isinstance(context, str) else None,
        notes=tuple(str(outer[key].value) for key in _NOTES if key in outer),
    )
    if target is not None:
        edit = Edit(line.place(target.start), line.place(target.end), (number,), (number,))
    else:
        end = line.place(source.end)
        between = line.text[source.key_end : source.start]
        edit = Edit(end, end, (number,), (f", {json.dumps(target_key)}{between}".encode(), number))
    draft.edits.append(edit)


def _members(text: str, place: int) -> dict[str, _Member]:
    """The members of the object that begins here; of members with one key the last counts, as in Python."""
    decoder = json.JSONDecoder()
    place = _skip(text, place)
    members: dict[str, _Member] = {}
    try:
        whole, end = decoder.raw_decode(text, place)
        if not isinstance(whole, dict):
            raise ValueError(f"a JSON {type(whole).__name__} where an object must be. Write one object on each line.")
        if place == _skip(text, 0) and _skip(text, end) < len(text):
            raise ValueError("something follows the object. Write one JSON object on each line.")
        place = _skip(text, place + 1)
        while text[place] != "}":
            key, key_end = decoder.raw_decode(text, place)
            start = _skip(text, _skip(text, key_end) + 1)
            value, end = decoder.raw_decode(text, start)
            members[key] = _Member(value, place, key_end, start, end)
            place = _skip(text, end)
            if text[place] == ",":
                place = _skip(text, place + 1)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error}). Write one complete JSON object on each line.") from error
    return members


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _encoder(data: bytes) -> Callable[[Segment, Pieces], bytes]:
    """JSON strings with escapes for what is not ASCII, if the file writes it so."""
    escapes = data.isascii() and b"\\u" in data

    def encode(_: Segment, pieces: Pieces) -> bytes:
        return json.dumps(plain_text(pieces), ensure_ascii=escapes).encode("utf-8")

    return encode
