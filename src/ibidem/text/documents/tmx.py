"""TMX 1.4: a `<tuv>` in the target language in each `<tu>` that has one in the source language.

A `<tuv>` that is missing is put after the source's, with `creationtool="ibidem"`, so that a memory can tell it from a
person's; an empty `<seg>` is filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.documents.content import Content, Dialect, read_content
from ibidem.text.documents.document import Document, Draft, Edit
from ibidem.text.documents.markup import LANGUAGE, Kind, Xml, name_of, open_and_close, read_tokens, sibling
from ibidem.text.documents.segment import State
from ibidem.text.documents.tree import Node, Tree
from ibidem.text.inline import Role, plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.text.language import Languages

_WHOLE = frozenset({"bpt", "ept", "it", "ph", "ut"})


def _role(name: str, attributes: Mapping[str, str]) -> tuple[Role, str | None]:
    if name in ("bpt", "ept"):
        return (Role.OPEN if name == "bpt" else Role.CLOSE), attributes.get("i")
    if name == "it":
        return (Role.CLOSE if attributes.get("pos") == "end" else Role.OPEN), None
    return Role.SINGLE, None


DIALECT = Dialect(lambda name, _: name in _WHOLE, _role)


def read_tmx_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read a TMX file as a document whose targets are in the target language.

    Raises TextError if it has units, but none in the source language.
    """
    tokens = read_tokens(data, name)
    root = next(token for token in tokens if token.kind == Kind.START)
    if root.name != "tmx":
        raise TextError(f"{name}, line {root.line}: <{root.name}> where <tmx> must be. Check that it is a TMX file.")
    xml, draft = Xml(data), Draft()
    found: dict[str, None] = {}
    missing: list[tuple[int, Node, Node]] = []
    written = languages.target
    for token in tokens:
        if token.kind != Kind.START or token.name != "tu":
            continue
        sides: dict[str, Node] = {}
        unit = Tree.collect(token, tokens, name)
        for variant in unit.children("tuv"):
            tag = variant.attributes.get(LANGUAGE) or variant.attributes.get("lang") or ""
            found.setdefault(tag)
            if side := languages.match(tag):
                sides.setdefault(side, variant)
                written = tag if side == languages.target else written
        source, target = sides.get(languages.source), sides.get(languages.target)
        if source and (segment := source.child("seg")):
            number = _add(unit, segment, target.child("seg") if target else None, draft, xml)
            if target is None:
                missing.append((number, source, segment))
    if not draft.segments and found:
        raise TextError(
            f"{name}: no unit is in {languages.source!r}, the language to translate from; found are "
            f"{', '.join(map(repr, list(found)[:10]))}. Choose it with --source-language, or a model for these."
        )
    draft.edits += [_new_variant(number, variant, segment, xml, written) for number, variant, segment in missing]
    return Document(
        name=name,
        format="TMX",
        data=data,
        segments=draft.segments,
        edits=draft.edits,
        encode=lambda _, pieces: xml.write(pieces),
    )


def _add(unit: Node, source: Node, target: Node | None, draft: Draft, xml: Xml) -> int:
    """Add the segment of a unit, and where its target goes if there is a `<seg>` for it."""
    content = read_content(source.inside(), xml, DIALECT)
    existing = read_content(target.inside(), xml, DIALECT) if target else Content(())
    locked = "an empty source" if content.is_blank else ""
    number = draft.add(
        source=content.pieces,
        location=source.line,
        target=plain_text(existing.pieces),
        state=State.LOCKED if locked else State.EMPTY if existing.is_blank else State.FILLED,
        locked=locked,
        loss=content.loss,
        context=unit.attributes.get("tuid"),
        notes=tuple(note.text() for note in unit.children("note")),
    )
    if target is not None:
        opening, closing = open_and_close(xml.raw(target.opening.start, target.opening.end))
        parts = (xml.encode(opening), number, xml.encode(closing))
        draft.edits.append(Edit(target.opening.start, target.closing.end, (number,), parts))
    return number


def _new_variant(number: int, variant: Node, segment: Node, xml: Xml, language: str) -> Edit:
    """A `<tuv>` after that of the source, indented as it is, inside and out."""
    tag = sibling(xml.raw(variant.opening.start, variant.opening.end), "tuv")
    attribute = "xml:lang" if LANGUAGE in variant.attributes else "lang"
    opening = f'{tag.removesuffix(">")} {attribute}="{language}" creationtool="ibidem">'
    seg_opening, seg_closing = open_and_close(sibling(xml.raw(segment.opening.start, segment.opening.end), "seg"))
    before = xml.indent(*variant.gap()) + opening + xml.indent(*segment.gap()) + seg_opening
    after = seg_closing + xml.indent(segment.closing.end, variant.closing.start) + f"</{name_of(tag)}>"
    end = variant.closing.end
    return Edit(end, end, (number,), (xml.encode(before), number, xml.encode(after)))
