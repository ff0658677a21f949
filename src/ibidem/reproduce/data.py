"""The folder of parallel text: domains, their parts, and what tells two states of a text apart."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import UsageError
from ibidem.text import COMPRESSED, Corpus, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SOURCE, TARGET = "de", "en"
# What parts and domains are called in our folders, in the OPUS multi-domain release, and in preprocessed copies of it.
_PARTS = {"train": ("train", "extra"), "dev": ("dev", "valid"), "test": ("test",)}
_ALIASES = {
    "koran": ("tanzil", "quran"),
    "law": ("acquis", "jrc-acquis", "jrc"),
    "medical": ("emea", "med"),
    "subtitles": ("sub", "opensubtitles", "opensubtitles2018"),
}
_ENDINGS = ("", *COMPRESSED)


class Facts(NamedTuple):
    """A digest of a text's lines, whatever their compression, and their number."""

    digest: str
    lines: int


class Data:
    """Texts as DOMAIN/{train,dev,test}.{de,en}[.xz|.gz], or DOMAIN/{train,dev,test}.tsv[.xz|.gz].

    The names of the OPUS multi-domain release are found too, whatever their case.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}: give the one that holds the domains with --data.")
        self.folder = folder
        self._folders = {path.name.casefold(): path for path in sorted(folder.iterdir()) if path.is_dir()}

    @property
    def domains(self) -> list[str]:
        """The names of all folders, in lower case."""
        return sorted(self._folders)

    def files(self, domain: str, part: str) -> tuple[Path, ...]:
        """The two aligned files of a part, or its one TSV; none where the folder has no such part."""
        for name in (domain, *_ALIASES.get(domain, ())):
            folder = self._folders.get(name)
            for stem in _PARTS[part] if folder is not None else ():
                assert folder is not None
                aligned = tuple(_existing(folder, f"{stem}.{language}") for language in (SOURCE, TARGET))
                if None not in aligned:
                    return tuple(path for path in aligned if path is not None)
                single = _existing(folder, f"{stem}.tsv")
                if single is not None:
                    return (single,)
        return ()

    def has(self, domain: str, part: str) -> bool:
        """Whether there is such a part."""
        return bool(self.files(domain, part))

    def corpus(self, domain: str, part: str) -> Corpus:
        """A part of a domain; raises UsageError where there is none."""
        files = self.files(domain, part)
        if not files:
            raise UsageError(f"{self.folder} has no {part} text of the domain '{domain}'.")
        return Corpus(files, source_language=SOURCE, target_language=TARGET)

    def facts(self, domain: str, part: str) -> Facts:
        """What a part is known by."""
        return _facts(self.files(domain, part))


def find_changed(texts: Mapping[str, str], data: Data) -> str | None:
    """Which of some texts, known by their digests, is not the one that lies there; None if none differs or is there."""
    for text, known in texts.items():
        domain, part = text.rsplit("/", 1)
        if data.has(domain, part) and data.facts(domain, part).digest != known:
            return text
    return None


def write_joined(corpora: Sequence[Corpus], folder: Path) -> Corpus:
    """The pairs of several corpora as one, in two aligned files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"train.{language}" for language in (SOURCE, TARGET)]
    with (
        paths[0].open("w", encoding="utf-8", newline="\n") as sources,
        paths[1].open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for corpus in corpora:
            for pair in corpus:
                sources.write(f"{pair.source}\n")
                targets.write(f"{pair.target}\n")
    return Corpus(paths, source_language=SOURCE, target_language=TARGET)


def write_cut(data: Data, folder: Path, lines: dict[str, int]) -> Data:
    """A copy of the data with the first lines of every part only: as many as `lines` says of train, dev and test."""
    for domain in data.domains:
        for part, most in lines.items():
            for file in data.files(domain, part):
                kept = _head(file, most)
                name = file.name
                for ending in COMPRESSED:
                    name = name.removesuffix(ending)
                target = folder / domain / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(b"".join(kept))
    return Data(folder)


def _head(file: Path, most: int) -> Iterator[bytes]:
    with Stream(str(file)) as stream:
        for line in stream.raw_lines():
            yield line
            if stream.line == most:
                return


def _existing(folder: Path, name: str) -> Path | None:
    return next((path for ending in _ENDINGS if (path := folder / f"{name}{ending}").is_file()), None)


@lru_cache(maxsize=256)
def _facts(files: tuple[Path, ...]) -> Facts:
    found, lines = hashlib.sha256(), 0
    for file in files:
        with Stream(str(file)) as stream:
            for line in stream.raw_lines():
                found.update(line)
            lines = stream.line
        found.update(b"\0")
    return Facts(found.hexdigest()[:16], lines)
