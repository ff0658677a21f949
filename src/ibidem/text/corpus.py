"""Parallel text: read from files of any supported format as a stream of pairs, and written to a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from ibidem.errors import TextError, UsageError
from ibidem.progress import Progress, silent
from ibidem.text.formats import FORMATS, find_format
from ibidem.text.language import Languages
from ibidem.text.output import open_output
from ibidem.text.pair import Counts, Dropped, Pair, join_lines
from ibidem.text.plain import read_aligned
from ibidem.text.stream import COMPRESSED_ENDINGS, STDIN, Check, ReadLimits, Stream, no_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ibidem.text.pair import LocatedPair, ReadResult, Unit

PairFilter: TypeAlias = Callable[[Pair], Pair | str]
"""Returns a pair, changed or not, or the reason to drop it."""

_ALIGNED = "lines"
_PAIR_FORMATS = {name: format for name, format in FORMATS.items() if format.read_pairs}
_WRITERS = {name: format.writer for name, format in FORMATS.items() if format.writer}
_MAX_ORIGINS = 10_000
_PROGRESS_PAIRS = 10_000


class Corpus:
    r"""Parallel text that is read anew, in bounded memory, each time it is iterated.

    Args:
        paths: One file of TSV, JSONL, TMX, XLIFF, PO or MO, plain or compressed (`.gz`, `.xz`); or two plain text
            files, the source first, aligned line by line. "-" is standard input, which can be iterated once.
        source_language: The language of the sources. Languages are compared by their first subtag.
        target_language: The language of the targets.
        format: The name of the format, by default that of the ending, and TSV for standard input. Two plain text
            files are "lines".
        catalogue_language: The language of the msgstr entries of a PO or MO file, if neither its header nor its path
            names it.
        limits: Limits on the size of the input.
        check: Called often while a file is read, also while no pair is found; it raises to stop reading.
        encoding: The encoding of the lines of TSV, CSV, JSONL, PO and plain text, such as "cp1252"; None recognises
            UTF-8 and UTF-16.

    Attributes:
        origins: The paths as they were given.
        languages: The two languages.
        format: The name of the format.
        counts: How many pairs the last iteration read, kept and dropped.
        new_filter: Makes the filter of each iteration; None keeps all pairs. A filter returns a pair, which may be
            changed, or the reason to drop it in words.

    Raises:
        UsageError: If the arguments do not fit together.
        TextError: If a file cannot be read: at once if it is missing, else when the iteration reaches the place.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "corpus.tsv")
        ...     _ = path.write_text("Guten Tag\tGood day\n \tno source\n", encoding="utf-8")
        ...     corpus = Corpus([path])
        ...     print([pair.target for pair in corpus])
        ['Good day']
        >>> corpus.counts.describe()
        'read 2 pairs, kept 1, dropped 1 (1 empty source)'
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
        encoding: str | None = None,
    ) -> None:
        if isinstance(paths, str | os.PathLike):
            raise UsageError(f"The paths of a corpus are a list. Write Corpus([{os.fspath(paths)!r}]).")
        self.origins = tuple(os.fspath(path) for path in paths)
        self.languages = Languages.from_tags(source_language, target_language, catalogue_language)
        self.format = _choose_format(self.origins, format)
        self.counts = Counts()
        self.limits = limits or ReadLimits()
        self.encoding = encoding
        self.new_filter: Callable[[], PairFilter] | None = None
        self._check = check
        self._streams = self._open()
        self._stdin_is_spent = False
        self._stated_origins: set[str] = set()

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
        """The format, the files and the direction in one line."""
        files = " and ".join("standard input" if origin == STDIN else origin for origin in self.origins)
        return f"{self.format} from {files}, {self.languages.source} to {self.languages.target}"

    @property
    def declares_languages(self) -> bool:
        """Whether files of this format name languages, so that those of the corpus select the texts."""
        return self.format != _ALIGNED and FORMATS[self.format].declares_languages

    def fraction(self) -> float | None:
        """Return the fraction of the (compressed) bytes read so far, None if the size is unknown."""
        sizes = [stream.size for stream in self._streams if stream.size is not None]
        if len(sizes) < len(self._streams):
            return None
        total = sum(sizes)
        return sum(stream.consumed() for stream in self._streams) / total if total else 1.0

    def _open(self) -> list[Stream]:
        return [Stream(origin, self.limits, self._check, self.encoding) for origin in self.origins]

    def _pairs(self, streams: Sequence[Stream], counts: Counts) -> Iterator[Pair]:
        self._stated_origins.clear()
        longest = self.limits.segment
        select = self.new_filter() if self.new_filter is not None else None
        most_drops = last_drop = self.limits.dropped_in_a_row
        with ExitStack() as stack:
            for stream in streams:
                stack.enter_context(stream)
            for result in self._read(streams):
                if isinstance(result, Dropped):
                    reason = result.reason
                elif len(result.source) > longest or len(result.target) > longest:
                    reason = f"longer than {longest:,} characters"
                else:
                    source, target = join_lines(result.source), join_lines(result.target)
                    if source and target:
                        pair: Pair | str = Pair(source, target, self._choose_origin(result), result.location)
                        if select is not None:
                            pair = select(cast("Pair", pair))
                        if isinstance(pair, Pair):
                            counts.keep()
                            last_drop = counts.read + most_drops
                            yield pair
                            continue
                        reason = pair
                    else:
                        reason = "empty target" if source else "empty source"
                counts.drop(reason)
                if counts.read > last_drop:
                    raise self._drop_error(streams[0], counts)

    def _read(self, streams: Sequence[Stream]) -> Iterator[ReadResult]:
        read = None if self.format == _ALIGNED else FORMATS[self.format].read_pairs
        return read(streams[0], self.languages) if read else read_aligned(streams[0], streams[1], self.languages)

    def _choose_origin(self, unit: Unit) -> str:
        """Return the origin that a unit states, unless there are too many for the manifest of a memory."""
        stated = self._stated_origins
        if unit.origin is not None and (unit.origin in stated or len(stated) < _MAX_ORIGINS):
            stated.add(unit.origin)
            return unit.origin
        return self.origins[0]

    def _drop_error(self, stream: Stream, counts: Counts) -> TextError:
        place = f"{stream.name}, line {stream.line:,}" if stream.line else stream.name
        return TextError(
            f"{place}: {self.limits.dropped_in_a_row:,} units in a row give no pair ({counts.describe()}). "
            "Check that the file has both languages, and remove empty units."
        )


def _choose_format(origins: Sequence[str], stated: str | None) -> str:
    if stated is not None and stated != _ALIGNED and stated not in _PAIR_FORMATS:
        names = ", ".join([*_PAIR_FORMATS, _ALIGNED])
        raise UsageError(f"{stated!r} is not a format. Choose one with --format: {names}.")
    if len(origins) == 1 and stated != _ALIGNED:
        return _choose_single_format(origins[0], stated)
    if len(origins) == 2 and stated in (None, _ALIGNED):
        if origins == (STDIN, STDIN):
            raise UsageError("Both files are standard input ('-'). Save one to a file and give its path.")
        if stated is None and (known := next(filter(None, map(_find_pair_format, origins)), None)):
            raise UsageError(
                f"Two paths are plain text aligned line by line, but one ends as {known}, which contains both "
                f"sides. Give one {known} file at a time, or state --format {_ALIGNED} if the lines are plain "
                "text."
            )
        return _ALIGNED
    raise UsageError(
        f"{len(origins)} {'path does' if len(origins) == 1 else 'paths do'} not make a corpus"
        f"{f' of format {stated}' if stated else ''}. Give one file ({', '.join(_PAIR_FORMATS)}), or two plain "
        f"text files aligned line by line ({_ALIGNED}), the source first."
    )


def _choose_single_format(origin: str, stated: str | None) -> str:
    if origin == STDIN:
        choice = stated or "tsv"
        if not FORMATS[choice].reads_stdin:
            allowed = ", ".join(name for name, known in _PAIR_FORMATS.items() if known.reads_stdin)
            raise UsageError(f"{choice} cannot come from standard input, only {allowed}. Save it to a file.")
        return choice
    if known := stated or _find_pair_format(origin):
        return known
    if Path(origin).is_dir():
        raise UsageError(f"{origin} is a folder: give the files in it, one by one.")
    endings = ", ".join(ending for format in _PAIR_FORMATS.values() for ending in format.endings)
    raise UsageError(
        f"{origin}: the ending names no known format. Known are {endings}, each also with "
        f"{' or '.join(COMPRESSED_ENDINGS)}; choose one with --format: {', '.join(_PAIR_FORMATS)}. "
        "Plain text needs two files, the source first."
    )


def names_pair_format(path: str) -> bool:
    """Return whether the ending of a path names a format with both sides of parallel text.

    Args:
        path: The path, which may be that of a compressed file.
    """
    return path == STDIN or _find_pair_format(path) is not None


def _find_pair_format(origin: str) -> str | None:
    name = origin.lower()
    for compressed in COMPRESSED_ENDINGS:
        name = name.removesuffix(compressed)
    return find_format(name, _PAIR_FORMATS)


class Written(NamedTuple):
    """The number of pairs written.

    Attributes:
        pairs: All pairs.
        mended: The pairs with a replaced character that the format cannot contain.
    """

    pairs: int
    mended: int


def write_pairs(
    pairs: Iterable[LocatedPair],
    path: str | os.PathLike[str],
    *,
    source_language: str,
    target_language: str,
    format: str | None = None,
    total: int | None = None,
    progress: Progress = silent,
) -> Written:
    r"""Write pairs to a file, which takes its name when it is complete.

    TMX (1.4) and JSONL contain the origin and the location of each pair, TSV has two columns. In TMX a character that
    XML cannot contain becomes U+FFFD, in TSV a tab or a line break becomes a space.

    Args:
        pairs: The pairs, such as a `Corpus` or the sentences of a memory.
        path: The file; an existing one is replaced.
        source_language: The language of the sources.
        target_language: The language of the targets.
        format: "tsv", "jsonl" or "tmx", by default that of the ending.
        total: The number of pairs, for the progress; None if it is unknown.
        progress: Called once for each 10,000 pairs.

    Returns:
        The number of pairs written, and how many of them were changed.

    Raises:
        UsageError: If the format is unknown, or the languages are not two different ones.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "pairs.tsv")
        ...     write_pairs([Pair("Tag", "day", "a.po", 1)], path, source_language="de", target_language="en")
        ...     path.read_text(encoding="utf-8")
        Written(pairs=1, mended=0)
        'Tag\tday\n'
    """
    languages = Languages.from_tags(source_language, target_language, None)
    writer = _WRITERS[_choose_writer(path, format)]
    count = mended = 0
    with open_output(path) as file:
        file.write(writer.head(languages).encode("utf-8"))
        for count, pair in enumerate(pairs, start=1):
            text, changed = writer.format_pair(pair, languages)
            file.write(text.encode("utf-8"))
            mended += changed
            if count % _PROGRESS_PAIRS == 0:
                progress("Writing", count / total if total else None, count, "pairs")
        file.write(writer.tail.encode("utf-8"))
    return Written(count, mended)


def _choose_writer(path: str | os.PathLike[str], stated: str | None) -> str:
    name = stated or find_format(str(path), FORMATS)
    if name not in _WRITERS:
        what = f"{stated!r} is not a format to write" if stated else f"{path}: the ending names no format to write"
        raise UsageError(f"{what}. Choose {', '.join(_WRITERS)}, by the ending of the file or with --format.")
    return name
