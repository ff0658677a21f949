"""The glossaries of a server: those that clients create, in a folder, and the one that its operator gives.

A glossary has one file for each pair of its languages, ID.de-en.glossary. A change is on disk when its call returns.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import GlossaryError, UsageError
from ibidem.glossary import ENDING, Glossary, parse_terms
from ibidem.memory import make_directory
from ibidem.serve.http_error import HttpError
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibidem.serve.limits import Limits

logger = logging.getLogger("ibidem.serve")

_FILE = re.compile(rf"([0-9A-Za-z-]{{1,64}})\.([a-z]{{2,8}})-([a-z]{{2,8}}){re.escape(ENDING)}")
_MAX_DICTIONARIES = 16

Pair = tuple[str, str]


class Terms(NamedTuple):
    """The terms of one pair of languages as a client sends them.

    Attributes:
        source_language: The language of the terms.
        target_language: The language of the translations.
        entries: A line for each term.
        format: "tsv" or "csv".
    """

    source_language: str
    target_language: str
    entries: str
    format: str

    @property
    def pair(self) -> Pair:
        """The two languages in lower case, without regions."""
        return primary_language(self.source_language), primary_language(self.target_language)


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary of the server.

    Attributes:
        id: Its id, which clients use in paths.
        dictionaries: Its terms by pair of languages, at least one pair.
        is_fixed: Whether the operator gives it, so that no client can change it.
    """

    id: str
    dictionaries: dict[Pair, Glossary]
    is_fixed: bool = False

    @property
    def first(self) -> Glossary:
        """The terms of the first pair of languages."""
        return next(iter(self.dictionaries.values()))


class GlossaryStore:
    """Keeps the glossaries of a server; any thread may call the methods.

    Args:
        folder: The folder of glossaries that clients create; None if they cannot create any.
        default: The glossary of requests that do not name one; None for none.
        limits: Limits of the number of glossaries and of their terms.
        languages: Languages of the default glossary, and of requests that name none.
        read_only: Whether all changes are refused.

    Raises:
        UsageError: The folder cannot be made or read.
    """

    def __init__(
        self,
        folder: Path | None,
        default: Glossary | None,
        limits: Limits,
        languages: Pair,
        *,
        read_only: bool = False,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._languages = languages
        self._read_only = read_only
        self._started = _now()
        self._lock = threading.Lock()
        self._default = default
        self._stored: dict[str, StoredGlossary] = {}
        if default is not None:
            key = re.sub(r"[^0-9A-Za-z-]+", "-", default.name).strip("-")[:64] or "default"
            self._stored[key] = StoredGlossary(key, {languages: default}, is_fixed=True)
        if folder is not None:
            self._load(folder)

    def _load(self, folder: Path) -> None:
        try:
            make_directory(folder)
            files = sorted(folder.iterdir())
        except OSError as error:
            raise UsageError(f"The folder of glossaries {folder} cannot be used ({error}): choose another.") from error
        found: list[tuple[str, Pair, Glossary]] = []
        for file in files:
            name = _FILE.fullmatch(file.name)
            if name is None:
                continue
            try:
                found.append((name[1], (name[2], name[3]), Glossary.open(file)))
            except GlossaryError as error:
                logger.error("%s", error)
        for key, pair, glossary in sorted(found, key=lambda one: one[2].created):
            known = self._stored.get(key)
            dictionaries = {} if known is None else known.dictionaries
            self._stored[key] = StoredGlossary(key, {**dictionaries, pair: glossary})

    def list_glossaries(self) -> list[StoredGlossary]:
        """Return all glossaries: that of the operator, then those of clients, oldest first."""
        with self._lock:
            return list(self._stored.values())

    def find(self, id: str) -> StoredGlossary:
        """Return a glossary.

        Args:
            id: Its id.

        Raises:
            HttpError: 404, there is none.
        """
        with self._lock:
            found = self._stored.get(id)
        if found is None:
            raise HttpError(404, "There is no glossary of this id.")
        return found

    def choose(self, given: str | None, pair: Pair | None = None) -> Glossary | None:
        """Return the glossary for a translation.

        Args:
            given: An id, or a name that only one glossary has; None for the default, "none" or "" for no glossary.
            pair: Source and target language; None for those of the default glossary.

        Raises:
            HttpError: 404, there is no such glossary; 400, it is for other languages.
        """
        languages = pair or self._languages
        if given is None:
            return self._default if languages == self._languages else None
        if given in ("", "none"):
            return None
        with self._lock:
            found = self._stored.get(given)
            named = [one for one in self._stored.values() if one.first.name == given]
        if found is None and len(named) == 1:
            found = named[0]
        if found is None:
            raise HttpError(404, "There is no glossary of this id.")
        if languages not in found.dictionaries:
            raise HttpError(400, f"The glossary is not for {languages[0]} to {languages[1]}.")
        return found.dictionaries[languages]

    def created(self, stored: StoredGlossary) -> str:
        """Return when a glossary was created; for that of the operator, when the server started.

        Args:
            stored: The glossary.
        """
        return stored.first.created or self._started

    def create(self, name: str, dictionaries: Sequence[Terms], owner: str) -> StoredGlossary:
        """Create a glossary.

        Args:
            name: Its name.
            dictionaries: Its terms, for different pairs of languages.
            owner: The owner of the key that creates it; "" without keys.

        Raises:
            HttpError: 400, a name, a language or a term is invalid; 403, clients cannot create glossaries; 413, a
                limit is exceeded.
        """
        folder = self._writable()
        if not 1 <= len(dictionaries) <= _MAX_DICTIONARIES or len({one.pair for one in dictionaries}) < len(
            dictionaries
        ):
            raise HttpError(400, f"Invalid request: give 1 to {_MAX_DICTIONARIES} dictionaries of different languages.")
        created = _now()
        made = {one.pair: self._make(name, one, created, owner) for one in dictionaries}
        with self._lock:
            if sum(not one.is_fixed for one in self._stored.values()) >= self._limits.glossaries:
                raise HttpError(413, f"The server has {self._limits.glossaries} glossaries already: delete one.")
            stored = StoredGlossary(str(uuid.uuid4()), made)
            for pair, glossary in made.items():
                _save(glossary, _path(folder, stored.id, pair))
            self._stored[stored.id] = stored
        return stored

    def change(
        self,
        id: str,
        owner: str,
        *,
        name: str | None = None,
        add: Sequence[Terms] = (),
        replaced: Terms | None = None,
    ) -> StoredGlossary:
        """Rename a glossary, add terms to it, or replace all its terms of one pair of languages.

        Args:
            id: Its id.
            owner: The owner of the key that changes it.
            name: Its new name.
            add: Terms to add; they replace entries of the same terms.
            replaced: Terms of one pair of languages that replace the present ones.

        Raises:
            HttpError: 400, a term is invalid; 403, the glossary belongs to another key; 404, there is none.
        """
        folder = self._writable()
        with self._lock:
            stored = self._owned(id, owner)
            dictionaries = dict(stored.dictionaries)
            first = stored.first
            for terms in add:
                new = self._make(first.name, terms, first.created, first.owner)
                known = dictionaries.get(terms.pair)
                dictionaries[terms.pair] = new if known is None else self._checked(known, new)
            if replaced is not None:
                new = self._make(first.name, replaced, first.created, first.owner)
                known = dictionaries.get(replaced.pair)
                dictionaries[replaced.pair] = replace(new, version=1 if known is None else known.version + 1)
            if name is not None:
                dictionaries = {pair: _rename(one, name) for pair, one in dictionaries.items()}
            if len(dictionaries) > _MAX_DICTIONARIES:
                raise HttpError(400, f"Invalid request: at most {_MAX_DICTIONARIES} pairs of languages.")
            for pair, glossary in dictionaries.items():
                if glossary is not stored.dictionaries.get(pair):
                    _save(glossary, _path(folder, id, pair))
            self._stored[id] = StoredGlossary(id, dictionaries)
            return self._stored[id]

    def delete(self, id: str, owner: str, pair: Pair | None = None) -> None:
        """Delete a glossary, or one pair of languages of it.

        Args:
            id: Its id.
            owner: The owner of the key that deletes it.
            pair: The pair of languages; None for the whole glossary.

        Raises:
            HttpError: 403, the glossary belongs to another key; 404, there is none.
        """
        folder = self._writable()
        with self._lock:
            stored = self._owned(id, owner)
            if pair is not None and pair not in stored.dictionaries:
                raise HttpError(404, "The glossary does not have these languages.")
            gone = list(stored.dictionaries) if pair is None else [pair]
            for one in gone:
                with contextlib.suppress(FileNotFoundError):
                    _path(folder, id, one).unlink()
            kept = {one: glossary for one, glossary in stored.dictionaries.items() if one not in gone}
            if kept:
                self._stored[id] = StoredGlossary(id, kept)
            else:
                del self._stored[id]

    def _writable(self) -> Path:
        if self._read_only:
            raise HttpError(403, "This server is read-only.")
        if self._folder is None:
            raise HttpError(403, "This server stores no glossaries: start it with --glossaries FOLDER.")
        return self._folder

    def _owned(self, id: str, owner: str) -> StoredGlossary:
        stored = self._stored.get(id)
        if stored is None:
            raise HttpError(404, "There is no glossary of this id.")
        if stored.is_fixed:
            raise HttpError(403, "The operator of the server gives this glossary: it cannot be changed.")
        if stored.first.owner not in ("", owner):
            raise HttpError(403, "The glossary belongs to another key.")
        return stored

    def _make(self, name: str, terms: Terms, created: str, owner: str) -> Glossary:
        """Make a glossary of terms that a client sends."""
        try:
            content = terms.entries.encode("utf-8")
            found = parse_terms(content, "entries", *terms.pair, format=terms.format, header=False)
            glossary = Glossary(name, *terms.pair, found.entries, created=created, owner=owner)
        except GlossaryError as error:
            raise HttpError(400, f"Invalid request: {error}") from None
        self._check_size(glossary)
        return glossary

    def _checked(self, known: Glossary, new: Glossary) -> Glossary:
        merged = known.add(new.entries)
        self._check_size(merged)
        return merged

    def _check_size(self, glossary: Glossary) -> None:
        if len(glossary) > self._limits.glossary_terms:
            raise HttpError(413, f"The glossary has more than {self._limits.glossary_terms:,} terms: split it.")


def _rename(glossary: Glossary, name: str) -> Glossary:
    try:
        return replace(glossary, name=name, version=glossary.version + 1)
    except GlossaryError as error:
        raise HttpError(400, f"Invalid request: {error}") from None


def _path(folder: Path, id: str, pair: Pair) -> Path:
    return folder / f"{id}.{pair[0]}-{pair[1]}{ENDING}"


def _save(glossary: Glossary, path: Path) -> None:
    try:
        glossary.save(path)
    except GlossaryError as error:
        logger.error("%s", error)
        raise HttpError(500, "The glossary cannot be stored: see the log of the server.") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
