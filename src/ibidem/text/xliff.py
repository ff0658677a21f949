"""XLIFF as parallel text: the segments that have a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.documents.xliff import read_xliff
from ibidem.text.inline import plain_text
from ibidem.text.pair import Dropped, Found, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.documents.document import Document
    from ibidem.text.language import Languages
    from ibidem.text.stream import Stream

LARGEST = 2**28
"""The largest file, in bytes, since it is read whole."""


def read_xliff_pairs(stream: Stream, languages: Languages) -> Iterator[Found]:
    """Yield each segment in the user's direction, its codes left out; one without a target is dropped.

    Raises TextError where the file is in other languages.
    """
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise TextError(f"{stream.name}: larger than {LARGEST:,} bytes. Split it, or convert it to TMX.")
    document = read_xliff(data, stream.name, None)
    reverse = _is_reverse(document, languages)
    for segment in document.segments:
        source, target = plain_text(segment.source), segment.target
        if not target.strip():
            yield Dropped("untranslated")
        elif reverse:
            yield Unit(target, source, segment.location)
        else:
            yield Unit(source, target, segment.location)


def _is_reverse(document: Document, languages: Languages) -> bool:
    """Whether the file translates from the user's target language; one that names no languages does not."""
    directions = set()
    for claim in document.claims:
        side = languages.match(claim.tag)
        if side is None:
            raise TextError(
                f"{document.name}, line {claim.line}: its language is {claim.tag!r}, and one of {languages.source!r} "
                f"and {languages.target!r} is needed. Choose them with --source-language and --target-language."
            )
        directions.add(claim.is_target == (side == languages.source))
    if len(directions) > 1:
        raise TextError(f"{document.name}: its files translate in both directions. Split it, one direction a file.")
    return directions == {True}
