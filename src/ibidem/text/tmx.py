"""TMX 1.4, as a stream of parse events: no tree is built, no entity expanded, no other file opened.

The standard library's expat is used, because it counts lines exactly in files of any length (lxml is off by
some lines after the 65,535th) and holds nothing but the unit at hand.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.limits import BLOCK, DEEPEST, LONGEST, MOST_ATTRIBUTES
from ibidem.text.pair import Dropped, Found, Unit, located
from ibidem.text.xml import LOCATION, ORIGIN, XmlReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.language import Languages
    from ibidem.text.stream import Stream

_CODE = frozenset({"bpt", "ept", "it", "ph", "ut"})
_NUMBER = re.compile("[0-9]{1,18}")


def read_tmx(stream: Stream, languages: Languages) -> Iterator[Found]:
    """Yield the first segment of either language from each `<tu>`; a unit that lacks one is dropped.

    Text inside `<hi>` is kept. The content of `<bpt>`, `<ept>`, `<it>`, `<ph>` and `<ut>` is native code and
    is left out, along with any `<sub>` in it, which is a text apart (a footnote, a title). The encoding is
    the one that the XML declares: UTF-8, unless it says otherwise. Where an exported memory says in a `<prop>`
    which file and line a unit came from, these are its origin and location.
    """
    units = _Units(stream.name, languages)
    for _ in units.feed(iter(lambda: stream.read(BLOCK), b"")):
        yield from units.take()


class _Units(XmlReader):
    """Collects units from expat's events."""

    def __init__(self, name: str, languages: Languages) -> None:
        super().__init__(name)
        self._languages = languages
        self._found: deque[Found] = deque()
        self._line = 0
        self._sides: dict[str, str] = {}
        self._language: str | None = None
        self._stated: dict[str, str] = {}
        self._statement = ""
        self._segment: list[str] | None = None
        self._length = 0
        self._code_depth = 0
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def take(self) -> Iterator[Found]:
        """Yield what was completed since the last call."""
        while self._found:
            yield self._found.popleft()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEEPEST or len(attributes) > MOST_ATTRIBUTES:
            raise self.refuse_element()
        if ":" in name:
            name = name.rpartition(":")[2]
        if self._segment is not None:
            self._code_depth += self._code_depth > 0 or name in _CODE
        elif name == "tu":
            self._line = self.parser.CurrentLineNumber
            self._sides, self._stated = {}, {}
        elif name == "prop" and attributes.get("type") in (ORIGIN, LOCATION):
            self._statement, self._segment, self._length, self._code_depth = attributes["type"], [], 0, 0
        elif name == "tuv":
            self._language = self._languages.match(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg" and self._language and self._language not in self._sides:
            self._segment, self._length, self._code_depth = [], 0, 0

    def _end(self, name: str) -> None:
        self.depth -= 1
        if ":" in name:
            name = name.rpartition(":")[2]
        if self._segment is not None and self._statement:
            if name == "prop":
                self._stated[self._statement] = "".join(self._segment)
                self._statement, self._segment = "", None
        elif self._segment is not None and self._language is not None:
            if name == "seg":
                self._sides[self._language] = "".join(self._segment)
                self._segment = None
            elif self._code_depth:
                self._code_depth -= 1
        elif name == "tuv":
            self._language = None
        elif name == "tu":
            self._found.append(self._unit())

    def _text(self, text: str) -> None:
        if self._segment is None or self._code_depth:
            return
        self._length += len(text)
        if self._length > LONGEST:
            raise TextError(
                f"{self.name}, line {self._line}: a segment of this unit is longer than {LONGEST:,} "
                "characters. Remove or split the unit."
            )
        self._segment.append(text)

    def _unit(self) -> Found:
        for language in (self._languages.source, self._languages.target):
            if language not in self._sides:
                return Dropped(f"no {language!r} segment")
        unit = Unit(self._sides[self._languages.source], self._sides[self._languages.target], self._line)
        location = self._stated.get(LOCATION, "")
        return located(unit, self._stated.get(ORIGIN), int(location) if _NUMBER.fullmatch(location) else None)
