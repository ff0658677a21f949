"""XLIFF as parallel text: the segments that have a target."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.documents import xliff1, xliff2
from ibidem.text.documents.document import Claim, Draft
from ibidem.text.documents.markup import XmlWindow, parse_tokens
from ibidem.text.documents.xliff import read_root, read_units
from ibidem.text.inline import plain_text
from ibidem.text.limits import BLOCK
from ibidem.text.pair import Dropped, Found, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ibidem.text.language import Languages
    from ibidem.text.stream import Stream


def read_xliff_pairs(stream: Stream, languages: Languages) -> Iterator[Found]:
    """Yield each segment in the user's direction, its codes left out; one without a target is dropped.

    The file is read block by block, and only the unit at hand is kept. Raises TextError where a language is reached
    that is neither of the two, or a file that translates in the other direction than those before it.
    """
    head = stream.read(BLOCK)
    window = XmlWindow(head)
    blocks = chain([head] if head else [], iter(lambda: stream.read(BLOCK), b""))
    tokens = parse_tokens(window.pass_on(blocks), stream.name)
    root, version = read_root(tokens, stream.name)
    direction = _Direction(stream.name, languages)
    if version.startswith("2."):
        direction.check(xliff2.claims(root))
    for file, unit, inherited in read_units(
        tokens, root, xliff1.UNIT if version.startswith("1.") else xliff2.UNIT, stream.name, window
    ):
        draft = Draft()
        if version.startswith("1."):
            direction.check(xliff1.claims(file))
            xliff1.read_unit(unit, inherited, draft, window, None)
        else:
            xliff2.read_unit(unit, inherited, draft, window)
        for segment in draft.segments:
            source, target = plain_text(segment.source), segment.target
            if not target.strip():
                yield Dropped("untranslated")
            elif direction.is_reverse:
                yield Unit(target, source, segment.location)
            else:
                yield Unit(source, target, segment.location)


class _Direction:
    """Whether a file translates from the user's target language; one that names no languages does not."""

    def __init__(self, name: str, languages: Languages) -> None:
        self._name = name
        self._languages = languages
        self._found: bool | None = None

    @property
    def is_reverse(self) -> bool:
        return self._found is True

    def check(self, claims: Iterable[Claim]) -> None:
        """Take the direction from these languages; raises TextError where they do not fit."""
        for claim in claims:
            side = self._languages.match(claim.tag)
            if side is None:
                raise TextError(
                    f"{self._name}, line {claim.line}: its language is {claim.tag[:40]!r}, and one of "
                    f"{self._languages.source!r} and {self._languages.target!r} is needed. Choose them with "
                    "--source-language and --target-language."
                )
            reverse = claim.is_target == (side == self._languages.source)
            if self._found not in (None, reverse):
                raise TextError(
                    f"{self._name}, line {claim.line}: its files translate in both directions. "
                    "Split it, one direction a file."
                )
            self._found = reverse
