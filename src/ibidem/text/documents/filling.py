"""A document with translations filled in, and the report of what was translated, kept and lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ibidem.errors import TextError
from ibidem.progress import Progress, silent
from ibidem.text.documents.segment import State
from ibidem.text.inline import Loss, Request, plain_text, translate_pieces
from ibidem.text.language import primary_language

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text.documents.document import Document
    from ibidem.text.documents.segment import Segment
    from ibidem.text.inline import Translate

WINDOW = 512
"""Segments that are translated together, so that batches are full and progress is seen."""


@dataclass(frozen=True, slots=True)
class FillSettings:
    """Which segments are translated beside those without a target: those that have one, those that are fuzzy."""

    overwrite: bool = False
    fuzzy: bool = False

    def reason_to_keep(self, segment: Segment) -> str | None:
        """Why a segment stays as it is, None if it is to be translated."""
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
    """A segment that has no translation: its line, its source and why."""

    line: int
    source: str
    reason: str


@dataclass
class FillReport:
    """What became of the segments of a document."""

    name: str
    format: str
    translated: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    failed: list[Failure] = field(default_factory=list)

    @property
    def segments(self) -> int:
        """How many there are."""
        return self.translated + sum(self.kept.values()) + len(self.failed)

    def describe(self) -> str:
        """Say it in one line."""
        kept = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.kept.items()))
        return (
            f"{self.name} ({self.format}): {self.segments:,} {'segment' if self.segments == 1 else 'segments'}, "
            f"translated {self.translated:,}, kept {sum(self.kept.values()):,}{f' ({kept})' if kept else ''}, "
            f"failed {len(self.failed):,}"
        )

    def lines(self) -> Iterator[str]:
        """Say of each failure where it is and what happened."""
        for failure in self.failed:
            yield f"{self.name}, line {failure.line}: not translated: {failure.reason}"

    def to_json(self) -> dict[str, Any]:
        """All of it for machines."""
        return {
            "file": self.name,
            "format": self.format,
            "segments": self.segments,
            "translated": self.translated,
            "kept": self.kept,
            "failed": [
                {"line": failure.line, "source": failure.source, "reason": failure.reason} for failure in self.failed
            ],
        }


def fill(
    document: Document,
    translate: Translate,
    settings: FillSettings | None = None,
    *,
    progress: Progress = silent,
) -> tuple[dict[int, bytes], FillReport]:
    """Translate what a document lacks: the targets to write, by the numbers of their segments, and the report."""
    settings = settings or FillSettings()
    report = FillReport(document.name, document.format)
    targets: dict[int, bytes] = {}
    wanted: list[Segment] = []
    for segment in document.segments:
        if (reason := settings.reason_to_keep(segment)) is not None:
            report.kept[reason] = report.kept.get(reason, 0) + 1
        else:
            wanted.append(segment)
    for first in range(0, len(wanted), WINDOW):
        _fill_window(document, wanted[first : first + WINDOW], translate, targets, report)
        done = min(first + WINDOW, len(wanted))
        progress("Translating", done / len(wanted), done, "segments")
    return targets, report


def check_languages(document: Document, source: str | None, target: str | None) -> None:
    """Refuse a document that says it is in other languages than those of the model; None is not known."""
    for claim in document.claims:
        expected = target if claim.is_target else source
        if expected is not None and primary_language(claim.tag) != primary_language(expected):
            side = "target" if claim.is_target else "source"
            raise TextError(
                f"{document.name}, line {claim.line}: its {side} language is {claim.tag!r}, but the model's is "
                f"{expected!r}. Use a model for these languages, or correct what the file says."
            )


def _fill_window(
    document: Document,
    segments: Sequence[Segment],
    translate: Translate,
    targets: dict[int, bytes],
    report: FillReport,
) -> None:
    possible = [segment for segment in segments if not segment.loss]
    requests = [Request(segment.source, segment.printf, segment.keep_lines) for segment in possible]
    found = dict(zip((segment.number for segment in possible), translate_pieces(requests, translate), strict=True))
    for segment in segments:
        answer = found.get(segment.number, Loss(segment.loss))
        try:
            if isinstance(answer, tuple):
                targets[segment.number] = document.encode(segment, answer)
                report.translated += 1
                continue
            reason = answer.reason
        except ValueError as error:
            reason = str(error)
        report.failed.append(Failure(segment.location, plain_text(segment.source), reason))
        if document.blank_losses:
            targets[segment.number] = b""
