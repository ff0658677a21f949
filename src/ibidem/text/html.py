"""HTML and XML that is cut into blocks of text, without being parsed and serialised again.

A block ends at every tag that is not an inline tag. Code and elements that are marked as untranslatable are copied. The
inline tags of a block are codes.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, NamedTuple

from ibidem.text.inline import Code, Role
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

# An unclosed declaration extends to the end, as in HTML: continuing after each `<!` or `<?` would be quadratic.
_MARKUP = re.compile(
    r"""<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^>]*(?:>|\Z)|</?([A-Za-z][\w:.-]*)(?:"[^"]*"|'[^']*'|[^<>"'])*+>""",
    re.DOTALL,
)
# HTML, and the inline elements of XLIFF and TMX.
_INLINE_NAMES = """
a abbr acronym b bdi bdo big cite data del dfn em font i img input ins label mark q s small span strike strong sub sup
time tt u wbr g x bx ex ph bpt ept it mrk pc sc ec
"""
_INLINE_TAGS = frozenset(_INLINE_NAMES.split())
_VOID_TAGS = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_UNTRANSLATED_TAGS = frozenset(
    ["code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea", "var"]
)
_LONG_NUMBER = re.compile(r"&#([0-9]{8,})")
_NOT_TRANSLATED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)
_CHARSET = re.compile(
    rb"""<meta\s[^>]*?charset\s*=\s*["']?([\w.:-]+)|<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""", re.IGNORECASE
)
_CHARSET_BYTES = 2_048
_VALUE = re.compile(r"""\s(alt|title|placeholder|aria-label|content|value)\s*=\s*(["'])([^"'<>]*)\2""", re.IGNORECASE)
_BUTTON = re.compile(r"""\stype\s*=\s*["']?(?:submit|button|reset)["']?[\s/>]""", re.IGNORECASE)
_DESCRIPTION = re.compile(
    r"""\s(?:name|property)\s*=\s*["']?(?:og:|twitter:)?(?:description|title)["']?[\s/>]""", re.IGNORECASE
)


class Tag(NamedTuple):
    """A piece of markup.

    Attributes:
        text: The markup, from `<` to `>`.
        name: The name of the element in lower case; empty for a comment or a declaration.
    """

    text: str
    name: str

    @property
    def closes(self) -> bool:
        """Whether this is an end tag."""
        return self.text.startswith("</")

    @property
    def stands_alone(self) -> bool:
        """Whether no end tag belongs to this piece."""
        return not self.name or self.name in _VOID_TAGS or self.text.endswith("/>")


Part = Tag | str


class Block(NamedTuple):
    """A text between tags that are not inline tags.

    Attributes:
        start: The number of its first character.
        end: The number of the character after it.
        pieces: The text without entities, and its inline tags.
    """

    start: int
    end: int
    pieces: Pieces


def find_blocks(document: str, ignored: frozenset[str] = frozenset()) -> Iterator[Block]:
    """Yield the blocks of a document that have letters, in order.

    Args:
        document: HTML or XML, well-formed or not.
        ignored: Names of further elements, in lower case, whose content is copied like code.

    Examples:
        >>> [block[:2] for block in find_blocks("<p>one <b>two</b></p><p>three</p>")]
        [(3, 17), (24, 29)]
    """
    parts: list[Part] = []
    start = place = 0
    for part in _read(document, ignored):
        if isinstance(part, Tag) and part.name not in _INLINE_TAGS and part.name != "code":
            yield from _close(parts, start, place)
            parts = []
            start = place + len(part.text)
        else:
            parts.append(part)
        place += len(part if isinstance(part, str) else part.text)
    yield from _close(parts, start, place)


def write_markup(pieces: Pieces) -> str:
    """Write a text as HTML: escape its characters of markup, and write its codes as they are.

    Args:
        pieces: The text and its inline tags.
    """
    return "".join(html.escape(piece, quote=False) if isinstance(piece, str) else piece.text for piece in pieces)


def read_html_document(data: bytes, name: str) -> Document:
    """Read an HTML file as a document whose texts are replaced by their translations.

    The values of `alt`, `title`, `placeholder` and `aria-label`, the labels of buttons (`value`) and the description of
    the page are translated too, unless their tag stands inside a sentence.

    Args:
        data: The file, in the encoding that it declares, by default UTF-8.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not in its encoding.
    """
    declared = _CHARSET.search(data[:_CHARSET_BYTES])
    codec = (declared[1] or declared[2]).decode("ascii").lower() if declared else "utf-8"
    file = TextFile(data, name, codec)
    builder = ReplacementBuilder(name=name)
    place = 0

    def encode(pieces: Pieces) -> bytes:
        return write_markup(pieces).encode(file.codec, "xmlcharrefreplace")

    def encode_value(pieces: Pieces) -> bytes:
        return html.escape("".join(map(str, pieces))).encode(file.codec, "xmlcharrefreplace")

    def add_values(start: int, end: int) -> None:
        for first, last, value in _find_values(file.text, start, end):
            span = file.span(first, last)
            builder.replace(data, span, (value,), file.line_of(first), encode_value, keep_lines=False)

    for block in find_blocks(file.text):
        add_values(place, block.start)
        span = file.span(block.start, block.end)
        builder.replace(data, span, block.pieces, file.line_of(block.start), encode, keep_lines=False)
        place = block.end
    add_values(place, len(file.text))
    return builder.build_replaced(name, "HTML", data)


def _find_values(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield the places and the values of the attributes with text of all tags between two places."""
    for part, place in _read_places(text[start:end], start):
        if not isinstance(part, Tag) or part.closes or not part.name or part.name == "code":
            continue
        if part.name == "meta" and not _DESCRIPTION.search(part.text):
            continue
        is_button = part.name == "input" and _BUTTON.search(part.text) is not None
        for found in _VALUE.finditer(part.text):
            name = found[1].lower()
            if (name == "content") == (part.name == "meta") and (name != "value" or is_button):
                yield place + found.start(3), place + found.end(3), _unescape(found[3])


def _read_places(document: str, start: int) -> Iterator[tuple[Part, int]]:
    for part in _read(document):
        yield part, start
        start += len(part if isinstance(part, str) else part.text)


def _read(document: str, ignored: frozenset[str] = frozenset()) -> Iterator[Part]:
    """Yield text and markup in order; an untranslated element is one piece of markup."""
    place = 0
    while found := _MARKUP.search(document, place):
        if found.start() > place:
            yield document[place : found.start()]
        tag = Tag(found[0], (found[1] or "").lower())
        place = found.end()
        untranslated = tag.name in _UNTRANSLATED_TAGS or tag.name in ignored or _NOT_TRANSLATED.search(tag.text)
        if untranslated and not tag.closes and not tag.stands_alone:
            place = _end_of_element(document, tag.name, place)
            tag = Tag(document[found.start() : place], "code")
        yield tag
    if place < len(document):
        yield document[place:]


def _end_of_element(document: str, name: str, place: int) -> int:
    """Return the end of the element that started before `place`, or of the document if it is not closed."""
    depth = 1
    for found in re.compile(rf"<(/?){re.escape(name)}\b[^<>]*?(/?)>", re.IGNORECASE).finditer(document, place):
        depth += -1 if found[1] else 0 if found[2] else 1
        if depth == 0:
            return found.end()
    return len(document)


def _close(block: Sequence[Part], start: int, end: int) -> Iterator[Block]:
    if any(isinstance(part, str) and any(map(str.isalpha, _unescape(part))) for part in block):
        yield Block(start, end, _protect(block))


def _unescape(text: str) -> str:
    """Replace entities by characters.

    `html.unescape` raises ValueError for numbers of thousands of digits. Eight digits, without leading zeros, are
    beyond Unicode as well and become U+FFFD.
    """
    return html.unescape(_LONG_NUMBER.sub(lambda found: f"&#{found[1].lstrip('0')[:8] or '0'}", text))


def _protect(block: Sequence[Part]) -> Pieces:
    """Convert a block to text without entities and tags as codes; an opening tag and its closing tag share a number."""
    pairs: dict[int, str] = {}
    unclosed: dict[str, list[int]] = {}
    for number, part in enumerate(block):
        if isinstance(part, str) or part.name == "code" or part.stands_alone:
            continue
        if not part.closes:
            unclosed.setdefault(part.name, []).append(number)
        elif unclosed.get(part.name):
            opening = unclosed[part.name].pop()
            pairs[opening] = pairs[number] = str(opening)
    pieces: list[str | Code] = []
    for number, part in enumerate(block):
        if isinstance(part, str):
            pieces.append(_unescape(part))
        elif number in pairs:
            pieces.append(Code(part.text, Role.CLOSE if part.closes else Role.OPEN, pairs[number]))
        else:
            pieces.append(Code(part.text))
    return tuple(pieces)
