"""XML as a stream of tokens that know which bytes of the file they are, so that nothing need be written anew.

Namespaces are resolved; names of the root element's own namespace are given without it. No entity is expanded but
the five of XML, and no other file opened.
"""

from __future__ import annotations

import re
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ibidem.errors import TextError
from ibidem.text.limits import BLOCK, DEEPEST, LONGEST_NAMESPACE, MOST_ATTRIBUTES
from ibidem.text.xml import XmlReader, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ibidem.text.inline import Pieces

LANGUAGE = "xml:lang"
SPACE = "xml:space"

_PREFIXES = {"": "", "xml": "http://www.w3.org/XML/1998/namespace"}
# Possessive, and tried only where white space begins: otherwise quadratic in a tag with much of it.
_ATTRIBUTE = re.compile(r"""(?<!\s)(\s++)([^\s=/>]++)(\s*+=\s*+)("[^"]*"|'[^']*')""")
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
    return parse_tokens((data[first : first + BLOCK] for first in range(0, len(data), BLOCK)), name)


def parse_tokens(blocks: Iterable[bytes], name: str) -> Iterator[Token]:
    """Yield the tokens of an XML file that is read block by block; see `read_tokens`."""
    tokens = _Tokens(name)
    for _ in tokens.feed(blocks):
        yield from tokens.take()
    yield from tokens.take(tokens.fed)


class _Tokens(XmlReader):
    """Collects tokens from expat's events; each one ends where the next begins.

    Namespaces are resolved here. Expat would put the whole URI into each name of an element and an attribute before
    any handler is called, so that one tag with a long URI and many attributes could fill the memory.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._namespace: str | None = None
        self._prefixes = _PREFIXES
        self._open: list[tuple[str, dict[str, str]]] = []
        self._waiting: deque[Token] = deque()
        self.parser.buffer_text = False
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = lambda text: self._add(Kind.TEXT, text=text)
        self.parser.ProcessingInstructionHandler = lambda *_: self._add(Kind.INSTRUCTION)
        self.parser.DefaultHandler = lambda _: self._add(Kind.OTHER)

    def take(self, end: int | None = None) -> Iterator[Token]:
        """Yield what is complete; with the end of the file, everything."""
        while len(self._waiting) > 1:
            token = self._waiting.popleft()
            yield token._replace(end=self._waiting[0].start)
        if end is not None and self._waiting:
            yield self._waiting.popleft()._replace(end=end)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEEPEST or len(attributes) > MOST_ATTRIBUTES:
            raise self.refuse_element()
        outer = self._prefixes
        for attribute in attributes:
            if attribute.startswith("xmlns"):
                self._declare_prefix(attribute, attributes[attribute], outer)
        own = self._resolve(name)
        for attribute in attributes:
            if ":" in attribute:
                self._find(attribute.partition(":")[0])
        self._open.append((own, outer))
        self._add(Kind.START, name=own, attributes=attributes)

    def _end(self, _: str) -> None:
        self.depth -= 1
        own, self._prefixes = self._open.pop()
        self._add(Kind.END, name=own)

    def _declare_prefix(self, attribute: str, uri: str, outer: dict[str, str]) -> None:
        keyword, _, prefix = attribute.partition(":")
        if keyword != "xmlns":
            return
        if len(uri) > LONGEST_NAMESPACE:
            raise self.refusal(f"a namespace longer than {LONGEST_NAMESPACE:,} characters")
        if self._prefixes is outer:
            self._prefixes = dict(outer)
        self._prefixes[prefix] = uri
        if len(self._prefixes) > MOST_ATTRIBUTES:
            raise self.refusal(f"more than {MOST_ATTRIBUTES} namespaces")

    def _resolve(self, name: str) -> str:
        """Return a name without prefix where it is of the root's namespace, else after the URI of its own."""
        prefix, _, local = name.rpartition(":")
        namespace = self._find(prefix)
        if self._namespace is None:
            self._namespace = namespace
        return local if namespace == self._namespace else f"{namespace} {local}"

    def _find(self, prefix: str) -> str:
        if prefix not in self._prefixes and prefix != "xmlns":
            raise TextError(
                f"{self.name}, line {self.parser.CurrentLineNumber}: not well-formed XML (unbound prefix). "
                "Repair the file or export it again; `xmllint --noout FILE` shows the place."
            )
        return self._prefixes.get(prefix, "")

    def _add(self, kind: Kind, *, name: str = "", attributes: Mapping[str, str] | None = None, text: str = "") -> None:
        start = self.parser.CurrentByteIndex
        self._waiting.append(Token(kind, start, start, self.parser.CurrentLineNumber, name, attributes or {}, text))


class Xml:
    """The bytes of an XML file and how they are written: encoding, found as XML prescribes, and line ends."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.codec = _find_codec(data)
        self.newline = "\r\n" if "\r\n".encode(self.codec) in data else "\n"

    def bytes_of(self, start: int, end: int) -> bytes:
        """The bytes between two places."""
        return self.data[start:end]

    def raw(self, start: int, end: int) -> str:
        """The markup between two places."""
        return self.bytes_of(start, end).decode(self.codec)

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


class XmlWindow(Xml):
    """An XML file that is read block by block, of which only the bytes from some place on are kept.

    `head` is the first block, which tells the encoding.
    """

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self._kept = bytearray()
        self._first = 0
        self._needed = 0

    def pass_on(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield these blocks, and keep them as long as they are needed."""
        for block in blocks:
            del self._kept[: self._needed - self._first]
            self._first = self._needed
            self._kept += block
            yield block

    def forget(self, end: int) -> None:
        """Keep nothing before this place."""
        self._needed = end

    def bytes_of(self, start: int, end: int) -> bytes:
        """The bytes between two places, none of which was forgotten."""
        return bytes(self._kept[start - self._first : end - self._first])


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
