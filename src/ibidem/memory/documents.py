"""JSON documents of a memory that carry the checksum of their own content."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

# The checksum is at a fixed place at the beginning, so that it covers every byte after it.
_SEAL = b'{\n "checksum": "'
_SEALED_FROM = len(_SEAL) + 64


def seal_document(document: Mapping[str, Any], what: str) -> bytes:
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


def is_sealed(content: bytes) -> bool:
    """Return whether the checksum at the beginning is that of the rest."""
    sealed, body = content[:_SEALED_FROM], content[_SEALED_FROM:]
    return sealed == _SEAL + hashlib.sha256(body).hexdigest().encode("ascii")
