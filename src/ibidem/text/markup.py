"""Parts of an XML document that is edited in place: its bytes, its elements, and the inline codes of their text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.inline import Code, Role
from ibidem.text.stream import MAX_UNIT_BYTES, MAX_UNIT_TOKENS
from ibidem.text.xml import Kind, escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ibidem.text.inline import Pieces
    from ibidem.text.xml import Token

_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_ENCODING = re.compile(rb"""(?:\xef\xbb\xbf)?<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)["']""")
# Possessive, and tried only where white space begins: otherwise quadratic in a tag with much of it.
_ATTRIBUTE = re.compile(r"""(?<!\s)(\s++)([^\s=/>]++)(\s*+=\s*+)("[^"]*"|'[^']*')""")
_NAME = re.compile(r"<([^\s/>]+)")
_NAMESPACE = re.compile(r"""\sxmlns(?::[^\s=]+)?\s*=\s*(?:"[^"]*"|'[^']*')""")


class XmlFile:
    """The bytes of an XML file.

    Args:
        data: The bytes of the file, or its first block; the encoding is read from them.

    Attributes:
        data: The bytes.
        codec: The encoding, as a codec of Python.
        newline: The line end that the file uses.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.codec = _find_codec(data)
        self.newline = "\r\n" if "\r\n".encode(self.codec) in data else "\n"

    def bytes_of(self, start: int, end: int) -> bytes:
        """Return the bytes between two positions.

        Args:
            start: The position of the first byte.
            end: The position after the last byte.
        """
        return self.data[start:end]

    def raw(self, start: int, end: int) -> str:
        """Return the markup between two positions.

        Args:
            start: The position of the first byte.
            end: The position after the last byte.

        Returns:
            The markup, decoded but with its references.
        """
        return self.bytes_of(start, end).decode(self.codec)

    def tag(self, token: Token) -> str:
        """Return the markup of a tag.

        Args:
            token: A token of this file.
        """
        return self.raw(token.start, token.end)

    def encode(self, markup: str) -> bytes:
        """Encode markup; a character that the encoding lacks becomes a reference, such as `&#8364;`.

        Args:
            markup: Text in which the characters of markup are escaped.
        """
        return markup.encode(self.codec, "xmlcharrefreplace")

    def encode_pieces(self, pieces: Pieces) -> bytes:
        """Encode a text with its codes.

        Args:
            pieces: The text, which is escaped, and its codes, which are written as they are.

        Raises:
            ValueError: If XML cannot contain one of its characters.
        """
        return self.encode(
            "".join(escape(piece, self.newline) if isinstance(piece, str) else piece.text for piece in pieces)
        )

    def indent(self, start: int, end: int) -> str:
        """Return the line break and the indentation between two positions.

        Args:
            start: The position of the first byte.
            end: The position after the last byte.

        Returns:
            The line break of the file and the white space after the last one, "" unless there is only white space with
            a line break.
        """
        gap = self.raw(start, end)
        if gap.strip() or "\n" not in gap:
            return ""
        return self.newline + gap[gap.rindex("\n") + 1 :]


class XmlWindow(XmlFile):
    """An XML file that is read block by block, of which only the bytes from some position on are kept.

    Args:
        head: The first block, which determines the encoding.
    """

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self._kept = bytearray()
        self._first = 0
        self._needed = 0

    def pass_on(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the blocks, and keep them as long as they are needed.

        Args:
            blocks: The blocks of the file, from its start.
        """
        for block in blocks:
            del self._kept[: self._needed - self._first]
            self._first = self._needed
            self._kept += block
            yield block

    def forget(self, end: int) -> None:
        """Allow the bytes before a position to be discarded.

        Args:
            end: The position of the first byte that is still needed.
        """
        self._needed = end

    def bytes_of(self, start: int, end: int) -> bytes:
        """Return the bytes between two positions, none of which was discarded.

        Args:
            start: The position of the first byte.
            end: The position after the last byte.
        """
        return bytes(self._kept[start - self._first : end - self._first])


def _find_codec(data: bytes) -> str:
    for mark, codec in _UTF_16.items():
        if data.startswith(mark):
            return codec
    declared = _ENCODING.match(data)
    codec = declared[1].decode("ascii") if declared else "utf-8"
    try:
        "".encode(codec)
    except (LookupError, ValueError):
        return "utf-8"  # the parser refuses the file, with the line
    return codec


def name_of(tag: str) -> str:
    """Return the name of an element, with its prefix, from its start tag.

    Args:
        tag: The markup of the start tag.

    Raises:
        ValueError: If it is not a start tag.
    """
    match = _NAME.match(tag)
    if match is None:
        raise ValueError(f"{tag!r} is not a start tag")
    return match[1]


def set_attribute(tag: str, name: str, value: str | None) -> str:
    """Set an attribute of a start tag, in its position or as the last one, or remove it.

    Args:
        tag: The markup of the start tag.
        name: The name of the attribute, with its prefix.
        value: The new value, escaped; None removes the attribute.

    Examples:
        >>> set_attribute('<target state="new">', "state", "final")
        '<target state="final">'
    """
    for match in _ATTRIBUTE.finditer(tag):
        if match[2] == name:
            written = "" if value is None else f'{match[1]}{name}{match[3]}"{value}"'
            return tag[: match.start()] + written + tag[match.end() :]
    if value is None:
        return tag
    end = len(tag.removesuffix(">").removesuffix("/").rstrip())
    return f'{tag[:end]} {name}="{value}"{tag[end:]}'


def open_and_close(tag: str) -> tuple[str, str]:
    """Return a start tag that does not close its element, and the end tag.

    Args:
        tag: The markup of a start tag, which may close its element itself.

    Examples:
        >>> open_and_close("<seg/>")
        ('<seg>', '</seg>')
    """
    opening = f"{tag.removesuffix('/>').rstrip()}>" if tag.endswith("/>") else tag
    return opening, f"</{name_of(tag)}>"


def sibling_tag(tag: str, name: str) -> str:
    """Return the start tag of a new element beside another, with its prefix and its namespace declarations.

    Args:
        tag: The markup of the start tag of the other element.
        name: The name of the new element, without a prefix.
    """
    prefix, colon, _ = name_of(tag).rpartition(":")
    return f"<{prefix}{colon}{name}{''.join(_NAMESPACE.findall(tag))}>"


@dataclass(slots=True)
class _Tree:
    tokens: list[Token]
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a small part of an XML file, such as one unit, with the positions of its bytes.

    Attributes:
        tree: The tokens of the part.
        index: The index of the start tag among the tokens.
    """

    tree: _Tree
    index: int

    @classmethod
    def collect(cls, first: Token, tokens: Iterator[Token], name: str) -> Element:
        """Read the element that begins with a start tag.

        Args:
            first: The start tag.
            tokens: The tokens after it; those of the element are consumed.
            name: The name of the file, for messages.

        Raises:
            TextError: If the element has more than MAX_UNIT_TOKENS tokens or MAX_UNIT_BYTES bytes.
        """
        tree = _Tree([first])
        open_tags = [0]
        while open_tags:
            token = next(tokens)
            if token.kind == Kind.START:
                open_tags.append(len(tree.tokens))
            elif token.kind == Kind.END:
                tree.ends[open_tags.pop()] = len(tree.tokens)
            tree.tokens.append(token)
            if len(tree.tokens) > MAX_UNIT_TOKENS or token.end - first.start > MAX_UNIT_BYTES:
                raise TextError(
                    f"{name}, line {first.line}: <{first.name}> has more than {MAX_UNIT_TOKENS:,} tags and pieces of "
                    f"text, or more than {MAX_UNIT_BYTES:,} bytes. Remove or split it."
                )
        return cls(tree, 0)

    @property
    def opening(self) -> Token:
        """The start tag."""
        return self.tree.tokens[self.index]

    @property
    def closing(self) -> Token:
        """The end tag."""
        return self.tree.tokens[self.tree.ends[self.index]]

    @property
    def attributes(self) -> Mapping[str, str]:
        """The attributes."""
        return self.opening.attributes

    @property
    def line(self) -> int:
        """The line of the start tag."""
        return self.opening.line

    def inside(self) -> list[Token]:
        """Return the tokens between the tags."""
        return self.tree.tokens[self.index + 1 : self.tree.ends[self.index]]

    def text(self) -> str:
        """Return all text in the element."""
        return "".join(token.text for token in self.inside())

    def children(self, name: str) -> Iterator[Element]:
        """Yield the elements of a name directly in this one.

        Args:
            name: The name as in `Token`.
        """
        index = self.index + 1
        while index < self.tree.ends[self.index]:
            token = self.tree.tokens[index]
            if token.kind == Kind.START:
                if token.name == name:
                    yield Element(self.tree, index)
                index = self.tree.ends[index]
            index += 1

    def child(self, name: str) -> Element | None:
        """Return the first element of a name directly in this one, None if there is none.

        Args:
            name: The name as in `Token`.
        """
        return next(self.children(name), None)

    def descendants(self, matches: Callable[[Token], bool]) -> Iterator[Element]:
        """Yield the outermost elements, at any depth, whose start tags match.

        Args:
            matches: Returns whether a start tag is wanted; elements inside a wanted one are not examined.
        """
        index = self.index + 1
        while index < self.tree.ends[self.index]:
            token = self.tree.tokens[index]
            if token.kind == Kind.START and matches(token):
                yield Element(self.tree, index)
                index = self.tree.ends[index]
            index += 1

    def gap(self) -> tuple[int, int]:
        """Return the positions of the text directly before the element."""
        index = self.index
        while index and self.tree.tokens[index - 1].kind == Kind.TEXT:
            index -= 1
        return self.tree.tokens[index].start, self.opening.start


@dataclass(frozen=True, slots=True)
class InlineSyntax:
    """The inline elements of a format.

    Attributes:
        is_code: Returns whether an element, by name and attributes, is a code with all of its content. Other elements
            are pairs of tags around text.
        role: Returns the role of such a code, and the name it shares with its partner, None if it has no partner.
    """

    is_code: Callable[[str, Mapping[str, str]], bool]
    role: Callable[[str, Mapping[str, str]], tuple[Role, str | None]]


@dataclass(frozen=True, slots=True)
class Content:
    """The text and the codes of an element.

    Attributes:
        pieces: The text and its codes.
        untranslatable: Why the text cannot be translated, "" if it can.
    """

    pieces: Pieces = ()
    untranslatable: str = ""


def read_content(element: Element | None, xml: XmlFile, syntax: InlineSyntax) -> Content:
    """Read the text and the codes of an element, without comments.

    Args:
        element: The element, None for one that the file lacks.
        xml: The file of the element.
        syntax: The inline elements of the format.

    Returns:
        The content, which is empty if there is no element.
    """
    builder = _ContentBuilder(xml, syntax)
    for token in element.inside() if element else ():
        if builder.code is not None:
            builder.continue_code(token, builder.code)
        elif token.kind == Kind.TEXT:
            builder.run.append(token.text)
        elif token.kind == Kind.INSTRUCTION:
            builder.add(Code(xml.tag(token)))
        elif token.kind == Kind.START:
            builder.open(token)
        elif token.kind == Kind.END:
            builder.close(token)
    builder.flush()
    return Content(tuple(builder.pieces), builder.untranslatable)


@dataclass(slots=True)
class _ContentBuilder:
    xml: XmlFile
    syntax: InlineSyntax
    pieces: list[str | Code] = field(default_factory=list)
    run: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    code: Token | None = None
    depth: int = 0
    count: int = 0
    untranslatable: str = ""

    def flush(self) -> None:
        if text := "".join(self.run):
            self.pieces.append(text)
        self.run = []

    def add(self, code: Code) -> None:
        self.flush()
        self.pieces.append(code)

    def open(self, token: Token) -> None:
        if self.syntax.is_code(token.name, token.attributes):
            self.code, self.depth = token, 1
            return
        self.count += 1
        self.opened.append(f"element {self.count}")
        self.add(Code(self.xml.tag(token), Role.OPEN, self.opened[-1], _is_fixed(token)))

    def close(self, token: Token) -> None:
        pair = self.opened.pop()
        if token.start < token.end:
            self.add(Code(self.xml.tag(token), Role.CLOSE, pair))
        elif isinstance(last := self.pieces[-1], Code):
            # The element closed itself.
            self.pieces[-1] = Code(last.text, fixed=last.fixed)

    def continue_code(self, token: Token, first: Token) -> None:
        if token.kind == Kind.START:
            self.depth += 1
            if token.name == "sub":
                self.untranslatable = "text inside a code (<sub>) is left to a person"
        elif token.kind == Kind.END:
            self.depth -= 1
            if self.depth == 0:
                role, pair = self.syntax.role(first.name, first.attributes)
                self.count += 1
                raw = self.xml.raw(first.start, token.end)
                self.add(Code(raw, role, pair or f"alone {self.count}", _is_fixed(first)))
                self.code = None


def _is_fixed(token: Token) -> bool:
    return token.attributes.get("canReorder", "yes") != "yes"
