"""ODT and other OpenDocument files: the paragraphs and headings of a text, of its tables and of its page styles."""

from __future__ import annotations

import re
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.inline import Code, Role
from ibidem.text.markup import Element, XmlFile
from ibidem.text.office.package import Package, PackageBuilder
from ibidem.text.xml import Kind, escape, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.document import Document, Edit
    from ibidem.text.inline import Pieces
    from ibidem.text.xml import Token

_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_PARTS = ("content.xml", "styles.xml")
_PARAGRAPHS = (f"{_TEXT} p", f"{_TEXT} h")
_PAIRS = (f"{_TEXT} span", f"{_TEXT} a", f"{_TEXT} meta")
_SPACES, _TAB, _BREAK = f"{_TEXT} s", f"{_TEXT} tab", f"{_TEXT} line-break"
_MAX_SPACES = 1_000
_IGNORED = f"{_TEXT} soft-page-break"
# The white space that OpenDocument collapses; a no-break space is text.
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")


def read_odt_document(data: bytes, name: str) -> Document:
    """Read an OpenDocument text as a document whose paragraphs are replaced by their translations.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is no such document, is damaged or encrypted, or exceeds a limit.
    """
    package = Package(data, name, "ODT")
    if "content.xml" not in package.names:
        raise TextError(f"{name}: a zip archive without the parts of an ODT file. Check the file.")
    builder = PackageBuilder(package)
    if "META-INF/manifest.xml" in package.names:
        _refuse_encryption(package)
    for member, content, edits in builder.open(_PARTS):
        xml = XmlFile(content)
        numbers = count(1)
        tokens = read_tokens(content, f"{name}, {member}")
        for token in tokens:
            if token.kind == Kind.START and token.name in _PARAGRAPHS:
                for paragraph in _find_paragraphs(Element.collect(token, tokens, name)):
                    place = f"{member}, paragraph {next(numbers)}"
                    _add_paragraph(paragraph, xml, builder, edits, place)
    return builder.build_package("ODT")


def _refuse_encryption(package: Package) -> None:
    for token in read_tokens(package.read("META-INF/manifest.xml"), package.name):
        if token.name == "encryption-data":
            raise TextError(f"{package.name}: the document is encrypted. Save it without a password.")


def _find_paragraphs(paragraph: Element) -> Iterator[Element]:
    """Yield a paragraph, and those of notes and frames in it."""
    yield paragraph
    for inner in paragraph.descendants(_is_paragraph):
        yield from _find_paragraphs(inner)


def _is_paragraph(token: Token) -> bool:
    return token.name in _PARAGRAPHS


def _add_paragraph(paragraph: Element, xml: XmlFile, builder: PackageBuilder, edits: list[Edit], place: str) -> None:
    """Add the texts of a paragraph; an element with paragraphs of its own, such as a note, divides it."""
    tag = xml.tag(paragraph.opening)
    prefix = tag[1 : tag.index(":") + 1] if ":" in tag.partition(" ")[0] else ""

    def encode(pieces: Pieces, *, is_first: bool) -> bytes:
        written = []
        for piece in pieces:
            written.append(_write(piece, prefix, at_start=is_first))
            is_first = is_first and isinstance(piece, Code) and piece.role != Role.SINGLE
        return xml.encode("".join(written))

    for start, end, pieces, is_first in _read_texts(paragraph, xml):
        write = partial(encode, is_first=is_first)
        builder.replace(xml.data, (start, end), pieces, paragraph.line, write, edits=edits, place=place)


def _read_texts(paragraph: Element, xml: XmlFile) -> Iterator[tuple[int, int, Pieces, bool]]:
    """Yield the positions and the pieces of the texts of a paragraph, and whether the paragraph begins with them."""
    reader = _TextReader(xml)
    tokens, ends = paragraph.tree.tokens, paragraph.tree.ends
    index, last = paragraph.index + 1, ends[paragraph.index]
    while index < last:
        token = tokens[index]
        if token.kind == Kind.TEXT:
            reader.add_text(token)
        elif token.kind == Kind.START and token.name in _PAIRS and token.end < tokens[ends[index]].end:
            if any(_is_paragraph(one) for one in tokens[index : ends[index]]):
                yield from reader.finish()
            else:
                reader.open(token)
        elif token.kind == Kind.END and token.name in _PAIRS:
            if reader.opened:
                reader.close(token)
            else:
                yield from reader.finish()
        elif token.kind == Kind.START:
            closing = tokens[ends[index]]
            if any(_is_paragraph(one) for one in tokens[index : ends[index]]):
                yield from reader.finish()
            else:
                reader.add_element(token, closing)
            index = ends[index]
        index += 1
    yield from reader.finish()


class _TextReader:
    """Collects the pieces of a text."""

    def __init__(self, xml: XmlFile) -> None:
        self.xml = xml
        self.opened: list[str] = []
        self._pieces: list[str | Code] = []
        self._start = self._end = 0
        # Whether white space is ignored here: at the beginning of the paragraph, and after other white space.
        self._after_space = self._is_first = True
        self._pairs = count()

    def add(self, piece: str | Code, first: Token, last: Token | None = None) -> None:
        if not self._pieces:
            self._start = first.start
        self._end = (last or first).end
        self._pieces.append(piece)

    def add_text(self, token: Token) -> None:
        text = _WHITE_SPACE.sub(" ", token.text)
        if self._after_space:
            text = text.removeprefix(" ")
        if text:
            self.add(text, token)
            self._after_space = text.endswith(" ")

    def add_element(self, token: Token, closing: Token) -> None:
        self._after_space = self._after_space and token.name == _IGNORED
        if token.name == _SPACES:
            given = next((value for name, value in token.attributes.items() if name.endswith(":c")), "1")
            number = int(given) if given.isdecimal() and len(given) < 5 else 1
            self.add(" " * min(number, _MAX_SPACES), token, closing)
        elif token.name in (_TAB, _BREAK):
            self.add("\t" if token.name == _TAB else "\n", token, closing)
        elif token.name == _IGNORED:
            self._end = max(self._end, closing.end) if self._pieces else self._end
        else:
            self.add(Code(self.xml.raw(token.start, closing.end)), token, closing)

    def open(self, token: Token) -> None:
        self.opened.append(f"element {next(self._pairs)}")
        self.add(Code(self.xml.tag(token), Role.OPEN, self.opened[-1]), token)

    def close(self, token: Token) -> None:
        self.add(Code(self.xml.tag(token), Role.CLOSE, self.opened.pop()), token)

    def finish(self) -> Iterator[tuple[int, int, Pieces, bool]]:
        """Yield the text that was collected, unless a tag in it is not closed."""
        if self._pieces and not self.opened:
            yield self._start, self._end, tuple(self._pieces), self._is_first
        self._pieces, self.opened = [], []
        self._after_space = self._is_first = False


def _write(piece: str | Code, prefix: str, *, at_start: bool) -> str:
    """Write a piece; white space that OpenDocument would collapse becomes elements."""
    if isinstance(piece, Code):
        return piece.text
    written = []
    space = at_start
    for character in piece:
        if character == "\t":
            written.append(f"<{prefix}tab/>")
        elif character == "\n":
            written.append(f"<{prefix}line-break/>")
        elif character == " " and space:
            written.append(f"<{prefix}s/>")
        else:
            written.append(escape(character))
        space = character == " "
    return "".join(written)
