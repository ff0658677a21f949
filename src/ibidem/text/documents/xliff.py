"""XLIFF of any version: which one it is, and the walk to its units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.documents import xliff1, xliff2
from ibidem.text.documents.document import Document, Draft
from ibidem.text.documents.inheritance import Inherited
from ibidem.text.documents.markup import Kind, Xml, read_tokens
from ibidem.text.documents.tree import Node, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.documents.markup import Token, XmlWindow


def read_xliff(data: bytes, name: str, target_language: str | None) -> Document:
    """Read an XLIFF file; `target_language` is written where targets need a language that the file does not name."""
    tokens = read_tokens(data, name)
    root, version = read_root(tokens, name)
    xml, draft = Xml(data), Draft()
    if version.startswith("1."):
        for file, unit, inherited in read_units(tokens, root, xliff1.UNIT, name):
            draft.claims += [claim for claim in xliff1.claims(file) if claim not in draft.claims[-2:]]
            stated = file.attributes.get("target-language")
            xliff1.read_unit(unit, inherited, draft, xml, None if stated else target_language)
    else:
        draft.claims += xliff2.claims(root)
        for _, unit, inherited in read_units(tokens, root, xliff2.UNIT, name):
            xliff2.read_unit(unit, inherited, draft, xml)
        if target_language is not None and not root.attributes.get("trgLang"):
            draft.edits.append(xliff2.language_edit(root, xml, target_language, len(draft.segments)))
    return Document(
        name=name,
        format=f"XLIFF {version}",
        data=data,
        segments=draft.segments,
        edits=draft.edits,
        encode=lambda _, pieces: xml.write(pieces),
        claims=draft.claims,
    )


def read_root(tokens: Iterator[Token], name: str) -> tuple[Token, str]:
    """Return the start tag of the root element and the version; raises TextError where the file is no XLIFF."""
    root = next(token for token in tokens if token.kind == Kind.START)
    version = root.attributes.get("version", "")
    if root.name != "xliff" or version[:2] not in ("1.", "2."):
        found = f"XLIFF {version[:40]!r}" if root.name == "xliff" else f"<{root.name[:40]}>"
        raise TextError(
            f'{name}, line {root.line}: {found} where <xliff version="1.2"> or "2.x" must be. '
            "Export the file as one of these, or name its format with --format."
        )
    return root, version


def read_units(
    tokens: Iterator[Token], root: Token, unit: str, name: str, window: XmlWindow | None = None
) -> Iterator[tuple[Token, Node, Inherited]]:
    """Yield each unit with the start tag of its `<file>` and what the elements around it say.

    `unit` is the name of a unit's element, `name` that of the file. A window forgets what is before the unit at hand.
    """
    file = root
    stack = [Inherited().narrowed(root.attributes)]
    for token in tokens:
        if window is not None:
            window.forget(token.start)
        if token.kind == Kind.END:
            stack.pop()
        elif token.kind == Kind.START:
            inherited = stack[-1].narrowed(token.attributes)
            if token.name == unit:
                yield file, Tree.collect(token, tokens, name), inherited
                continue
            stack.append(inherited)
            if token.name == "file":
                file = token
