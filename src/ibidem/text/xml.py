"""Text in XML, and what is wrong with an XML file, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.parsers import expat

from ibidem.errors import TextError
from ibidem.text.limits import (
    DEEPEST,
    LONGEST,
    LONGEST_DEFAULTS,
    LONGEST_DOCTYPE,
    MOST_ATTRIBUTES,
    MOST_DEFAULTS,
    MOST_NAMES,
)
from ibidem.text.stream import bad_byte

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ORIGIN, LOCATION = "x-ibidem-origin", "x-ibidem-location"
"""The types of the `<prop>` that say, in a TMX file of ours, where a pair once came from."""

UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""The characters that XML 1.0 cannot hold, not even as references."""

_INVALID_TOKEN = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]


class XmlReader:
    """Base of the readers of XML: expat with limits on everything that it or its handlers keep in memory.

    A subclass sets handlers on `parser`. Its handlers of start and end tags count the open elements in `depth`, and
    raise `refuse_element` beyond DEEPEST or MOST_ATTRIBUTES; a method for that would cost a call for each tag.
    Entities are refused, and no other file is opened. `fed` is the number of bytes parsed.
    """

    def __init__(self, name: str) -> None:
        self.parser = expat.ParserCreate()
        self.name = name
        self.fed = 0
        self.depth = 0
        self._names = 0
        self._doctype: int | None = None
        self._defaults = 0
        self._default_length = 0
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.SkippedEntityHandler = self._refuse_entity
        self.parser.StartDoctypeDeclHandler = self._start_doctype
        self.parser.EndDoctypeDeclHandler = self._end_doctype
        self.parser.AttlistDeclHandler = self._declare

    def feed(self, blocks: Iterable[bytes]) -> Iterator[None]:
        """Parse the file, and yield after each block and at its end, when all handlers of it were called.

        Raises TextError, with the line, where the file is no sound XML or exceeds a limit.
        """
        for block in blocks:
            self._parse(block, is_last=False)
            self.fed += len(block)
            yield
            self._check_pending()
        self._parse(b"", is_last=True)
        yield

    def refuse_element(self) -> TextError:
        """Describe an element that is too deep, or has too many attributes."""
        if self.depth > DEEPEST:
            return self.refusal(f"more than {DEEPEST} elements inside one another")
        return self.refusal(f"an element with more than {MOST_ATTRIBUTES} attributes")

    def refusal(self, what: str) -> TextError:
        """Describe what exceeds a limit at the place that is being parsed."""
        line = self.parser.CurrentLineNumber
        return TextError(f"{self.name}, line {line}: {what}. Check that it is a translation file, or export it again.")

    def _parse(self, block: bytes, *, is_last: bool) -> None:
        try:
            self.parser.Parse(block, is_last)
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise malformed(self.name, self.parser, error, block, self.fed) from error

    def _check_pending(self) -> None:
        """Refuse what expat keeps in memory across blocks."""
        # A tag or a comment is kept until it is complete.
        if self.fed - self.parser.CurrentByteIndex > LONGEST:
            raise self.refusal(f"a tag longer than {LONGEST:,} bytes")
        if self._doctype is not None and self.fed - self._doctype > LONGEST_DOCTYPE:
            raise self.refusal(f"a document type longer than {LONGEST_DOCTYPE:,} bytes")
        names = self.parser.intern
        if len(names) != self._names:
            self._names = len(names)
            if self._names > MOST_NAMES or sum(len(name or "") for name in names) > LONGEST:
                raise self.refusal("too many different names of elements and attributes")

    def _start_doctype(self, *_: object) -> None:
        self._doctype = self.parser.CurrentByteIndex

    def _end_doctype(self) -> None:
        self._doctype = None

    def _declare(self, *declaration: object) -> None:
        default = declaration[3]
        if isinstance(default, str):
            self._defaults += 1
            self._default_length += len(default)
            if self._defaults > MOST_DEFAULTS or self._default_length > LONGEST_DEFAULTS:
                raise self.refusal("too many default values of attributes in the document type")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise refused_entity(self.name, self.parser.CurrentLineNumber, name)


def malformed(name: str, parser: expat.XMLParserType, error: Exception, block: bytes, fed: int) -> TextError:
    """Describe what expat refused in a block of the file, before which it was fed so many bytes."""
    if not isinstance(error, expat.ExpatError):
        return TextError(f"{name}, line 1: {error}. Convert the file to UTF-8 and declare that encoding.")
    position = parser.ErrorByteIndex - fed
    if error.code == _INVALID_TOKEN and 0 <= position < len(block):
        # expat reports a byte that is not UTF-8 like any other misplaced one.
        try:
            block[position : position + 4].decode("utf-8")
        except UnicodeDecodeError as undecoded:
            if undecoded.start == 0:
                return bad_byte(name, error.lineno, block[position])
    return TextError(
        f"{name}, line {error.lineno}: not well-formed XML ({expat.ErrorString(error.code)}). "
        "Repair the file or export it again; `xmllint --noout FILE` shows the place."
    )


def refused_entity(name: str, line: int, entity: str) -> TextError:
    """Describe an entity, declared or used, that is none of the five of XML."""
    return TextError(
        f"{name}, line {line}: the entity {entity[:40]!r} is refused, because "
        "entities can open other files or fill the memory. Put its text in its place and remove its "
        "declaration."
    )


def escape(text: str, newline: str = "\n") -> str:
    """Text as it stands in an element; raises ValueError for characters that XML cannot hold."""
    if unfit := UNFIT.search(text):
        raise ValueError(f"XML cannot hold the character U+{ord(unfit[0]):04X}")
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return escaped.replace("\n", newline)
