"""XML parsed with expat in bounded memory, as events or as tokens with their byte positions.

Every entity but the five of XML is refused, and no other file is opened. Expat is used because it counts lines exactly
in files of any length (lxml is off by some lines after the 65,535th) and stores nothing but the current element.
"""

from __future__ import annotations

import re
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from ibidem.errors import TextError
from ibidem.text.stream import (
    BLOCK_BYTES,
    MAX_ATTRIBUTES,
    MAX_DEFAULT_CHARACTERS,
    MAX_DEFAULTS,
    MAX_DEPTH,
    MAX_DOCTYPE_BYTES,
    MAX_NAMES,
    MAX_NAMESPACE,
    MAX_TEXT,
    invalid_byte,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

LANGUAGE = "xml:lang"
SPACE = "xml:space"

UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Matches the characters that XML 1.0 cannot contain, not even as references."""

_INVALID_TOKEN = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]
_PREFIXES = {"": "", "xml": "http://www.w3.org/XML/1998/namespace"}
_REPAIR = "Repair the file or export it again; `xmllint --noout FILE` shows the place."
_MAX_SHOWN = 40


class XmlParser:
    """An expat parser with limits on everything that expat or its handlers store.

    A subclass sets handlers on `parser`. Its handlers of start and end tags count the open elements in `depth`, and
    raise `element_error` above MAX_DEPTH or MAX_ATTRIBUTES; a shared method would cost a call for each tag.

    Args:
        name: The name of the file, for messages.

    Attributes:
        parser: The expat parser.
        fed: The number of bytes parsed.
        depth: The number of open elements.
    """

    def __init__(self, name: str) -> None:
        self.parser = expat.ParserCreate()
        self.name = name
        self.fed = 0
        self.depth = 0
        self._names = 0
        self._doctype: int | None = None
        self._defaults = 0
        self._default_characters = 0
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.SkippedEntityHandler = self._refuse_entity
        self.parser.StartDoctypeDeclHandler = self._start_doctype
        self.parser.EndDoctypeDeclHandler = self._end_doctype
        self.parser.AttlistDeclHandler = self._declare_attribute

    def feed(self, blocks: Iterable[bytes]) -> Iterator[None]:
        """Parse a file, and yield after each block and at the end, when the handlers for it were called.

        Args:
            blocks: The bytes of the file in order.

        Raises:
            TextError: If the file is not well-formed or exceeds a limit; the message names the line.
        """
        for block in blocks:
            self._parse(block, is_last=False)
            self.fed += len(block)
            yield
            self._check_pending()
        self._parse(b"", is_last=True)
        yield

    def element_error(self) -> TextError:
        """Return the error for an element that is too deep, or has too many attributes."""
        if self.depth > MAX_DEPTH:
            return self.limit_error(f"more than {MAX_DEPTH} elements inside one another")
        return self.limit_error(f"an element with more than {MAX_ATTRIBUTES} attributes")

    def limit_error(self, what: str) -> TextError:
        """Return the error for a limit that is exceeded at the current position.

        Args:
            what: What the file has, in words.
        """
        line = self.parser.CurrentLineNumber
        return TextError(f"{self.name}, line {line}: {what}. Check that it is a translation file, or export it again.")

    def syntax_error(self, line: int, what: str) -> TextError:
        """Return the error for XML that is not well-formed.

        Args:
            line: The line of the error, from 1.
            what: The error in words.
        """
        return TextError(f"{self.name}, line {line}: not well-formed XML ({what}). {_REPAIR}")

    def _parse(self, block: bytes, *, is_last: bool) -> None:
        try:
            self.parser.Parse(block, is_last)
        except expat.ExpatError as error:
            raise self._describe(error, block) from error
        except (LookupError, ValueError) as error:
            raise TextError(
                f"{self.name}, line 1: {error}. Convert the file to UTF-8 and declare that encoding."
            ) from error

    def _describe(self, error: expat.ExpatError, block: bytes) -> TextError:
        position = self.parser.ErrorByteIndex - self.fed
        if error.code == _INVALID_TOKEN and 0 <= position < len(block):
            # Expat reports a byte that is not UTF-8 as an invalid token.
            try:
                block[position : position + 4].decode("utf-8")
            except UnicodeDecodeError as undecoded:
                if undecoded.start == 0:
                    return invalid_byte(self.name, error.lineno, block[position])
        return self.syntax_error(error.lineno, expat.ErrorString(error.code))

    def _check_pending(self) -> None:
        """Limit what expat stores across blocks."""
        # A tag or a comment is stored until it is complete.
        if self.fed - self.parser.CurrentByteIndex > MAX_TEXT:
            raise self.limit_error(f"a tag longer than {MAX_TEXT:,} bytes")
        if self._doctype is not None and self.fed - self._doctype > MAX_DOCTYPE_BYTES:
            raise self.limit_error(f"a document type longer than {MAX_DOCTYPE_BYTES:,} bytes")
        names = self.parser.intern
        if len(names) != self._names:
            self._names = len(names)
            if self._names > MAX_NAMES or sum(len(name or "") for name in names) > MAX_TEXT:
                raise self.limit_error("too many different names of elements and attributes")

    def _start_doctype(self, *_: object) -> None:
        self._doctype = self.parser.CurrentByteIndex

    def _end_doctype(self) -> None:
        self._doctype = None

    def _declare_attribute(self, *declaration: object) -> None:
        default = declaration[3]
        if isinstance(default, str):
            self._defaults += 1
            self._default_characters += len(default)
            if self._defaults > MAX_DEFAULTS or self._default_characters > MAX_DEFAULT_CHARACTERS:
                raise self.limit_error("too many default values of attributes in the document type")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise TextError(
            f"{self.name}, line {self.parser.CurrentLineNumber}: the entity {name[:_MAX_SHOWN]!r} is refused, because "
            "entities can open other files or fill the memory. Replace it by its text and remove its declaration."
        )


class Kind(Enum):
    """The kind of a token; comments, the document type and the delimiters of CDATA are OTHER."""

    START = "start"
    END = "end"
    TEXT = "text"
    INSTRUCTION = "instruction"
    OTHER = "other"


class Token(NamedTuple):
    """A piece of an XML file.

    Attributes:
        kind: What the token is.
        start: The position of its first byte.
        end: The position after its last byte. The end of an element that closes itself (`<x/>`) has no bytes.
        line: Its line, from 1.
        name: The name of an element; in the namespace of the root without a prefix, else after the URI and a space.
        attributes: The attributes of a start tag.
        text: The text that it stands for.
    """

    kind: Kind
    start: int
    end: int
    line: int
    name: str = ""
    attributes: Mapping[str, str] = {}
    text: str = ""


def read_tokens(data: bytes, name: str) -> Iterator[Token]:
    """Yield the tokens of an XML file, which together are its bytes.

    Args:
        data: The bytes of the file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not well-formed or exceeds a limit.

    Examples:
        >>> [token.kind.value for token in read_tokens(b"<a>text</a>", "a.xml")]
        ['start', 'text', 'end']
    """
    return parse_tokens((data[first : first + BLOCK_BYTES] for first in range(0, len(data), BLOCK_BYTES)), name)


def parse_tokens(blocks: Iterable[bytes], name: str) -> Iterator[Token]:
    """Yield the tokens of an XML file that is read block by block, which together are its bytes.

    Args:
        blocks: The bytes of the file in order.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not well-formed or exceeds a limit.
    """
    parser = _TokenParser(name)
    for _ in parser.feed(blocks):
        yield from parser.take()
    yield from parser.take(parser.fed)


class _TokenParser(XmlParser):
    """Collects tokens from the events of expat; each one ends where the next begins.

    Namespaces are resolved here. Expat would put the whole URI into each name of an element and an attribute before
    any handler is called, so that one tag with a long URI and many attributes could fill the memory.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._namespace: str | None = None
        self._prefixes = _PREFIXES
        self._open: list[tuple[str, dict[str, str]]] = []
        self._pending: deque[Token] = deque()
        self.parser.buffer_text = False
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = lambda text: self._add(Kind.TEXT, text=text)
        self.parser.ProcessingInstructionHandler = lambda *_: self._add(Kind.INSTRUCTION)
        self.parser.DefaultHandler = lambda _: self._add(Kind.OTHER)

    def take(self, end: int | None = None) -> Iterator[Token]:
        """Yield the complete tokens; with the end of the file, all of them."""
        while len(self._pending) > 1:
            token = self._pending.popleft()
            yield token._replace(end=self._pending[0].start)
        if end is not None and self._pending:
            yield self._pending.popleft()._replace(end=end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH or len(attributes) > MAX_ATTRIBUTES:
            raise self.element_error()
        outer = self._prefixes
        for attribute in attributes:
            if attribute.startswith("xmlns"):
                self._declare_prefix(attribute, attributes[attribute], outer)
        resolved = self._resolve(name)
        for attribute in attributes:
            if ":" in attribute:
                self._find_namespace(attribute.partition(":")[0])
        self._open.append((resolved, outer))
        self._add(Kind.START, name=resolved, attributes=attributes)

    def _end(self, _: str) -> None:
        self.depth -= 1
        resolved, self._prefixes = self._open.pop()
        self._add(Kind.END, name=resolved)

    def _declare_prefix(self, attribute: str, uri: str, outer: dict[str, str]) -> None:
        keyword, _, prefix = attribute.partition(":")
        if keyword != "xmlns":
            return
        if len(uri) > MAX_NAMESPACE:
            raise self.limit_error(f"a namespace longer than {MAX_NAMESPACE:,} characters")
        if self._prefixes is outer:
            self._prefixes = dict(outer)
        self._prefixes[prefix] = uri
        if len(self._prefixes) > MAX_ATTRIBUTES:
            raise self.limit_error(f"more than {MAX_ATTRIBUTES} namespaces")

    def _resolve(self, name: str) -> str:
        prefix, _, local = name.rpartition(":")
        namespace = self._find_namespace(prefix)
        if self._namespace is None:
            self._namespace = namespace
        return local if namespace == self._namespace else f"{namespace} {local}"

    def _find_namespace(self, prefix: str) -> str:
        if prefix not in self._prefixes and prefix != "xmlns":
            raise self.syntax_error(self.parser.CurrentLineNumber, "unbound prefix")
        return self._prefixes.get(prefix, "")

    def _add(self, kind: Kind, *, name: str = "", attributes: Mapping[str, str] | None = None, text: str = "") -> None:
        start = self.parser.CurrentByteIndex
        self._pending.append(Token(kind, start, start, self.parser.CurrentLineNumber, name, attributes or {}, text))


def escape(text: str, newline: str = "\n") -> str:
    """Escape a text for the content of an element.

    Args:
        text: The text.
        newline: The line end of the file.

    Raises:
        ValueError: If XML cannot contain one of its characters.

    Examples:
        >>> escape("1 < 2 & 3")
        '1 &lt; 2 &amp; 3'
    """
    if unfit := UNFIT.search(text):
        raise ValueError(f"XML cannot contain the character U+{ord(unfit[0]):04X}")
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return escaped.replace("\n", newline)


def escape_value(text: str) -> str:
    """Escape a text for the value of an attribute in double quotes.

    Args:
        text: The text.

    Raises:
        ValueError: If XML cannot contain one of its characters.

    Examples:
        >>> escape_value('a "b" & c')
        'a &quot;b&quot; &amp; c'
    """
    return escape(text, "&#10;").replace("\t", "&#9;").replace('"', "&quot;")
