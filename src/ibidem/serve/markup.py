"""HTML and XML in, the same tags out: text is translated in whole blocks, with the tags inside it protected.

Nothing is parsed and written anew. A block ends at every tag that is not one of a line of text; what is code, or is
marked as not to be translated, stays as it is. A block whose tags the translation could not keep in place is
translated from tag to tag.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, NamedTuple

from ibidem.text import Code, Loss, Pieces, Request, Role, translate_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ibidem.text import Translate

# An unclosed declaration extends to the end, as in HTML: continuing after each `<!` or `<?` would be quadratic.
_MARKUP = re.compile(
    r"""<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^>]*(?:>|\Z)|</?([A-Za-z][\w:.-]*)(?:"[^"]*"|'[^']*'|[^<>"'])*+>""",
    re.DOTALL,
)
_INLINE = frozenset(
    [
        "a",
        "abbr",
        "acronym",
        "b",
        "bdi",
        "bdo",
        "big",
        "cite",
        "data",
        "del",
        "dfn",
        "em",
        "font",
        "i",
        "img",
        "input",
        "ins",
        "label",
        "mark",
        "q",
        "s",
        "small",
        "span",
        "strike",
        "strong",
        "sub",
        "sup",
        "time",
        "tt",
        "u",
        "wbr",
        "g",
        "x",
        "bx",
        "ex",
        "ph",
        "bpt",
        "ept",
        "it",
        "mrk",
        "pc",
        "sc",
        "ec",
    ]
)
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_KEPT = frozenset(["code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea", "var"])
_LONG_NUMBER = re.compile(r"&#([0-9]{8,})")
_NOT_TRANSLATED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)


class Tag(NamedTuple):
    """A piece of markup as it stands; its name in lower case, empty for comments and the like."""

    text: str
    name: str

    @property
    def closes(self) -> bool:
        return self.text.startswith("</")

    @property
    def stands_alone(self) -> bool:
        return not self.name or self.name in _VOID or self.text.endswith("/>")


Part = Tag | str


def translate_markup(documents: Sequence[str], translate: Translate) -> list[str]:
    """Translate the text of each document; `translate` is given single lines."""
    cut = [list(_cut(list(_read(document)))) for document in documents]
    blocks = [part for parts in cut for part in parts if not isinstance(part, str)]
    answers = translate_pieces([Request(block, keep_lines=False) for block in blocks], translate)
    lost = [block for block, answer in zip(blocks, answers, strict=True) if isinstance(answer, Loss)]
    mended = iter(_translate_runs(lost, translate))
    done = iter([next(mended) if isinstance(answer, Loss) else answer for answer in answers])
    return ["".join(part if isinstance(part, str) else _write(next(done)) for part in parts) for parts in cut]


def count_blocks(document: str) -> int:
    """How many blocks of text a document has."""
    return sum(not isinstance(part, str) for part in _cut(list(_read(document))))


def _read(document: str) -> Iterator[Part]:
    """Text and markup in order; an element that is not translated is one piece of markup."""
    place = 0
    while found := _MARKUP.search(document, place):
        if found.start() > place:
            yield document[place : found.start()]
        tag = Tag(found[0], (found[1] or "").lower())
        place = found.end()
        kept = tag.name in _KEPT or _NOT_TRANSLATED.search(tag.text)
        if kept and not tag.closes and not tag.stands_alone:
            place = _end_of_element(document, tag.name, place)
            tag = Tag(document[found.start() : place], "code")
        yield tag
    if place < len(document):
        yield document[place:]


def _end_of_element(document: str, name: str, place: int) -> int:
    """Where the element that began before `place` ends; the end of the document where it is never closed."""
    depth = 1
    for found in re.compile(rf"<(/?){re.escape(name)}\b[^<>]*(/?)>", re.IGNORECASE).finditer(document, place):
        depth += -1 if found[1] else 0 if found[2] else 1
        if depth == 0:
            return found.end()
    return len(document)


def _cut(parts: Sequence[Part]) -> Iterator[str | Pieces]:
    """Markup between blocks, as it stands, and the blocks: text and the tags inside it."""
    block: list[Part] = []
    for part in parts:
        if isinstance(part, Tag) and part.name not in _INLINE and part.name != "code":
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

    `html.unescape` raises ValueError for numbers of thousands of digits; eight digits, without leading zeros, are
    beyond Unicode as well and give U+FFFD.
    """
    return html.unescape(_LONG_NUMBER.sub(lambda found: f"&#{found[1].lstrip('0')[:8] or '0'}", text))


def _protect(block: Sequence[Part]) -> Pieces:
    """Text without entities, and tags as codes; one that opens and one that closes it have the same number."""
    pairs: dict[int, str] = {}
    waiting: dict[str, list[int]] = {}
    for number, part in enumerate(block):
        if isinstance(part, str) or part.name == "code" or part.stands_alone:
            continue
        if not part.closes:
            waiting.setdefault(part.name, []).append(number)
        elif waiting.get(part.name):
            opening = waiting[part.name].pop()
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
    """Translate what stands between two tags by itself: all tags stay where they are."""
    runs = [piece for block in blocks for piece in block if isinstance(piece, str) and any(map(str.isalpha, piece))]
    lines = [" ".join(run.split()) for run in runs]
    found = dict(zip(runs, translate(lines), strict=True)) if runs else {}
    return [tuple(_around(piece, found) if isinstance(piece, str) else piece for piece in block) for block in blocks]


def _around(run: str, found: dict[str, str]) -> str:
    """A translated run with the white space that was around it."""
    if run not in found:
        return run
    start, end = len(run) - len(run.lstrip()), len(run.rstrip())
    return run[:start] + found[run] + run[end:]


def _write(pieces: Pieces) -> str:
    return "".join(html.escape(piece, quote=False) if isinstance(piece, str) else piece.text for piece in pieces)
