"""Apple's string catalogues (.xcstrings): a JSON file with the texts of all languages by key.

The text of the source language is the key itself unless the file has a localization of it. New translations get the
state `needs_review`. A localization with variations (plural, device) or substitutions gets the same ones in the target
language, with a translation of each text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ibidem.errors import TextError
from ibidem.text.document import DeclaredLanguage, DocumentBuilder, Edit
from ibidem.text.inline import plain_text
from ibidem.text.language import primary_language
from ibidem.text.replacement import TextFile
from ibidem.text.resources.json_file import JsonValue, find_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.document import Document, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages

_SEPARATOR = re.compile(r'"sourceLanguage"(\s*:\s*)"')
_INDENT = re.compile(r'\{\r?\n([ \t]+)"')
_NEW = "new"
_DOUBTFUL = frozenset({"needs_review", "stale"})
_REVIEW = '"needs_review"'
# JSON cannot contain it, so it can enclose the number of a segment.
_NUL = "\0"

_Template: TypeAlias = "dict[str, _Template] | str | int"
"""A value to be written: an object, the JSON of a value, or the number of the segment that is translated for it."""


@dataclass(slots=True)
class _Node:
    """A value with its members by key, in the order of the file; of equal keys the last one counts."""

    value: JsonValue
    members: dict[str, _Node] = field(default_factory=dict)

    def find(self, *path: str) -> _Node | None:
        node: _Node | None = self
        for key in path:
            node = None if node is None else node.members.get(key)
        return node

    def text(self, *path: str) -> str | None:
        node = self.find(*path)
        return node.value.text if node is not None and node.value.kind == "string" else None

    def find_units(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Node]]:
        """Yield the objects with a text, which are named `stringUnit`, and the keys that lead to them."""
        for key, member in self.members.items():
            if key == "stringUnit" and member.text("value") is not None:
                yield (*path, key), member
            else:
                yield from member.find_units((*path, key))


def read_xcstrings_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read a string catalogue as a document whose missing translations are filled in.

    Args:
        data: The file, in UTF-8.
        name: Its name, for messages.
        languages: The language to translate into.

    Raises:
        TextError: If the file is not valid JSON, or not a string catalogue.
    """
    file = TextFile(data, name)
    root = _read_tree(file)
    declared, strings = root.find("sourceLanguage"), root.find("strings")
    if declared is None or declared.value.kind != "string" or strings is None or strings.value.kind != "object":
        raise TextError(
            f'{name}: no string catalogue, since "sourceLanguage" or "strings" is missing. Check the file, or choose '
            "--format json if it is another JSON file."
        )
    reader = _Reader(file, declared.value.text, languages.target)
    line = file.line_of(declared.value.start)
    reader.builder.languages.append(DeclaredLanguage(False, declared.value.text, line))
    for key, entry in strings.members.items():
        if entry.value.kind == "object":
            reader.add_entry(key, entry)
    return reader.builder.build(name, "string catalogue", data, reader.encode)


def _read_tree(file: TextFile) -> _Node:
    """Return the root of a JSON file; the members of a list have their numbers as keys."""
    members: dict[tuple[str, ...], dict[str, _Node]] = {}
    values = list(find_values(file))
    for value in values[:-1]:
        # A container comes after its members.
        node = _Node(value, members.pop(value.path, {}))
        siblings = members.setdefault(value.path[:-1], {})
        siblings.pop(value.path[-1], None)
        siblings[value.path[-1]] = node
    return _Node(values[-1], members.get((), {}))


class _Reader:
    """Collects the texts of a catalogue, and the edits that insert their translations.

    Args:
        file: The file.
        source: Its source language, as the file writes it.
        target: The primary subtag of the language to translate into.
    """

    def __init__(self, file: TextFile, source: str, target: str) -> None:
        self.builder = DocumentBuilder()
        self._file = file
        self._source = source
        self._target = target
        separator, indent = _SEPARATOR.search(file.text), _INDENT.search(file.text)
        self._separator = separator[1] if separator else " : "
        self._indent = indent[1] if indent else ""

    def encode(self, _: Segment, pieces: Pieces) -> bytes:
        """Encode a translation."""
        return self._file.encode(json.dumps(plain_text(pieces), ensure_ascii=False))

    def add_entry(self, key: str, entry: _Node) -> None:
        """Add the texts of a key."""
        localizations = entry.find("localizations")
        known = localizations.members if localizations is not None else {}
        should, comment = entry.find("shouldTranslate"), entry.text("comment")
        details: dict[str, Any] = {
            "context": key,
            "notes": (comment,) if comment else (),
            "locked": "shouldTranslate false" if should is not None and should.value.text == "false" else "",
        }
        origin = known.get(self._source)
        language = next((one for one in known if primary_language(one) == self._target), None)
        units = list(known[language].find_units()) if language is not None else []
        for path, unit in units:
            self._add_existing(_find_source(key, origin, path), unit, details)
        if units:
            return
        numbers: list[int] = []
        template = self._make_template(key, entry, origin, numbers, details)
        if language is not None:
            span = self._file.span(known[language].value.start, known[language].value.end)
            self._edit(*span, self._write(template, len(known[language].value.path)), numbers)
        elif localizations is not None and localizations.value.kind == "object":
            self._insert(localizations, self._target, template, numbers)
        else:
            self._insert(entry, "localizations", {self._target: template}, numbers)

    def _add_existing(self, source: str, unit: _Node, details: dict[str, Any]) -> None:
        """Add a text that has a place for its translation."""
        value, state = unit.members["value"].value, unit.find("state")
        written = unit.text("state")
        number = self.builder.add(
            (source,),
            self._file.line_of(value.start),
            target=value.text,
            filled=bool(value.text.strip()) and written != _NEW,
            fuzzy=written in _DOUBTFUL,
            **details,
        )
        self.builder.edits.append(Edit(*self._file.span(value.start, value.end), (number,), (number,)))
        if state is not None:
            span = self._file.span(state.value.start, state.value.end)
            self.builder.edits.append(Edit(*span, (number,), (self._file.encode(_REVIEW),)))

    def _make_template(
        self, key: str, entry: _Node, origin: _Node | None, numbers: list[int], details: dict[str, Any]
    ) -> _Template:
        """Return a localization with the structure of that of the source language."""

        def add(text: str, line: int) -> _Template:
            numbers.append(self.builder.add((text,), line, **details))
            return {"state": _REVIEW, "value": numbers[-1]}

        def copy(node: _Node) -> _Template:
            if node.value.kind != "object":
                return self._file.text[node.value.start : node.value.end]
            copied: dict[str, _Template] = {}
            for name, member in node.members.items():
                text = member.text("value") if name == "stringUnit" else None
                is_text = text is not None and bool(text.strip())
                line = self._file.line_of(member.value.start)
                copied[name] = add(text, line) if text is not None and is_text else copy(member)
            return copied

        if origin is None or not any(origin.find_units()):
            return {"stringUnit": add(key, self._file.line_of(entry.value.start))}
        return copy(origin)

    def _insert(self, parent: _Node, key: str, value: _Template, numbers: list[int]) -> None:
        """Add the edit that inserts a member in the order of the keys, as Xcode sorts them."""
        depth = len(parent.value.path)
        written = f"{json.dumps(key)}{self._separator}{self._write(value, depth + 1)}"
        before = [member for name, member in parent.members.items() if name < key]
        if before:
            place = after = max(member.value.end for member in before)
            written = f",{self._line(depth + 1)}{written}"
        else:
            place = after = parent.value.start + 1
            written = f"{self._line(depth + 1)}{written}"
            if parent.members:
                written += ","
            else:
                after = parent.value.end - 1
                written += self._line(depth)
        self._edit(*self._file.span(place, after), written, numbers)

    def _edit(self, start: int, end: int, written: str, numbers: list[int]) -> None:
        parts = [int(part) if place % 2 else self._file.encode(part) for place, part in enumerate(written.split(_NUL))]
        self.builder.edits.append(Edit(start, end, tuple(numbers), tuple(parts), whole=True))

    def _write(self, value: _Template, depth: int) -> str:
        """Write a value as JSON, in which numbers of segments stand between NUL characters."""
        if isinstance(value, int):
            return f"{_NUL}{value}{_NUL}"
        if isinstance(value, str):
            return value
        members = (
            f"{self._line(depth + 1)}{json.dumps(key)}{self._separator}{self._write(one, depth + 1)}"
            for key, one in value.items()
        )
        return "{" + ",".join(members) + self._line(depth) + "}"

    def _line(self, depth: int) -> str:
        """Return a line break with indentation; nothing in a file without them."""
        return f"{self._file.newline}{self._indent * depth}" if self._indent else ""


def _find_source(key: str, origin: _Node | None, path: tuple[str, ...]) -> str:
    """Return the source text at the place of a translation, else that of the plural `other`, else the whole text."""
    paths = (path, (*path[:-2], "other", "stringUnit"), ("stringUnit",))
    texts = (origin.text(*one, "value") for one in paths) if origin is not None else ()
    return next((text for text in texts if text is not None), key)
