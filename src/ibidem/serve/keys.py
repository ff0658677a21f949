"""API keys: random, kept only as hashes, compared in constant time.

A key has 256 random bits, so a plain SHA-256 of it cannot be turned back by trying, as one of a password could.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from typing import TYPE_CHECKING

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_PREFIX = "ibidem-"
_LINE = re.compile(r"sha256:([0-9a-f]{64})(?:\s+(.*))?")


class Keys:
    """The hashes of all keys that open the door."""

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self._hashes = [bytes.fromhex(found) for found in hashes]

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, key: str) -> int | None:
        """The number of the key, None where it is not known; takes as long for any."""
        given = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        found = None
        for number, stored in enumerate(self._hashes):
            if hmac.compare_digest(given, stored):
                found = number
        return found


def hash_key(key: str) -> str:
    """The hash by which a key is known."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> list[str]:
    """The hashes in a file of keys: a line each, `sha256:HASH` and what it is for. Raises UsageError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The keys in {path} cannot be read ({error}): check the path.") from error
    hashes = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise UsageError(
                f"{path}, line {number} is no key: make one with `ibidem serve --new-key NOTE --keys {path}`."
            )
        hashes.append(found[1])
    return hashes


def add_key(path: Path, note: str) -> str:
    """Make a key, add its hash to the file, and give the key: it is never shown again."""
    if path.exists():
        read_keys(path)  # a file of something else must not be written to
    key = _PREFIX + secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"sha256:{hash_key(key)} {' '.join(note.split())}\n")
    return key
