"""Glossaries: named lists of terms with their translations, and the file of each."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ibidem.errors import GlossaryError, UsageError
from ibidem.memory import encode_document, has_valid_checksum, replace_file
from ibidem.text import primary_language

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

ENDING = ".glossary"
"""The ending of the file of a glossary."""

MAX_ENTRIES = 20_000
"""The most terms of a glossary."""

MAX_TERM = 200
"""The most characters of a term."""

MAX_TARGETS = 16
"""The most translations of a term."""

MAX_BYTES = 1 << 25
"""The most bytes of a file of terms."""

_FORMAT = 1
_MAX_NAME = 200
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Entry:
    """A term and its translations.

    Attributes:
        source: The term in the source language.
        targets: Its translations, at least one; the best one first.
    """

    source: str
    targets: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Glossary:
    """A named list of terms with their translations; it never changes, and is equal only to itself.

    Attributes:
        name: The name that explanations and lists show.
        source_language: The language of the terms.
        target_language: The language of the translations.
        entries: The terms; each source occurs once.
        version: The number of changes, from 1.
        created: When it was created, in UTC as ISO 8601; "" if unknown.
        owner: Who may change it over HTTP; "" for everybody.

    Raises:
        GlossaryError: The name, a language or an entry is invalid, or a limit is exceeded.

    Examples:
        >>> glossary = Glossary("app", "de", "en", [Entry("Mandant", ("tenant",))])
        >>> glossary.find("Mandant").targets
        ('tenant',)
        >>> glossary.add([Entry("Ordner", ("directory",))]).version
        2
    """

    name: str
    source_language: str
    target_language: str
    entries: Sequence[Entry] = ()
    version: int = 1
    created: str = ""
    owner: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > _MAX_NAME or _has_control(self.name):
            raise GlossaryError(f"Invalid name of a glossary: give 1 to {_MAX_NAME} printable characters.")
        pair = (self.source_language, self.target_language)
        if not all(primary_language(tag).isalpha() for tag in pair) or primary_language(pair[0]) == primary_language(
            pair[1]
        ):
            raise GlossaryError(
                f"Invalid languages {pair[0]!r} and {pair[1]!r} of the glossary {self.name}: give two different ones "
                "such as de and en."
            )
        if len(self.entries) > MAX_ENTRIES:
            raise GlossaryError(f"The glossary {self.name} has more than {MAX_ENTRIES:,} terms: split it.")
        object.__setattr__(self, "entries", tuple(self.entries))
        seen: set[str] = set()
        for entry in self.entries:
            if reason := describe_invalid(entry):
                raise GlossaryError(f"Invalid term {entry.source[:40]!r} in the glossary {self.name}: {reason}.")
            if entry.source in seen:
                raise GlossaryError(f"The term {entry.source!r} is twice in the glossary {self.name}: remove one.")
            seen.add(entry.source)

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, source: str) -> Entry | None:
        """Return the entry of a term, written exactly so; None without one.

        Args:
            source: The term.
        """
        return next((entry for entry in self.entries if entry.source == source), None)

    def add(self, entries: Iterable[Entry]) -> Glossary:
        """Return the glossary with more entries; an entry of the same source is replaced.

        Args:
            entries: The entries.
        """
        merged = {entry.source: entry for entry in self.entries}
        merged.update({entry.source: entry for entry in entries})
        return replace(self, entries=tuple(merged.values()), version=self.version + 1)

    def remove(self, sources: Iterable[str]) -> Glossary:
        """Return the glossary without some terms.

        Args:
            sources: The terms.

        Raises:
            GlossaryError: A term is not there; nothing is removed.
        """
        left_out = set(sources)
        unknown = sorted(left_out - {entry.source for entry in self.entries})
        if unknown:
            raise GlossaryError(
                f"The glossary {self.name} does not have {unknown[0]!r}: `ibidem glossary show` lists its terms."
            )
        kept = tuple(entry for entry in self.entries if entry.source not in left_out)
        return replace(self, entries=kept, version=self.version + 1)

    def check_languages(self, source: str | None, target: str | None) -> None:
        """Check that the glossary is for these languages.

        Args:
            source: The source language of the model; None for an unknown one.
            target: Its target language.

        Raises:
            UsageError: A language differs.
        """
        for own, other in ((self.source_language, source), (self.target_language, target)):
            if other is not None and primary_language(own) != primary_language(other):
                raise UsageError(
                    f"The glossary {self.name} is for {self.source_language} to {self.target_language}, and the model "
                    f"translates {source} to {target}: choose a glossary or a model for the same languages."
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the glossary to its file, atomically and durably.

        Args:
            path: The file; an existing one is replaced.

        Raises:
            GlossaryError: The file cannot be written; it has its old content then.
        """
        document = {
            "format": _FORMAT,
            "name": self.name,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "version": self.version,
            "created": self.created,
            "owner": self.owner,
            "entries": [[entry.source, *entry.targets] for entry in self.entries],
        }
        try:
            replace_file(Path(path), encode_document(document, "The glossary"))
        except OSError as error:
            raise GlossaryError(
                f"The glossary cannot be written to {path} ({error.strerror}): check the folder and its free space."
            ) from error

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Glossary:
        """Read the file of a glossary.

        Args:
            path: A file that `save` wrote.

        Raises:
            GlossaryError: The file is missing, damaged or of a newer format.
        """
        content = read_bytes(Path(path))
        if not has_valid_checksum(content):
            raise GlossaryError(
                f"{path} is not the file of a glossary, or it is damaged: its checksum is wrong. Restore it from a "
                "copy, or create it again from a CSV, TSV or TBX file."
            )
        # The checksum is right, so a wrong field can only come from another version.
        try:
            document = json.loads(content)
            if document["format"] != _FORMAT:
                raise KeyError("format")
            return cls(**{name: document[name] for name in _FIELDS}, entries=_decode_entries(document["entries"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GlossaryError(
                f"{path} was written by another version of ibidem ({error}): use that version to export it."
            ) from error


def update_glossary(path: str | os.PathLike[str], change: Callable[[Glossary], Glossary]) -> Glossary:
    """Change the file of a glossary, while no other process changes it.

    Args:
        path: The file.
        change: Returns the changed glossary.

    Returns:
        The changed glossary; it is on disk.

    Raises:
        GlossaryError: The file cannot be read, changed or written, or another process holds it for long.
    """
    file = Path(path)
    try:
        with FileLock(file.with_name(f".{file.name}.lock"), timeout=_LOCK_SECONDS, fallback_to_soft=False):
            changed = change(Glossary.open(file))
            changed.save(file)
            return changed
    except Timeout:
        raise GlossaryError(f"Another process is changing {file}: try again when it has ended.") from None
    except (OSError, NotImplementedError) as error:
        raise GlossaryError(f"{file} cannot be locked ({error}): check the permissions of its folder.") from error


_FIELDS = ("name", "source_language", "target_language", "version", "created", "owner")


def _decode_entries(entries: Iterable[Sequence[Any]]) -> list[Entry]:
    return [Entry(str(source), tuple(map(str, targets))) for source, *targets in entries]


def clean_term(text: str) -> str:
    """Return a term in Unicode's form NFC, with single spaces.

    Args:
        text: The term as it was typed.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def describe_invalid(entry: Entry) -> str:
    """Return why an entry cannot be part of a glossary, in words; "" for a valid one.

    Args:
        entry: The entry.

    Examples:
        >>> describe_invalid(Entry("Mandant", ("tenant",)))
        ''
        >>> describe_invalid(Entry("Mandant", ()))
        'it has no translation'
    """
    if not entry.targets:
        return "it has no translation"
    if len(entry.targets) > MAX_TARGETS:
        return f"it has more than {MAX_TARGETS} translations"
    for side, text in (("source", entry.source), *(("target", target) for target in entry.targets)):
        if not text.strip():
            return f"its {side} is empty"
        if len(text) > MAX_TERM:
            return f"its {side} has more than {MAX_TERM} characters"
        if _has_control(text):
            return f"its {side} has a control character"
        if not any(sign.isalnum() for sign in text):
            return f"its {side} has no letter or digit"
    return ""


def _has_control(text: str) -> bool:
    # XML, and so TBX, cannot contain the last two characters either.
    return any(unicodedata.category(sign) in ("Cc", "Cs") or sign in "\ufffe\uffff" for sign in text)


def read_bytes(path: Path) -> bytes:
    """Read a small file.

    Args:
        path: The file.

    Raises:
        GlossaryError: The file is missing, larger than `MAX_BYTES`, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise GlossaryError(f"The glossary {path} cannot be read ({error.strerror}): check the path.") from error
    if len(content) > MAX_BYTES:
        raise GlossaryError(f"{path} is larger than {MAX_BYTES:,} bytes: check that it is a glossary, or split it.")
    return content
