"""JSON documents of a memory: encoded with a checksum, decoded with a check of every field."""

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
_CHECKSUM_FIELD = b'{\n "checksum": "'
_CHECKSUM_END = len(_CHECKSUM_FIELD) + 64
# Sums and products of sizes below this bound do not overflow int64.
LARGEST = 1 << 48
LARGEST_DIMENSION = 1 << 20


def encode_document(document: Mapping[str, Any], what: str) -> bytes:
    """Encode an object as JSON; the first field is the sha256 of all bytes after it.

    Args:
        document: The object.
        what: The name of the document for the message.

    Returns:
        UTF-8 with a line break at the end.

    Raises:
        UsageError: The object contains a value that JSON cannot represent.
    """
    try:
        text = json.dumps({"checksum": "0" * 64, **document}, ensure_ascii=False, indent=1, allow_nan=False)
        content = text.encode("utf-8") + b"\n"
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} cannot be written as JSON: {error}") from error
    body = content[_CHECKSUM_END:]
    return _CHECKSUM_FIELD + hashlib.sha256(body).hexdigest().encode("ascii") + body


def has_valid_checksum(content: bytes) -> bool:
    """Return whether the checksum at the beginning is that of the rest.

    Args:
        content: All bytes of a file that `encode_document` made.
    """
    head, body = content[:_CHECKSUM_END], content[_CHECKSUM_END:]
    return head == _CHECKSUM_FIELD + hashlib.sha256(body).hexdigest().encode("ascii")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse(content: bytes, file: Path) -> Fields:
    """Parse a JSON object.

    Args:
        content: The bytes.
        file: The file for messages.

    Raises:
        DamagedFile: The content is not a JSON object.
    """
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(file, f"it is not JSON ({error})") from error
    return Fields(value, file)


class Fields:
    """A JSON object of a file, whose fields are read with a check of their types.

    Every method raises DamagedFile, with the file and the field, for a field that is missing or invalid.

    Attributes:
        file: The file, for messages.
    """

    def __init__(self, value: Any, file: Path, where: str = "") -> None:
        """Wrap a parsed object.

        Args:
            value: The parsed JSON.
            file: The file for messages.
            where: The path of the object in the file for messages.

        Raises:
            DamagedFile: The value is not an object.
        """
        self.file = file
        self._where = where
        if not isinstance(value, dict):
            raise DamagedFile(file, f"{where or 'the document'} is not a JSON object")
        self._value: dict[str, Any] = value

    def field_error(self, name: str, wanted: str) -> DamagedFile:
        """Return the error for an invalid field.

        Args:
            name: The field.
            wanted: The description of a valid value.
        """
        shown = repr(self._value[name])[:60] if name in self._value else "missing"
        return DamagedFile(self.file, f"field '{self._path(name)}' is {shown}, not {wanted}")

    def names(self) -> list[str]:
        """Return the names of all fields, in the order of the file."""
        return list(self._value)

    def integer(self, name: str, least: int = 0, most: int = LARGEST) -> int:
        """Return an integer in a range.

        Args:
            name: The field, which must be present.
            least: The smallest valid value.
            most: The largest valid value.
        """
        value = self._value.get(name)
        if type(value) is not int or not least <= value <= most:
            raise self.field_error(name, f"a whole number from {least} to {most}")
        return value

    def optional_integer(self, name: str, least: int = 0, most: int = LARGEST) -> int | None:
        """Return an integer in a range, or None for null.

        Args:
            name: The field, which must be present.
            least: The smallest valid value.
            most: The largest valid value.
        """
        if name in self._value and self._value[name] is None:
            return None
        return self.integer(name, least, most)

    def integers(self, name: str, least: int = 0, most: int = LARGEST) -> tuple[int, ...]:
        """Return a list of integers in a range.

        Args:
            name: The field, which must be present.
            least: The smallest valid value.
            most: The largest valid value.
        """
        value = self._list(name, f"a list of whole numbers from {least} to {most}")
        if any(type(item) is not int or not least <= item <= most for item in value):
            raise self.field_error(name, f"a list of whole numbers from {least} to {most}")
        return tuple(value)

    def flag(self, name: str) -> bool:
        """Return a boolean.

        Args:
            name: The field, which must be present.
        """
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise self.field_error(name, "true or false")
        return value

    def text(self, name: str, pattern: str = r"(?s:.*)", wanted: str = "a string") -> str:
        """Return a string that matches a pattern completely.

        Args:
            name: The field, which must be present.
            pattern: A regular expression; any string by default.
            wanted: The description of a valid value for the message.
        """
        value = self._value.get(name)
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise self.field_error(name, wanted)
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, or None for null.

        Args:
            name: The field, which must be present.
        """
        if name in self._value and self._value[name] is None:
            return None
        return self.text(name, wanted="a string or null")

    def encoded(self, name: str) -> bytes:
        """Return a string as UTF-8, which half of a surrogate pair has none of.

        Args:
            name: The field, which must be present.
        """
        try:
            return self.text(name).encode("utf-8")
        except UnicodeEncodeError:
            raise self.field_error(name, "a string of whole characters") from None

    def sha256(self, name: str) -> str:
        """Return a sha256 in hexadecimal, in lower case.

        Args:
            name: The field, which must be present.
        """
        return self.text(name, r"[0-9a-f]{64}", "a sha256 of 64 hexadecimal digits")

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings without repetitions.

        Args:
            name: The field, which must be present.
        """
        value = self.all_texts(name)
        if len(set(value)) < len(value):
            raise self.field_error(name, "a list of strings, each once")
        return value

    def all_texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, which may be repeated.

        Args:
            name: The field, which must be present.
        """
        value = self._list(name, "a list of strings")
        if any(not isinstance(item, str) for item in value):
            raise self.field_error(name, "a list of strings")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a JSON object without a check of its fields.

        Args:
            name: The field, which must be present.
        """
        return self.fields(name)._value

    def optional_mapping(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object without a check of its fields, or None for null.

        Args:
            name: The field, which must be present.
        """
        if name in self._value and self._value[name] is None:
            return None
        return self.mapping(name)

    def fields(self, name: str) -> Fields:
        """Return a JSON object whose fields are then read with checks.

        Args:
            name: The field, which must be present.
        """
        if name not in self._value:
            raise self.field_error(name, "a JSON object")
        return Fields(self._value[name], self.file, self._path(name))

    def list_of_fields(self, name: str) -> list[Fields]:
        """Return a list of JSON objects whose fields are then read with checks.

        Args:
            name: The field, which must be present.
        """
        items = self._list(name, "a list of JSON objects")
        return [Fields(item, self.file, f"{self._path(name)}[{i}]") for i, item in enumerate(items)]

    def _list(self, name: str, wanted: str) -> list[Any]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.field_error(name, wanted)
        return value

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name
