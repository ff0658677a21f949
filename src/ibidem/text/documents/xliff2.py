"""XLIFF 2.0, 2.1 and 2.2: a `<target>` beside the `<source>` of each `<segment>` of a `<unit>`.

A segment that is filled in gets `state="translated"`, the first step after `initial`, and loses a `subState`, which
belonged to the state it had. `translate="no"` of a file, a group or a unit, and the states `reviewed` and `final`, are
left alone. A file with targets must name their language: where `trgLang` is missing, it is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.text.documents.content import Content, Dialect, read_content
from ibidem.text.documents.document import Claim, Draft, Edit
from ibidem.text.documents.markup import open_and_close, set_attribute, sibling
from ibidem.text.documents.segment import State
from ibidem.text.inline import Role, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ibidem.text.documents.inheritance import Inherited
    from ibidem.text.documents.markup import Token, Xml
    from ibidem.text.documents.tree import Node

UNIT = "unit"

_WHOLE = frozenset({"ph", "sc", "ec", "sm", "em", "cp"})
_DONE = frozenset({"reviewed", "final"})


def _is_whole(name: str, attributes: Mapping[str, str]) -> bool:
    return name in _WHOLE or (name == "mrk" and attributes.get("translate") == "no")


def _role(name: str, attributes: Mapping[str, str]) -> tuple[Role, str | None]:
    kind = "mark" if name in ("sm", "em") else "code"
    if name in ("sc", "sm"):
        return Role.OPEN, f"{kind} {attributes.get('id')}"
    if name in ("ec", "em"):
        start = attributes.get("startRef")
        return Role.CLOSE, f"{kind} {start}" if start else None
    return Role.SINGLE, None


DIALECT = Dialect(_is_whole, _role)


def claims(token: Token) -> Iterator[Claim]:
    """The languages that a start tag names."""
    if token.name == "xliff":
        for is_target, name in ((False, "srcLang"), (True, "trgLang")):
            if tag := token.attributes.get(name):
                yield Claim(is_target, tag, token.line)


def read_unit(unit: Node, inherited: Inherited, draft: Draft, xml: Xml) -> None:
    """Add the segments of a unit."""
    notes = tuple(note.text() for group in unit.children("notes") for note in group.children("note"))
    for segment in unit.children("segment"):
        source, target = segment.child("source"), segment.child("target")
        if source is None:
            continue
        content = read_content(source.inside(), xml, DIALECT)
        existing = read_content(target.inside(), xml, DIALECT) if target else Content(())
        locked = _lock(segment, inherited) or ("an empty source" if content.is_blank else "")
        number = draft.add(
            source=content.pieces,
            location=source.line,
            target=plain_text(existing.pieces),
            state=State.LOCKED if locked else State.EMPTY if existing.is_blank else State.FILLED,
            locked=locked,
            loss=content.loss,
            context=unit.attributes.get("name") or unit.attributes.get("id"),
            notes=notes,
            keep_lines=inherited.narrowed(source.attributes).preserve,
        )
        tag = xml.raw(segment.opening.start, segment.opening.end)
        tag = set_attribute(set_attribute(tag, "state", "translated"), "subState", None)
        draft.edits += [
            Edit(segment.opening.start, segment.opening.end, (number,), (xml.encode(tag),)),
            _target_edit(number, source, target, xml),
        ]


def language_edit(root: Token, xml: Xml, language: str, segments: int) -> Edit:
    """What names the language of the targets in the root element, once there are any."""
    tag = set_attribute(xml.raw(root.start, root.end), "trgLang", language)
    return Edit(root.start, root.end, tuple(range(segments)), (xml.encode(tag),))


def _lock(segment: Node, inherited: Inherited) -> str:
    if not inherited.translate:
        return 'translate="no"'
    state = segment.attributes.get("state", "")
    return f'state="{state}"' if state in _DONE else ""


def _target_edit(number: int, source: Node, target: Node | None, xml: Xml) -> Edit:
    if target is None:
        start = end = source.closing.end
        tag, indent = sibling(xml.raw(source.opening.start, source.opening.end), "target"), xml.indent(*source.gap())
    else:
        start, end, indent = target.opening.start, target.closing.end, ""
        tag = xml.raw(target.opening.start, target.opening.end)
    opening, closing = open_and_close(tag)
    return Edit(start, end, (number,), (xml.encode(indent + opening), number, xml.encode(closing)))
