"""XLIFF 1.2 (and 1.0, 1.1): a `<target>` beside the `<source>` of each `<trans-unit>`.

A target that is filled in gets `state="needs-review-translation"` and `state-qualifier="leveraged-mt"`, which is how
tools know a machine's suggestion. `translate="no"`, also of a group, `approved="yes"` and the states `final` and
`signed-off` are left alone. Where a `<seg-source>` divides a unit, its segments are translated one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.text.documents.content import Content, Dialect, read_content
from ibidem.text.documents.document import Claim, Draft, Edit
from ibidem.text.documents.markup import open_and_close, set_attribute, sibling
from ibidem.text.documents.segment import State
from ibidem.text.inline import Role, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ibidem.text.documents.inheritance import Inherited
    from ibidem.text.documents.markup import Token, Xml
    from ibidem.text.documents.tree import Node

UNIT = "trans-unit"

_WHOLE = frozenset({"x", "bx", "ex", "ph", "it", "bpt", "ept"})
_PENDING = frozenset({"new", "needs-translation"})
_FINAL = frozenset({"final", "signed-off"})
_SUGGESTED = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}


def _is_whole(name: str, attributes: Mapping[str, str]) -> bool:
    return name in _WHOLE or (name == "mrk" and attributes.get("mtype") == "protected")


def _role(name: str, attributes: Mapping[str, str]) -> tuple[Role, str | None]:
    if name in ("bpt", "bx", "ept", "ex"):
        return (Role.OPEN if name in ("bpt", "bx") else Role.CLOSE), attributes.get("rid") or attributes.get("id")
    if name == "it":
        return (Role.CLOSE if attributes.get("pos") in ("close", "end") else Role.OPEN), None
    return Role.SINGLE, None


DIALECT = Dialect(_is_whole, _role)


def claims(token: Token) -> Iterator[Claim]:
    """The languages that a start tag names."""
    if token.name == "file":
        for is_target, name in ((False, "source-language"), (True, "target-language")):
            if tag := token.attributes.get(name):
                yield Claim(is_target, tag, token.line)


def read_unit(unit: Node, inherited: Inherited, draft: Draft, xml: Xml, language: str | None) -> None:
    """Add the segments of a unit; `language` is stated on a new target where the file does not name its own."""
    source = unit.child("source")
    if source is None:
        return
    target, division = unit.child("target"), unit.child("seg-source")
    divided = list(division.descendants(_is_division)) if division else []
    existing = read_content(target.inside(), xml, DIALECT) if target else Content(())
    if target is not None and not existing.is_blank and not any(target.descendants(_is_division)):
        divided = []  # the target is that of the whole
    frame = _frame(source, target, division or source, xml, language)
    common = {
        "context": unit.attributes.get("resname") or unit.attributes.get("id"),
        "notes": tuple(note.text() for note in unit.children("note")),
        "keep_lines": inherited.narrowed(source.attributes).preserve,
    }
    locked = _lock(unit, inherited, target)
    if division is None or not divided:
        content = read_content(source.inside(), xml, DIALECT)
        pending = target is not None and target.attributes.get("state") in _PENDING
        empty = existing.is_blank or (pending and existing.pieces == content.pieces)
        number = _add(draft, source, content, locked, "" if empty else plain_text(existing.pieces), common)
        draft.edits.append(Edit(frame.start, frame.end, (number,), (frame.opening, number, frame.closing)))
    elif target is None or existing.is_blank:
        contents = [read_content(part.inside(), xml, DIALECT) for part in divided]
        numbers = [_add(draft, *part, locked, "", common) for part in zip(divided, contents, strict=True)]
        parts = (frame.opening, *_around(division, divided, numbers, xml), frame.closing)
        draft.edits.append(Edit(frame.start, frame.end, tuple(numbers), parts))
    else:
        _add_divisions(divided, target, frame, draft, xml, locked, common)


class _Frame(NamedTuple):
    """Where a target element goes, and its tags."""

    start: int
    end: int
    opening: bytes
    closing: bytes


def _frame(source: Node, target: Node | None, before: Node, xml: Xml, language: str | None) -> _Frame:
    if target is None:
        start = end = before.closing.end
        tag = sibling(xml.raw(source.opening.start, source.opening.end), "target")
        if language is not None:
            tag = set_attribute(tag, "xml:lang", language)
        indent = xml.indent(*source.gap())
    else:
        start, end, indent = target.opening.start, target.closing.end, ""
        tag = xml.raw(target.opening.start, target.opening.end)
    for name, value in _SUGGESTED.items():
        tag = set_attribute(tag, name, value)
    opening, closing = open_and_close(tag)
    return _Frame(start, end, xml.encode(indent + opening), xml.encode(closing))


def _lock(unit: Node, inherited: Inherited, target: Node | None) -> str:
    if not inherited.translate:
        return 'translate="no"'
    if unit.attributes.get("approved") == "yes":
        return 'approved="yes"'
    state = target.attributes.get("state", "") if target else ""
    return f'state="{state}"' if state in _FINAL else ""


def _add(draft: Draft, source: Node, content: Content, locked: str, target: str, common: Mapping[str, object]) -> int:
    locked = locked or ("an empty source" if content.is_blank else "")
    state = State.LOCKED if locked else State.FILLED if target else State.EMPTY
    return draft.add(
        source=content.pieces,
        location=source.line,
        target=target,
        state=state,
        locked=locked,
        loss=content.loss,
        **common,
    )


def _is_division(token: Token) -> bool:
    return token.name == "mrk" and token.attributes.get("mtype") == "seg"


def _around(whole: Node, divided: Sequence[Node], numbers: Sequence[int], xml: Xml) -> Iterator[bytes | int]:
    """What a divided source holds, with the numbers of segments in place of their text."""
    last = whole.opening.end
    for part, number in zip(divided, numbers, strict=True):
        opening, closing = open_and_close(xml.raw(part.opening.start, part.opening.end))
        yield xml.bytes_of(last, part.opening.start) + xml.encode(opening)
        yield number
        yield xml.encode(closing)
        last = part.closing.end
    yield xml.bytes_of(last, whole.closing.start)


def _add_divisions(
    divided: Sequence[Node],
    target: Node,
    frame: _Frame,
    draft: Draft,
    xml: Xml,
    locked: str,
    common: Mapping[str, object],
) -> None:
    """Add the segments of a unit whose target is divided too: each one has its own place."""
    places = {part.attributes.get("mid"): part for part in target.descendants(_is_division)}
    numbers = []
    for part in divided:
        place = places.get(part.attributes.get("mid"))
        missing = "" if place else "no place for it in the target"
        existing = plain_text(read_content(place.inside(), xml, DIALECT).pieces) if place else ""
        content = read_content(part.inside(), xml, DIALECT)
        number = _add(draft, part, content, locked or missing, existing.strip(), common)
        if place is not None:
            opening, closing = open_and_close(xml.raw(place.opening.start, place.opening.end))
            parts = (xml.encode(opening), number, xml.encode(closing))
            draft.edits.append(Edit(place.opening.start, place.closing.end, (number,), parts))
            numbers.append(number)
    draft.edits.append(Edit(target.opening.start, target.opening.end, tuple(numbers), (frame.opening,)))
