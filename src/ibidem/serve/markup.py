"""Translation of HTML and XML documents that keeps their tags.

A document is not parsed and serialised again. It is cut into blocks of text at every tag that is not an inline tag.
Code and elements marked as untranslatable are copied. A block is translated as a whole with its inline tags protected;
if the translation loses a tag, the runs between the tags are translated separately.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, NamedTuple

from ibidem.text import Code, Pieces, Request, Role, Untranslated, translate_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text import Translate

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


def translate_markup(documents: Sequence[str], translate: Translate) -> list[str]:
    """Translate the text of documents.

    Args:
        documents: HTML or XML, well-formed or not.
        translate: Translates a list of single lines, in the same order.

    Returns:
        The documents with the same tags.

    Examples:
        >>> translate_markup(["<p>one <b>two</b></p>"], lambda lines: [line.upper() for line in lines])
        ['<p>ONE <b>TWO</b></p>']
    """
    cut = [list(_cut(list(_read(document)))) for document in documents]
    blocks = [part for parts in cut for part in parts if not isinstance(part, str)]
    answers = translate_pieces([Request(block, keep_lines=False) for block in blocks], translate)
    lost = [block for block, answer in zip(blocks, answers, strict=True) if isinstance(answer, Untranslated)]
    repaired = iter(_translate_runs(lost, translate))
    done = iter([next(repaired) if isinstance(answer, Untranslated) else answer for answer in answers])
    return ["".join(part if isinstance(part, str) else _write(next(done)) for part in parts) for parts in cut]


def count_blocks(document: str) -> int:
    """Count the blocks of text of a document.

    Args:
        document: HTML or XML.

    Examples:
        >>> count_blocks("<p>one <b>two</b></p><p>three</p>")
        2
    """
    return sum(not isinstance(part, str) for part in _cut(list(_read(document))))


def _read(document: str) -> Iterator[Part]:
    """Yield text and markup in order; an untranslated element is one piece of markup."""
    place = 0
    while found := _MARKUP.search(document, place):
        if found.start() > place:
            yield document[place : found.start()]
        tag = Tag(found[0], (found[1] or "").lower())
        place = found.end()
        untranslated = tag.name in _UNTRANSLATED_TAGS or _NOT_TRANSLATED.search(tag.text)
        if untranslated and not tag.closes and not tag.stands_alone:
            place = _end_of_element(document, tag.name, place)
            tag = Tag(document[found.start() : place], "code")
        yield tag
    if place < len(document):
        yield document[place:]


def _end_of_element(document: str, name: str, place: int) -> int:
    """Return the end of the element that started before `place`, or of the document if it is not closed."""
    depth = 1
    for found in re.compile(rf"<(/?){re.escape(name)}\b[^<>]*(/?)>", re.IGNORECASE).finditer(document, place):
        depth += -1 if found[1] else 0 if found[2] else 1
        if depth == 0:
            return found.end()
    return len(document)


def _cut(parts: Sequence[Part]) -> Iterator[str | Pieces]:
    """Yield the markup between blocks as strings, and the blocks as pieces of text and inline tags."""
    block: list[Part] = []
    for part in parts:
        if isinstance(part, Tag) and part.name not in _INLINE_TAGS and part.name != "code":
            yield from _close(block)
            yield part.text
            block = []
        else:
            block.append(part)
    yield from _close(block)


def _close(block: Sequence[Part]) -> Iterator[str | Pieces]:
    if any(isinstance(part, str) and any(map(str.isalpha, _unescape(part))) for part in block):
        yield _protect(block)
    elif block:
        yield "".join(part if isinstance(part, str) else part.text for part in block)


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


def _translate_runs(blocks: Sequence[Pieces], translate: Translate) -> list[Pieces]:
    """Translate each run of text between two tags separately, which keeps all tags in place."""
    runs = [piece for block in blocks for piece in block if isinstance(piece, str) and any(map(str.isalpha, piece))]
    lines = [" ".join(run.split()) for run in runs]
    found = dict(zip(runs, translate(lines), strict=True)) if runs else {}
    return [
        tuple(_keep_spaces(piece, found) if isinstance(piece, str) else piece for piece in block) for block in blocks
    ]


def _keep_spaces(run: str, found: dict[str, str]) -> str:
    """Return a translated run with its original surrounding white space."""
    if run not in found:
        return run
    start, end = len(run) - len(run.lstrip()), len(run.rstrip())
    return run[:start] + found[run] + run[end:]


def _write(pieces: Pieces) -> str:
    return "".join(html.escape(piece, quote=False) if isinstance(piece, str) else piece.text for piece in pieces)
