"""Documents: files with segments to translate that are written back byte for byte, except for the filled targets.

A reader of a format builds a `Document` with a `DocumentBuilder`. `fill` translates the segments without a target.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import TextError
from ibidem.progress import Progress, silent
from ibidem.text.inline import Request, Untranslated, is_blank, plain_text, translate_pieces
from ibidem.text.language import primary_language
from ibidem.text.stream import BYTE_ORDER_MARK, MAX_TEXT, RECODE, decode_line, line_too_long
from ibidem.text.translation_check import check_translation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ibidem.text.inline import Pieces, Translate

BATCH_SEGMENTS = 512
"""The number of segments that are translated together, between two reports of progress."""


class State(Enum):
    """The state of a segment before it is translated."""

    EMPTY = "untranslated"
    FUZZY = "fuzzy"
    FILLED = "translated already"
    LOCKED = "locked"


@dataclass(frozen=True, slots=True)
class Segment:
    """One text of a document that has, or needs, a translation.

    Attributes:
        number: Its number in the document, from 0.
        source: The text and its codes.
        location: The line of the source, from 1.
        target: The existing translation, without codes.
        state: Whether there is a translation, and whether it may be replaced.
        context: The context that the document states, such as a msgctxt.
        notes: The notes of the document for translators.
        locked: Why a LOCKED segment must not change.
        printf: As in `Request`.
        keep_lines: As in `Request`.
        accelerators: As in `Request`.
        untranslatable: Why the source cannot be translated, "" if it can.
        place: Where the source is, in words, if lines mean nothing in the format; "" for the line.
    """

    number: int
    source: Pieces
    location: int
    target: str = ""
    state: State = State.EMPTY
    context: str | None = None
    notes: tuple[str, ...] = ()
    locked: str = ""
    printf: bool = False
    keep_lines: bool = True
    accelerators: bool = True
    untranslatable: str = ""
    place: str = ""


class Edit(NamedTuple):
    """A replacement of bytes that is made once segments are filled.

    Attributes:
        start: The position of the first byte that is replaced.
        end: The position after the last one.
        segments: The numbers of the segments; the edit is made once one of them is filled.
        parts: The new bytes; a number stands for the target of a segment, and `confidence_part` of it for what the
            format writes about its confidence.
        whole: Whether all of the segments must be filled.
    """

    start: int
    end: int
    segments: tuple[int, ...]
    parts: tuple[bytes | int, ...]
    whole: bool = False


def confidence_part(number: int) -> int:
    """Return the number that stands for the confidence of a segment in an `Edit`, and in what `fill` returns.

    Args:
        number: The number of the segment.
    """
    return ~number


class DeclaredLanguage(NamedTuple):
    """A language that a document declares.

    Attributes:
        is_target: Whether it is the language of the targets; else it is that of the sources.
        tag: The tag as it is written.
        line: The line of the declaration, from 1.
    """

    is_target: bool
    tag: str
    line: int


@dataclass(frozen=True)
class Document:
    """The bytes of a file, its segments, and the positions of their targets.

    Attributes:
        name: The name of the file, for messages.
        format: The name of the format.
        data: The bytes of the file.
        segments: The segments in order.
        edits: The replacements that write the targets.
        encode: Encodes a target for the file; raises ValueError for a text that the format cannot contain.
        languages: The languages that the document declares.
        clear_failed: Whether a segment that cannot be translated is left empty, because the target replaces the source.
        encode_confidence: Encodes what the format says of the confidence of a target; None if it says nothing.
    """

    name: str
    format: str
    data: bytes
    segments: Sequence[Segment]
    edits: Sequence[Edit]
    encode: Callable[[Segment, Pieces], bytes]
    languages: Sequence[DeclaredLanguage] = ()
    clear_failed: bool = False
    encode_confidence: Callable[[Segment, Pieces, float], bytes] | None = None

    def write(self, targets: Mapping[int, bytes]) -> Iterator[bytes | memoryview]:
        """Yield the file with encoded targets; without targets it is unchanged.

        Args:
            targets: The encoded targets, by the numbers of their segments, as `fill` returns them.
        """
        view = memoryview(self.data)
        last = 0
        for edit in sorted(self.edits, key=lambda edit: edit.start):
            filled = [number in targets for number in edit.segments]
            if not (all(filled) if edit.whole else any(filled)):
                continue
            yield view[last : edit.start]
            for part in edit.parts:
                if isinstance(part, bytes):
                    yield part
                elif part in targets:
                    yield targets[part]
            last = edit.end
        yield view[last:]


@dataclass(slots=True)
class DocumentBuilder:
    """The segments, edits and declared languages that a reader has found so far.

    Attributes:
        segments: The segments in order.
        edits: The replacements that write the targets, in any order.
        languages: The languages that the file declares.
    """

    segments: list[Segment] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    languages: list[DeclaredLanguage] = field(default_factory=list)

    def add(
        self,
        source: Pieces,
        location: int,
        *,
        target: str = "",
        filled: bool | None = None,
        fuzzy: bool = False,
        locked: str = "",
        **details: Any,
    ) -> int:
        """Add a segment, with its state.

        Args:
            source: The text and its codes; a blank one is locked.
            location: The line of the source.
            target: The existing translation.
            filled: Whether there is a translation; by default, whether `target` is not blank.
            fuzzy: Whether the existing translation is doubtful.
            locked: Why the segment must not change, "" if it may.
            **details: Other fields of the `Segment`.

        Returns:
            The number of the segment.
        """
        locked = locked or ("an empty source" if is_blank(source) else "")
        if locked:
            state = State.LOCKED
        elif not (bool(target.strip()) if filled is None else filled):
            state = State.EMPTY
        else:
            state = State.FUZZY if fuzzy else State.FILLED
        number = len(self.segments)
        self.segments.append(
            Segment(number, source, location, target=target, state=state, locked=locked, **details),
        )
        return number

    def build(
        self,
        name: str,
        format: str,
        data: bytes,
        encode: Callable[[Segment, Pieces], bytes],
        *,
        clear_failed: bool = False,
    ) -> Document:
        """Return the document of everything that was added.

        Args:
            name: The name of the file, for messages.
            format: The name of the format, for reports.
            data: The bytes of the file.
            encode: Encodes a target for the file; raises ValueError for a text that the format cannot contain.
            clear_failed: Whether a segment that cannot be translated is left empty.
        """
        return Document(name, format, data, self.segments, self.edits, encode, self.languages, clear_failed)


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        number: The number of the line, from 1.
        text: The text without its line end.
        start: The position in the file of the first byte of the text.
        end: The position after the last byte of the text.
    """

    number: int
    text: str
    start: int
    end: int

    def position(self, column: int) -> int:
        """Return the position in the file of a character of the line.

        Args:
            column: The number of the character, from 0; the length of the text stands for its end.

        Returns:
            The position in bytes from the start of the file.
        """
        return self.start + len(self.text[:column].encode("utf-8"))


def read_lines(data: bytes, name: str, remedy: str = RECODE) -> Iterator[Line]:
    """Yield the lines of a file in UTF-8; only LF and CRLF end a line.

    Args:
        data: The bytes of the file; a byte order mark at the start is left out.
        name: The name of the file, for messages.
        remedy: The advice for a byte that is not UTF-8.

    Raises:
        TextError: If a line is longer than MAX_TEXT bytes or not UTF-8.
    """
    start, number = 0, 0
    while start < len(data):
        number += 1
        newline = data.find(b"\n", start)
        following = len(data) if newline < 0 else newline + 1
        raw = data[start:following]
        first = start + len(BYTE_ORDER_MARK) if number == 1 and raw.startswith(BYTE_ORDER_MARK) else start
        end = start + len(raw.removesuffix(b"\n").removesuffix(b"\r"))
        if end - first > MAX_TEXT:
            raise line_too_long(name, number)
        yield Line(number, decode_line(raw, number, name, remedy), first, end)
        start = following


def newline_of(data: bytes) -> bytes:
    """Return the line end that a file uses.

    Args:
        data: The bytes of the file.

    Returns:
        CRLF if the file has one, else LF.
    """
    return b"\r\n" if b"\r\n" in data else b"\n"


@dataclass(frozen=True, slots=True)
class FillSettings:
    """Which segments are translated in addition to those without a target.

    Attributes:
        overwrite: Whether to replace every translation that is not locked.
        fuzzy: Whether to replace fuzzy translations.
        min_confidence: Translations of a lower confidence are left out; one of unknown confidence is kept.
        mark_confidence: Whether the confidence of translations is written, where the format has a place for it.
    """

    overwrite: bool = False
    fuzzy: bool = False
    min_confidence: float = 0.0
    mark_confidence: bool = True

    def reason_to_keep(self, segment: Segment) -> str | None:
        """Return why a segment is not translated.

        Args:
            segment: A segment of the document.

        Returns:
            The reason in words, None if the segment is translated.
        """
        if segment.state == State.LOCKED:
            return segment.locked
        wanted = {State.EMPTY}
        if self.fuzzy or self.overwrite:
            wanted.add(State.FUZZY)
        if self.overwrite:
            wanted.add(State.FILLED)
        return None if segment.state in wanted else str(segment.state.value)


@dataclass(frozen=True, slots=True)
class Failure:
    """A segment without a translation, or with a suspicious one.

    Attributes:
        line: The line of the source, from 1.
        source: The source without codes.
        reason: Why there is no translation, or why it is suspicious, in words.
        place: As in `Segment`.
    """

    line: int
    source: str
    reason: str
    place: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the failure as a JSON object; `place` is left out if it is empty."""
        place = {"place": self.place} if self.place else {}
        return {"line": self.line, **place, "source": self.source, "reason": self.reason}


@dataclass
class FillReport:
    """The result for the segments of a document.

    Attributes:
        name: The name of the file.
        format: The name of its format.
        translated: The number of translated segments.
        kept: The number of segments that were left as they are, by reason.
        failed: The segments that could not be translated.
        suspicious: The translated segments that should be checked (see `check_translation`).
        unsure: The segments whose translation was left out because of its confidence.
        confidences: The known confidences of the translated segments, by their numbers.
    """

    name: str
    format: str
    translated: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)
    suspicious: list[Failure] = field(default_factory=list)
    unsure: list[Failure] = field(default_factory=list)
    confidences: dict[int, float] = field(default_factory=dict)

    @property
    def segments(self) -> int:
        """The number of segments."""
        return self.translated + sum(self.kept.values()) + len(self.failed) + len(self.unsure)

    def describe(self) -> str:
        """Describe the result in one line."""
        kept = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.kept.items()))
        return (
            f"{self.name} ({self.format}): {self.segments:,} {'segment' if self.segments == 1 else 'segments'}, "
            f"translated {self.translated:,}, kept {sum(self.kept.values()):,}{f' ({kept})' if kept else ''}, "
            f"failed {len(self.failed):,}{f', left out {len(self.unsure):,}' if self.unsure else ''}"
            f"{f', suspicious {len(self.suspicious):,}' if self.suspicious else ''}"
        )

    def lines(self) -> Iterator[str]:
        """Yield a line for each failure, with its place and its reason."""
        for failure in self.failed:
            place = failure.place or f"line {failure.line}"
            yield f"{self.name}, {place}: not translated: {failure.reason}"
        for unsure in self.unsure:
            yield f"{self.name}, {unsure.place or f'line {unsure.line}'}: left out: {unsure.reason}"

    def warning_lines(self) -> Iterator[str]:
        """Yield a line for each suspicious translation, with its place and the reason."""
        for found in self.suspicious:
            yield f"warning: {self.name}, {found.place or f'line {found.line}'}: {found.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "file": self.name,
            "format": self.format,
            "segments": self.segments,
            "translated": self.translated,
            "kept": self.kept,
            "failed": [failure.to_json() for failure in self.failed],
            "suspicious": [found.to_json() for found in self.suspicious],
            "left_out": [found.to_json() for found in self.unsure],
            "confidence": self.mean_confidence,
        }

    @property
    def mean_confidence(self) -> float | None:
        """The mean confidence of the translated segments; None if it is unknown."""
        known = list(self.confidences.values())
        return round(sum(known) / len(known), 4) if known else None


def fill(
    document: Document,
    translate: Translate,
    settings: FillSettings | None = None,
    *,
    confidences: Mapping[str, float | None] | None = None,
    progress: Progress = silent,
) -> tuple[dict[int, bytes], FillReport]:
    r"""Translate the segments of a document that have no target.

    Args:
        document: The document, as `open_document` reads it.
        translate: The translator, a function from a list of single lines to their translations in the same order.
        settings: Which other segments are translated; by default none.
        confidences: The confidence of each line that was translated, which `translate` fills.
        progress: Called after each batch of BATCH_SEGMENTS segments.

    Returns:
        The encoded targets and confidences, by the numbers of their segments, and the report.

    Examples:
        >>> from ibidem.text.plain import read_plain_document
        >>> document = read_plain_document("eins\nzwei\n".encode(), "numbers.txt")
        >>> targets, report = fill(document, lambda texts: [text.upper() for text in texts])
        >>> b"".join(document.write(targets))
        b'EINS\nZWEI\n'
        >>> report.describe()
        'numbers.txt (plain text): 2 segments, translated 2, kept 0, failed 0'
    """
    settings = settings or FillSettings()
    report = FillReport(document.name, document.format)
    targets: dict[int, bytes] = {}
    wanted: list[Segment] = []
    for segment in document.segments:
        if (reason := settings.reason_to_keep(segment)) is not None:
            report.kept[reason] = report.kept.get(reason, 0) + 1
        else:
            wanted.append(segment)
    for first in range(0, len(wanted), BATCH_SEGMENTS):
        _fill_batch(document, wanted[first : first + BATCH_SEGMENTS], translate, targets, report, settings, confidences)
        done = min(first + BATCH_SEGMENTS, len(wanted))
        progress("Translating", done / len(wanted), done, "segments")
    return targets, report


def check_languages(document: Document, source: str | None, target: str | None) -> None:
    """Compare the languages that a document declares with those of the model.

    Args:
        document: The document.
        source: The model's source language, None if it is unknown.
        target: The model's target language, None if it is unknown.

    Raises:
        TextError: If a language differs.
    """
    for declared in document.languages:
        expected = target if declared.is_target else source
        if expected is not None and primary_language(declared.tag) != primary_language(expected):
            side = "target" if declared.is_target else "source"
            raise TextError(
                f"{document.name}, line {declared.line}: its {side} language is {declared.tag!r}, but the model's is "
                f"{expected!r}. Use a model for these languages, or correct the language in the file."
            )


def _fill_batch(
    document: Document,
    segments: Sequence[Segment],
    translate: Translate,
    targets: dict[int, bytes],
    report: FillReport,
    settings: FillSettings,
    confidences: Mapping[str, float | None] | None,
) -> None:
    possible = [segment for segment in segments if not segment.untranslatable]
    requests = [
        Request(segment.source, segment.printf, segment.keep_lines, segment.accelerators) for segment in possible
    ]
    known: list[float | None] = []
    translations = translate_pieces(requests, translate, confidences, known)
    results = {
        segment.number: (result, confidence)
        for segment, result, confidence in zip(possible, translations, known, strict=True)
    }
    for segment in segments:
        result, confidence = results.get(segment.number, (Untranslated(segment.untranslatable), None))
        source = plain_text(segment.source)
        if isinstance(result, tuple) and confidence is not None and confidence < settings.min_confidence:
            reason = f"confidence {confidence:.2f}"
            report.unsure.append(Failure(segment.location, source, reason, segment.place))
            if document.clear_failed:
                targets[segment.number] = b""
            continue
        try:
            if isinstance(result, tuple):
                targets[segment.number] = document.encode(segment, result)
                report.translated += 1
                if confidence is not None:
                    report.confidences[segment.number] = confidence
                    if document.encode_confidence is not None and settings.mark_confidence:
                        encoded = document.encode_confidence(segment, result, confidence)
                        targets[confidence_part(segment.number)] = encoded
                if message := check_translation(source, plain_text(result)):
                    report.suspicious.append(Failure(segment.location, source, message, segment.place))
                continue
            reason = result.reason
        except ValueError as error:
            reason = str(error)
        report.failed.append(Failure(segment.location, source, reason, segment.place))
        if document.clear_failed:
            targets[segment.number] = b""
