"""Parallel text from files of any known format, as a stream of pairs."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError, UsageError
from ibidem.text.aligned import read_aligned
from ibidem.text.counts import Counts
from ibidem.text.jsonl import read_jsonl
from ibidem.text.language import Languages
from ibidem.text.limits import Check, ReadLimits, no_check
from ibidem.text.mo import read_mo
from ibidem.text.pair import Dropped, Found, Pair, Unit, join_lines
from ibidem.text.po import read_po
from ibidem.text.stream import COMPRESSED, STDIN, Stream
from ibidem.text.tmx import read_tmx
from ibidem.text.tsv import read_tsv
from ibidem.text.xliff import read_xliff_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ALIGNED = "lines"

_MOST_ORIGINS = 10_000


class _Format(NamedTuple):
    endings: tuple[str, ...]
    read: Callable[[Stream, Languages], Iterator[Found]]
    on_stdin: bool = True
    names_languages: bool = True


_FORMATS = {
    "tsv": _Format((".tsv",), lambda stream, _: read_tsv(stream), names_languages=False),
    "jsonl": _Format((".jsonl",), read_jsonl, names_languages=False),
    "tmx": _Format((".tmx",), read_tmx),
    "xliff": _Format((".xlf", ".xliff"), read_xliff_pairs),
    "po": _Format((".po", ".pot"), read_po),
    "mo": _Format((".mo", ".gmo"), read_mo, on_stdin=False),
}


class Corpus:
    """Parallel text that is read anew, in bounded memory, each time it is iterated.

    One path is TSV, JSONL, TMX, XLIFF, PO or MO by its ending, `.gz` or `.xz` set aside, or by `format`. Two paths
    are plain text, source first, aligned line by line (`format` "lines"). "-" is standard input, TSV unless
    `format` says otherwise, and can be iterated once.

    `counts` tells what the last iteration read, kept and dropped. Languages are compared by their first
    subtag; `catalogue_language` is the one that the msgstr entries of a PO or MO file are in, where neither
    its header nor its path says so.

    `limits` bound what a file may cost. `check` is called often while a file is read, also while no pair is found;
    what it raises ends the iteration.

    Raises UsageError for arguments that do not fit together, and TextError for a file that cannot be read,
    there and then where it is missing, else when the place is reached.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        source_language: str = "de",
        target_language: str = "en",
        format: str | None = None,
        catalogue_language: str | None = None,
        limits: ReadLimits | None = None,
        check: Check = no_check,
    ) -> None:
        if isinstance(paths, str | os.PathLike):
            raise UsageError(f"The paths of a corpus are a list. Write Corpus([{os.fspath(paths)!r}]).")
        self.origins = tuple(os.fspath(path) for path in paths)
        self.languages = Languages.from_tags(source_language, target_language, catalogue_language)
        self.format = _choose_format(self.origins, format)
        self.counts = Counts()
        self.limits = limits or ReadLimits()
        self._check = check
        self._streams = self._open()
        self._stdin_is_spent = False
        self._stated: set[str] = set()

    def __iter__(self) -> Iterator[Pair]:
        if STDIN in self.origins:
            if self._stdin_is_spent:
                raise UsageError("Standard input can be read only once. Save it to a file and give its path.")
            self._stdin_is_spent = True
        self.counts = Counts()
        self._streams = self._open()
        return self._pairs(self._streams, self.counts)

    def __repr__(self) -> str:
        return f"<Corpus {self.description}>"

    @property
    def description(self) -> str:
        """Name the format, the files and the direction in one line."""
        files = " and ".join("standard input" if origin == STDIN else origin for origin in self.origins)
        return f"{self.format} from {files}, {self.languages.source} to {self.languages.target}"

    @property
    def names_languages(self) -> bool:
        """Whether files of this format name languages, so that the corpus' own decide which texts are read."""
        return self.format != ALIGNED and _FORMATS[self.format].names_languages

    def fraction(self) -> float | None:
        """Return the share of the (compressed) bytes consumed so far, None where the size is not known."""
        sizes = [stream.size for stream in self._streams if stream.size is not None]
        if len(sizes) < len(self._streams):
            return None
        total = sum(sizes)
        return sum(stream.consumed() for stream in self._streams) / total if total else 1.0

    def _open(self) -> list[Stream]:
        return [Stream(origin, self.limits, self._check) for origin in self.origins]

    def _pairs(self, streams: Sequence[Stream], counts: Counts) -> Iterator[Pair]:
        self._stated.clear()
        longest = self.limits.segment
        most_drops = last_drop = self.limits.dropped_in_a_row
        with ExitStack() as stack:
            for stream in streams:
                stack.enter_context(stream)
            for found in self._read(streams):
                if isinstance(found, Dropped):
                    reason = found.reason
                elif len(found.source) > longest or len(found.target) > longest:
                    reason = f"longer than {longest:,} characters"
                else:
                    source, target = join_lines(found.source), join_lines(found.target)
                    if source and target:
                        counts.keep()
                        last_drop = counts.read + most_drops
                        yield Pair(source, target, self._origin(found), found.location)
                        continue
                    reason = "empty target" if source else "empty source"
                counts.drop(reason)
                if counts.read > last_drop:
                    raise self._dropping(streams[0], counts)

    def _dropping(self, stream: Stream, counts: Counts) -> TextError:
        place = f"{stream.name}, line {stream.line:,}" if stream.line else stream.name
        return TextError(
            f"{place}: {self.limits.dropped_in_a_row:,} units in a row give no pair ({counts.describe()}). "
            "Check that the file has both languages, and remove what is empty."
        )

    def _origin(self, found: Unit) -> str:
        """The origin that a unit states, unless there are so many that a memory could not list them."""
        if found.origin is not None and (found.origin in self._stated or len(self._stated) < _MOST_ORIGINS):
            self._stated.add(found.origin)
            return found.origin
        return self.origins[0]

    def _read(self, streams: Sequence[Stream]) -> Iterator[Found]:
        if self.format == ALIGNED:
            return read_aligned(*streams)
        return _FORMATS[self.format].read(streams[0], self.languages)


def _choose_format(origins: Sequence[str], stated: str | None) -> str:
    if stated is not None and stated != ALIGNED and stated not in _FORMATS:
        names = ", ".join([*_FORMATS, ALIGNED])
        raise UsageError(f"{stated!r} is not a format. Choose one with --format: {names}.")
    if len(origins) == 1 and stated != ALIGNED:
        return _choose_single(origins[0], stated)
    if len(origins) == 2 and stated in (None, ALIGNED):
        if origins == (STDIN, STDIN):
            raise UsageError("Both files are standard input ('-'). Save one to a file and give its path.")
        if stated is None and (known := next(filter(None, map(_format_of, origins)), None)):
            raise UsageError(
                f"Two paths are plain text aligned line by line, but one ends as {known}, which holds both "
                f"sides. Give one {known} file at a time, or say --format {ALIGNED} if the lines are plain "
                "text."
            )
        return ALIGNED
    raise UsageError(
        f"{len(origins)} {'path does' if len(origins) == 1 else 'paths do'} not make a corpus"
        f"{f' of format {stated}' if stated else ''}. Give one file ({', '.join(_FORMATS)}), or two plain "
        f"text files aligned line by line ({ALIGNED}), the source first."
    )


def _choose_single(origin: str, stated: str | None) -> str:
    if origin == STDIN:
        choice = stated or "tsv"
        if not _FORMATS[choice].on_stdin:
            allowed = ", ".join(name for name, known in _FORMATS.items() if known.on_stdin)
            raise UsageError(f"{choice} cannot come from standard input, only {allowed}. Save it to a file.")
        return choice
    if known := stated or _format_of(origin):
        return known
    endings = ", ".join(ending for format in _FORMATS.values() for ending in format.endings)
    raise UsageError(
        f"{origin}: the ending names no known format. Known are {endings}, each also with "
        f"{' or '.join(COMPRESSED)}; choose one with --format: {', '.join(_FORMATS)}. "
        "Plain text needs two files, the source first."
    )


def _format_of(origin: str) -> str | None:
    name = origin.lower()
    for compressed in COMPRESSED:
        name = name.removesuffix(compressed)
    return next((format for format, known in _FORMATS.items() if name.endswith(known.endings)), None)
