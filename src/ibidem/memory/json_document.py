"""JSON documents of a memory: written with a checksum of their content, read with every field checked."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError
from ibidem.memory.files import DamagedFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


# The checksum is at a fixed place at the beginning, so that it covers every byte after it.
_SEAL = b'{\n "checksum": "'
_SEALED_FROM = len(_SEAL) + 64


def encode_document(document: Mapping[str, Any], what: str) -> bytes:
    """Encode a document as JSON with the sha256 of all that follows it in the first field.

    `what` names the document in the UsageError that is raised for a value that JSON cannot hold.
    """
    try:
        text = json.dumps({"checksum": "0" * 64, **document}, ensure_ascii=False, indent=1, allow_nan=False)
        content = text.encode("utf-8") + b"\n"
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} cannot be written as JSON: {error}") from error
    body = content[_SEALED_FROM:]
    return _SEAL + hashlib.sha256(body).hexdigest().encode("ascii") + body


def has_valid_checksum(content: bytes) -> bool:
    """Return whether the checksum at the beginning is that of the rest."""
    sealed, body = content[:_SEALED_FROM], content[_SEALED_FROM:]
    return sealed == _SEAL + hashlib.sha256(body).hexdigest().encode("ascii")


# Sums and products of sizes stay far from the end of int64 below this bound.
LARGEST = 1 << 48
LARGEST_DIMENSION = 1 << 20


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse(content: bytes, file: Path) -> Fields:
    """The fields of a JSON object; raises DamagedFile for anything else."""
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(file, f"it is not JSON ({error})") from error
    return Fields(value, file)


class Fields:
    """A JSON object of `file`; a field that is missing or of another type raises DamagedFile naming both."""

    def __init__(self, value: Any, file: Path, where: str = "") -> None:
        self.file = file
        self._where = where
        if not isinstance(value, dict):
            raise DamagedFile(file, f"{where or 'the whole'} is not a JSON object")
        self._value: dict[str, Any] = value

    def field_error(self, name: str, wanted: str) -> DamagedFile:
        """The error for a field that is not what was wanted."""
        shown = repr(self._value[name])[:60] if name in self._value else "missing"
        return DamagedFile(self.file, f"field '{self._path(name)}' is {shown}, not {wanted}")

    def names(self) -> list[str]:
        """The names of all fields, in the order of the file."""
        return list(self._value)

    def integer(self, name: str, least: int = 0, most: int = LARGEST) -> int:
        """A whole number between `least` and `most`."""
        value = self._value.get(name)
        if type(value) is not int or not least <= value <= most:
            raise self.field_error(name, f"a whole number from {least} to {most}")
        return value

    def optional_integer(self, name: str, least: int = 0, most: int = LARGEST) -> int | None:
        """A whole number between `least` and `most`, or null."""
        if name in self._value and self._value[name] is None:
            return None
        return self.integer(name, least, most)

    def integers(self, name: str, least: int = 0, most: int = LARGEST) -> tuple[int, ...]:
        """A list of whole numbers between `least` and `most`."""
        value = self._list(name, f"a list of whole numbers from {least} to {most}")
        if any(type(item) is not int or not least <= item <= most for item in value):
            raise self.field_error(name, f"a list of whole numbers from {least} to {most}")
        return tuple(value)

    def flag(self, name: str) -> bool:
        """true or false."""
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise self.field_error(name, "true or false")
        return value

    def text(self, name: str, pattern: str = r"(?s:.*)", wanted: str = "a string") -> str:
        """A string that matches a pattern wholly."""
        value = self._value.get(name)
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise self.field_error(name, wanted)
        return value

    def optional_text(self, name: str) -> str | None:
        """A string or null."""
        if name in self._value and self._value[name] is None:
            return None
        return self.text(name, wanted="a string or null")

    def sha256(self, name: str) -> str:
        """A sha256 in hexadecimal."""
        return self.text(name, r"[0-9a-f]{64}", "a sha256 of 64 hexadecimal digits")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, each once."""
        value = self.all_texts(name)
        if len(set(value)) < len(value):
            raise self.field_error(name, "a list of strings, each once")
        return value

    def all_texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._list(name, "a list of strings")
        if any(not isinstance(item, str) for item in value):
            raise self.field_error(name, "a list of strings")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """A JSON object as it is, for what others wrote."""
        return self.fields(name)._value

    def optional_mapping(self, name: str) -> dict[str, Any] | None:
        """A JSON object as it is, or null."""
        if name in self._value and self._value[name] is None:
            return None
        return self.mapping(name)

    def fields(self, name: str) -> Fields:
        """A JSON object whose fields will be taken in turn."""
        if name not in self._value:
            raise self.field_error(name, "a JSON object")
        return Fields(self._value[name], self.file, self._path(name))

    def list_of_fields(self, name: str) -> list[Fields]:
        """A list of JSON objects."""
        items = self._list(name, "a list of JSON objects")
        return [Fields(item, self.file, f"{self._path(name)}[{i}]") for i, item in enumerate(items)]

    def _list(self, name: str, wanted: str) -> list[Any]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.field_error(name, wanted)
        return value

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name
