"""The glossaries of a server: those that clients create, in a folder, and the one that its operator gives.

A glossary has one file for each pair of its languages, ID.de-en.glossary. A change is on disk when its call returns.
The files of a deleted glossary are moved to `.trash`, with the time before their names, until they expire.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import GlossaryError, UsageError
from ibidem.glossary import ENDING, Glossary, parse_terms
from ibidem.memory import make_directory, remove_file, rename
from ibidem.serve.http_error import HttpError, ReadOnlyError
from ibidem.serve.memory_store import TRASH, Deleted
from ibidem.text import primary_language

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ibidem.serve.limits import Limits

logger = logging.getLogger("ibidem.serve")

_FILE = re.compile(rf"([0-9A-Za-z-]{{1,64}})\.([a-z]{{2,8}})-([a-z]{{2,8}}){re.escape(ENDING)}")
_DELETED = re.compile(rf"([0-9]{{1,12}})\.{_FILE.pattern}")
_MAX_DICTIONARIES = 16

Pair = tuple[str, str]


class Terms(NamedTuple):
    """The terms of one pair of languages as a client sends them.

    Attributes:
        source_language: The language of the terms.
        target_language: The language of the translations.
        entries: A line for each term, or the content of a file.
        format: "tsv", "csv" or "tbx".
        header: Whether the first row may be a header.
    """

    source_language: str
    target_language: str
    entries: str | bytes
    format: str
    header: bool = False

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
    def owner(self) -> str:
        """The owner of the key that created it; "" without keys."""
        return self.first.owner

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
        address: The address of the server that accepts them then; None if it is unknown.

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
        address: str | None = None,
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._languages = languages
        self._read_only = read_only
        self._address = address
        self._started = _now()
        self._lock = threading.Lock()
        self._default = default
        self._stored: dict[str, StoredGlossary] = {}
        self._deleted: dict[str, tuple[int, StoredGlossary]] = {}
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
            if name is not None and (glossary := _open(file)) is not None:
                found.append((name[1], (name[2], name[3]), glossary))
        for key, pair, glossary in sorted(found, key=lambda one: one[2].created):
            known = self._stored.get(key)
            dictionaries = {} if known is None else known.dictionaries
            self._stored[key] = StoredGlossary(key, {**dictionaries, pair: glossary})
        for file in sorted((folder / TRASH).glob("*")):
            name = _DELETED.fullmatch(file.name)
            if name is not None and (glossary := _open(file)) is not None:
                before = self._deleted.get(name[2])
                dictionaries = {} if before is None else before[1].dictionaries
                pair = (name[3], name[4])
                self._deleted[name[2]] = int(name[1]), StoredGlossary(name[2], {**dictionaries, pair: glossary})

    @property
    def creates(self) -> bool:
        """Whether clients can create glossaries."""
        return self._folder is not None and not self._read_only

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
            self._check_count()
            stored = StoredGlossary(str(uuid.uuid4()), made)
            for pair, glossary in made.items():
                _save(glossary, _path(folder, stored.id, pair))
            self._stored[stored.id] = stored
        return stored

    def change(
        self,
        id: str,
        owner: str | None,
        *,
        name: str | None = None,
        add: Sequence[Terms] = (),
        replaced: Terms | None = None,
    ) -> StoredGlossary:
        """Rename a glossary, add terms to it, or replace all its terms of one pair of languages.

        Args:
            id: Its id.
            owner: The owner of the key that changes it; None for one that may change all.
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

    def delete(self, id: str, owner: str | None, pair: Pair | None = None) -> None:
        """Move a glossary to the trash, or delete one pair of languages of several.

        Args:
            id: Its id.
            owner: The owner of the key that deletes it; None for one that may delete all.
            pair: The pair of languages; None for the whole glossary.

        Raises:
            HttpError: 403, the glossary belongs to another key; 404, there is none.
        """
        folder = self._writable()
        with self._lock:
            stored = self._owned(id, owner)
            if pair is not None and pair not in stored.dictionaries:
                raise HttpError(404, "The glossary does not have these languages.")
            kept = {one: glossary for one, glossary in stored.dictionaries.items() if pair not in (None, one)}
            if kept and pair is not None:
                with contextlib.suppress(FileNotFoundError):
                    _path(folder, id, pair).unlink()
                self._stored[id] = StoredGlossary(id, kept)
                return
            self._remove_expired(folder)
            deleted = int(time.time())
            try:
                make_directory(folder / TRASH)
                for one in stored.dictionaries:
                    with contextlib.suppress(FileNotFoundError):
                        rename(_path(folder, id, one), _trash_path(folder, deleted, id, one))
            except OSError as error:
                logger.error("A glossary cannot be deleted: %s", error)
                raise HttpError(500, "The glossary cannot be deleted: see the log of the server.") from error
            self._deleted[id] = deleted, stored
            del self._stored[id]
            while len(self._deleted) > self._limits.glossaries:  # the oldest
                self._remove(folder, min(self._deleted, key=lambda one: self._deleted[one][0]))

    def list_deleted(self) -> list[Deleted]:
        """Return the glossaries in the trash, newest first."""
        with self._lock:
            if self._folder is not None and not self._read_only:
                self._remove_expired(self._folder)
            found = [self._describe(id, time) for id, (time, _) in self._deleted.items()]
        return sorted(found, key=lambda one: one.deleted, reverse=True)

    def restore(self, id: str, owner: str) -> StoredGlossary:
        """Move a glossary from the trash to its place.

        Args:
            id: Its id.
            owner: The owner of the key of the request.

        Returns:
            The glossary.

        Raises:
            HttpError: 403, it belongs to another key, or the server is read-only; 404, there is none; 413, there are
                too many glossaries.
        """
        folder = self._writable()
        with self._lock:
            deleted, stored = self._find_deleted(id, owner)
            self._check_count()
            try:
                for pair in stored.dictionaries:
                    rename(_trash_path(folder, deleted, id, pair), _path(folder, id, pair))
            except OSError as error:
                logger.error("A glossary cannot be restored: %s", error)
                raise HttpError(500, "The glossary cannot be restored: see the log of the server.") from error
            del self._deleted[id]
            self._stored[id] = stored
        return stored

    def purge(self, id: str, owner: str) -> str:
        """Remove a glossary in the trash for good.

        Args:
            id: Its id.
            owner: The owner of the key of the request.

        Returns:
            Its name.

        Raises:
            HttpError: 403, it belongs to another key, or the server is read-only; 404, there is none.
        """
        folder = self._writable()
        with self._lock:
            _, stored = self._find_deleted(id, owner)
            self._remove(folder, id)
        return stored.first.name

    def _find_deleted(self, id: str, owner: str) -> tuple[int, StoredGlossary]:
        found = self._deleted.get(id)
        if found is None:
            raise HttpError(404, "There is no such glossary in the trash: it was restored or removed for good.")
        if found[1].first.owner not in ("", owner):
            raise HttpError(403, "The glossary belongs to another key.")
        return found

    def _describe(self, id: str, time: int) -> Deleted:
        deleted = datetime.fromtimestamp(time, UTC)
        expires = deleted + timedelta(seconds=self._limits.trash_seconds)
        first = self._deleted[id][1].first
        return Deleted(id, "glossary", first.name, first.owner, deleted, expires)

    def _remove_expired(self, folder: Path) -> None:
        now = datetime.now(UTC)
        for id, (deleted, _) in list(self._deleted.items()):
            if self._describe(id, deleted).expires <= now:
                self._remove(folder, id)

    def _remove(self, folder: Path, id: str) -> None:
        """Remove a glossary in the trash for good."""
        deleted, stored = self._deleted.pop(id)
        for pair in stored.dictionaries:
            remove_file(_trash_path(folder, deleted, id, pair))

    def _check_count(self) -> None:
        if sum(not one.is_fixed for one in self._stored.values()) >= self._limits.glossaries:
            raise HttpError(413, f"The server has {self._limits.glossaries} glossaries already: delete one.")

    def _writable(self) -> Path:
        if self._read_only:
            raise ReadOnlyError(self._address)
        if self._folder is None:
            raise HttpError(403, "This server stores no glossaries: start it with --glossaries FOLDER.")
        return self._folder

    def _owned(self, id: str, owner: str | None) -> StoredGlossary:
        stored = self._stored.get(id)
        if stored is None:
            raise HttpError(404, "There is no glossary of this id.")
        if stored.is_fixed:
            raise HttpError(403, "The operator of the server gives this glossary: it cannot be changed.")
        if owner is not None and stored.first.owner not in ("", owner):
            raise HttpError(403, "The glossary belongs to another key.")
        return stored

    def _make(self, name: str, terms: Terms, created: str, owner: str) -> Glossary:
        """Make a glossary of terms that a client sends."""
        try:
            content = terms.entries.encode("utf-8") if isinstance(terms.entries, str) else terms.entries
            found = parse_terms(content, "entries", *terms.pair, format=terms.format, header=terms.header)
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


def _open(file: Path) -> Glossary | None:
    """Open the file of a glossary; a damaged one is reported and left out."""
    try:
        return Glossary.open(file)
    except GlossaryError as error:
        logger.error("%s", error)
        return None


def _rename(glossary: Glossary, name: str) -> Glossary:
    try:
        return replace(glossary, name=name, version=glossary.version + 1)
    except GlossaryError as error:
        raise HttpError(400, f"Invalid request: {error}") from None


def _path(folder: Path, id: str, pair: Pair) -> Path:
    return folder / f"{id}.{pair[0]}-{pair[1]}{ENDING}"


def _trash_path(folder: Path, deleted: int, id: str, pair: Pair) -> Path:
    return folder / TRASH / f"{deleted}.{_path(folder, id, pair).name}"


def _save(glossary: Glossary, path: Path) -> None:
    try:
        glossary.save(path)
    except GlossaryError as error:
        logger.error("%s", error)
        raise HttpError(500, "The glossary cannot be stored: see the log of the server.") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
