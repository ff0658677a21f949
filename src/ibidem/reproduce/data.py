"""Parallel text: a folder of domains with their parts, and the sentences written for this project."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import UsageError
from ibidem.text import COMPRESSED_ENDINGS, Corpus, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

SOURCE, TARGET = "de", "en"
QUICK_LINES = {"train": 300, "dev": 30, "test": 16}
"""Lines of each part that a quick run reads."""

# Names of parts and domains in our folders, in the OPUS multi-domain release, and in preprocessed copies of it.
_PARTS = {"train": ("train", "extra"), "dev": ("dev", "valid"), "test": ("test",)}
_ALIASES = {
    "koran": ("tanzil", "quran"),
    "law": ("acquis", "jrc-acquis", "jrc"),
    "medical": ("emea", "med"),
    "subtitles": ("sub", "opensubtitles", "opensubtitles2018"),
}
_ENDINGS = ("", *COMPRESSED_ENDINGS)

# For quick runs: the domains of our own sentences that replace each real domain, and the sentences of every ten that
# belong to each part.
_OWN_DOMAINS = {
    "it": ("software", "household", "law"),
    "koran": ("medicine",),
    "it-large": ("travel",),
    "general": ("household", "travel", "medicine"),
    "news": ("law",),
}
_OWN_PARTS = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}
_TRAIN_ONLY = ("it-large", "general")


class Facts(NamedTuple):
    """The content of a text.

    Attributes:
        digest: 16 hexadecimal digits of the lines, independent of the compression.
        lines: Number of lines.
    """

    digest: str
    lines: int


class Sentence(NamedTuple):
    """A German sentence and its English translation, both written for this project.

    Attributes:
        domain: "software", "household", "law", "medicine" or "travel".
        german: Source sentence.
        english: Its translation.
    """

    domain: str
    german: str
    english: str


class Data:
    """Find texts as DOMAIN/{train,dev,test}.{de,en}[.xz|.gz], or DOMAIN/{train,dev,test}.tsv[.xz|.gz].

    The names of the OPUS multi-domain release are found too, in upper or lower case.

    Args:
        folder: Folder that holds one folder for each domain.

    Raises:
        UsageError: There is no such folder.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     data = write_own_data(Path(folder))
        ...     data.domains, data.has("it", "test"), data.has("general", "test")
        (['general', 'it', 'it-large', 'koran', 'news'], True, False)
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}: give the one that holds the domains with --data.")
        self.folder = folder
        self._folders = {path.name.casefold(): path for path in sorted(folder.iterdir()) if path.is_dir()}

    @property
    def domains(self) -> list[str]:
        """Return the names of all domain folders, in lower case."""
        return sorted(self._folders)

    def files(self, domain: str, part: str) -> tuple[Path, ...]:
        """Find the files of a part.

        Args:
            domain: Name in lower case, such as "it".
            part: "train", "dev" or "test".

        Returns:
            The two aligned files, or one TSV; empty where the part is missing.
        """
        for name in (domain, *_ALIASES.get(domain, ())):
            folder = self._folders.get(name)
            if folder is None:
                continue
            for stem in _PARTS[part]:
                aligned = [_find_file(folder, f"{stem}.{language}") for language in (SOURCE, TARGET)]
                if None not in aligned:
                    return tuple(path for path in aligned if path is not None)
                single = _find_file(folder, f"{stem}.tsv")
                if single is not None:
                    return (single,)
        return ()

    def has(self, domain: str, part: str) -> bool:
        """Return whether a part is present.

        Args:
            domain: Name in lower case, such as "it".
            part: "train", "dev" or "test".
        """
        return bool(self.files(domain, part))

    def corpus(self, domain: str, part: str) -> Corpus:
        """Return a part of a domain.

        Args:
            domain: Name in lower case, such as "it".
            part: "train", "dev" or "test".

        Raises:
            UsageError: The part is missing.
        """
        files = self.files(domain, part)
        if not files:
            raise UsageError(f"{self.folder} has no {part} text of the domain '{domain}'.")
        return Corpus(files, source_language=SOURCE, target_language=TARGET)

    def facts(self, domain: str, part: str) -> Facts:
        """Return digest and number of lines of a part, read once in a process.

        Args:
            domain: Name in lower case, such as "it".
            part: "train", "dev" or "test"; it must be present.
        """
        return _read_facts(self.files(domain, part))


def find_changed(texts: Mapping[str, str], data: Data) -> str | None:
    """Return the first text whose digest differs from the stored one; a text that is missing does not count.

    Args:
        texts: Stored digests, by "domain/part".
        data: Folder to compare with.

    Returns:
        "domain/part" of that text; None where no text has changed.
    """
    for text, stored in texts.items():
        domain, part = text.rsplit("/", 1)
        if data.has(domain, part) and data.facts(domain, part).digest != stored:
            return text
    return None


def write_joined(corpora: Sequence[Corpus], folder: Path) -> Corpus:
    """Write the pairs of several corpora into two aligned files.

    Args:
        corpora: Corpora, written one after another.
        folder: Folder to write to; made where it is missing.

    Returns:
        The corpus of the two files.
    """
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
    """Copy the first lines of every part into another folder, uncompressed.

    Args:
        data: Texts to copy.
        folder: Folder to write to.
        lines: Number of lines to copy of each part.
    """
    for domain in data.domains:
        for part, limit in lines.items():
            for file in data.files(domain, part):
                kept = _read_head(file, limit)
                name = file.name
                for ending in COMPRESSED_ENDINGS:
                    name = name.removesuffix(ending)
                target = folder / domain / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(b"".join(kept))
    return Data(folder)


def own_sentences() -> list[Sentence]:
    """Return all sentences written for this project: five domains of 64.

    Examples:
        >>> sentences = own_sentences()
        >>> len(sentences), sentences[0].domain
        (320, 'software')
    """
    text = (resources.files("ibidem.reproduce") / "sentences.tsv").read_text(encoding="utf-8")
    return [Sentence(*line.split("\t")) for line in text.splitlines()]


def write_own_data(folder: Path) -> Data:
    """Write our own sentences as a data folder; of every ten, eight go to train, one to dev and one to test.

    Args:
        folder: Folder to write to; made where it is missing.
    """
    sentences = own_sentences()
    for domain, own_domains in _OWN_DOMAINS.items():
        chosen = [sentence for sentence in sentences if sentence.domain in own_domains]
        for part, places in _OWN_PARTS.items():
            if part != "train" and domain in _TRAIN_ONLY:
                continue
            kept = [sentence for number, sentence in enumerate(chosen) if number % 10 in places]
            target = folder / domain
            target.mkdir(parents=True, exist_ok=True)
            for language, field in ((SOURCE, 1), (TARGET, 2)):
                text = "".join(f"{sentence[field]}\n" for sentence in kept)
                (target / f"{part}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return Data(folder)


def _read_head(file: Path, limit: int) -> Iterator[bytes]:
    with Stream(str(file)) as stream:
        for line in stream.raw_lines():
            yield line
            if stream.line == limit:
                return


def _find_file(folder: Path, name: str) -> Path | None:
    return next((path for ending in _ENDINGS if (path := folder / f"{name}{ending}").is_file()), None)


@lru_cache(maxsize=256)
def _read_facts(files: tuple[Path, ...]) -> Facts:
    found, lines = hashlib.sha256(), 0
    for file in files:
        with Stream(str(file)) as stream:
            for line in stream.raw_lines():
                found.update(line)
            lines = stream.line
        found.update(b"\0")
    return Facts(found.hexdigest()[:16], lines)
