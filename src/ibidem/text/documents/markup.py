"""XML as a stream of tokens that know which bytes of the file they are, so that nothing need be written anew.

Namespaces are resolved; names of the root element's own namespace are given without it. No entity is expanded but
the five of XML, and no other file opened.
"""

from __future__ import annotations

import re
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from ibidem.errors import TextError
from ibidem.text.stream import LONGEST
from ibidem.text.xml import escape, malformed, refused_entity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ibidem.text.inline import Pieces

BLOCK = 2**16
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
LANGUAGE = f"{XML_NAMESPACE} lang"
SPACE = f"{XML_NAMESPACE} space"

_ATTRIBUTE = re.compile(r"""(\s+)([^\s=/>]+)(\s*=\s*)("[^"]*"|'[^']*')""")
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_NAME = re.compile(r"<([^\s/>]+)")
_DECLARATION = re.compile(r"""\sxmlns(?::[^\s=]+)?\s*=\s*(?:"[^"]*"|'[^']*')""")


class Kind(Enum):
    """What a token is; comments, the document type and the marks of CDATA are OTHER."""

    START = "start"
    END = "end"
    TEXT = "text"
    INSTRUCTION = "instruction"
    OTHER = "other"


class Token(NamedTuple):
    """A piece of the file: its bytes, its line, and the name and attributes of an element or the text it stands for.

    The end of an element that closes itself (`<x/>`) has no bytes.
    """

    kind: Kind
    start: int
    end: int
    line: int
    name: str = ""
    attributes: Mapping[str, str] = {}
    text: str = ""


def read_tokens(data: bytes, name: str) -> Iterator[Token]:
    """Yield the tokens of an XML file; raises TextError, with the line, where it is no sound one."""
    parser = expat.ParserCreate(namespace_separator=" ")
    tokens = _Tokens(parser, name)
    for first in range(0, len(data) + 1, BLOCK):
        block = data[first : first + BLOCK]
        try:
            parser.Parse(block, first + BLOCK > len(data))
        except (expat.ExpatError, LookupError, ValueError) as error:
            raise malformed(name, parser, error, block, first) from error
        yield from tokens.take()
        # expat keeps a tag until it is complete: one without end would be read again and again.
        if first + BLOCK - parser.CurrentByteIndex > LONGEST + BLOCK:
            raise TextError(
                f"{name}, line {parser.CurrentLineNumber}: a tag longer than {LONGEST:,} bytes. "
                "Check that it is an XML file."
            )
    yield from tokens.take(len(data))


class _Tokens:
    """Collects tokens from expat's events; each one ends where the next begins."""

    def __init__(self, parser: expat.XMLParserType, name: str) -> None:
        self._parser = parser
        self._name = name
        self._namespace: str | None = None
        self._waiting: deque[Token] = deque()
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = lambda name: self._add(Kind.END, name=self._own(name))
        parser.CharacterDataHandler = lambda text: self._add(Kind.TEXT, text=text)
        parser.ProcessingInstructionHandler = lambda *_: self._add(Kind.INSTRUCTION)
        parser.DefaultHandler = lambda _: self._add(Kind.OTHER)
        parser.EntityDeclHandler = self._refuse
        parser.SkippedEntityHandler = self._refuse

    def take(self, end: int | None = None) -> Iterator[Token]:
        """Yield what is complete; with the end of the file, everything."""
        while len(self._waiting) > 1:
            token = self._waiting.popleft()
            yield token._replace(end=self._waiting[0].start)
        if end is not None and self._waiting:
            yield self._waiting.popleft()._replace(end=end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._namespace is None:
            self._namespace = name.rpartition(" ")[0]
        self._add(Kind.START, name=self._own(name), attributes=attributes)

    def _own(self, name: str) -> str:
        namespace, _, local = name.rpartition(" ")
        return local if namespace == self._namespace else name

    def _add(self, kind: Kind, *, name: str = "", attributes: Mapping[str, str] | None = None, text: str = "") -> None:
        start = self._parser.CurrentByteIndex
        self._waiting.append(Token(kind, start, start, self._parser.CurrentLineNumber, name, attributes or {}, text))

    def _refuse(self, name: str, *_: object) -> None:
        raise refused_entity(self._name, self._parser.CurrentLineNumber, name)


class Xml:
    """The bytes of an XML file and how they are written: encoding, found as XML prescribes, and line ends."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.codec = _find_codec(data)
        self.newline = "\r\n" if "\r\n".encode(self.codec) in data else "\n"

    def raw(self, start: int, end: int) -> str:
        """The markup between two places."""
        return self.data[start:end].decode(self.codec)

    def encode(self, markup: str) -> bytes:
        """Markup as bytes of the file; a character that its encoding lacks is a reference, `&#8364;`."""
        return markup.encode(self.codec, "xmlcharrefreplace")

    def indent(self, start: int, end: int) -> str:
        """The line break and the indentation that end at a place, if there is only white space since another."""
        gap = self.raw(start, end)
        if gap.strip() or "\n" not in gap:
            return ""
        return self.newline + gap[gap.rindex("\n") + 1 :]

    def write(self, pieces: Pieces) -> bytes:
        """Texts and codes as bytes of the file; raises ValueError for characters that XML cannot hold."""
        return self.encode(
            "".join(escape(piece, self.newline) if isinstance(piece, str) else piece.text for piece in pieces)
        )


def name_of(tag: str) -> str:
    """The name of an element, with its prefix, from its start tag."""
    match = _NAME.match(tag)
    if match is None:
        raise ValueError(f"{tag!r} is no start tag")
    return match[1]


def set_attribute(tag: str, name: str, value: str | None) -> str:
    """A start tag with this attribute set, in its place or as the last one, or removed."""
    for match in _ATTRIBUTE.finditer(tag):
        if match[2] == name:
            written = "" if value is None else f'{match[1]}{name}{match[3]}"{value}"'
            return tag[: match.start()] + written + tag[match.end() :]
    if value is None:
        return tag
    end = len(tag.removesuffix(">").removesuffix("/").rstrip())
    return f'{tag[:end]} {name}="{value}"{tag[end:]}'


def open_and_close(tag: str) -> tuple[str, str]:
    """A start tag that leaves its element open, though it may have closed it, and the end tag that belongs to it."""
    opening = f"{tag.removesuffix('/>').rstrip()}>" if tag.endswith("/>") else tag
    return opening, f"</{name_of(tag)}>"


def sibling(tag: str, name: str) -> str:
    """The start tag of a new element beside this one: the same prefix, and the namespaces that are declared here."""
    prefix, colon, _ = name_of(tag).rpartition(":")
    return f"<{prefix}{colon}{name}{''.join(_DECLARATION.findall(tag))}>"


def _find_codec(data: bytes) -> str:
    for mark, codec in _UTF_16.items():
        if data.startswith(mark):
            return codec
    declared = re.match(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)["']""", data)
    return declared[1].decode("ascii") if declared else "utf-8"
