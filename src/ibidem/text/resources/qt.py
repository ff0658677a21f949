"""Qt Linguist's .ts files: each message has a source and a translation.

New translations keep `type="unfinished"`, by which Qt's tools recognise what a person has not accepted yet. Each plural
form (`numerusform`) gets the translation of the one source text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.document import DeclaredLanguage, DocumentBuilder, Edit
from ibidem.text.inline import Role
from ibidem.text.markup import Element, InlineSyntax, XmlFile, open_and_close, read_content, set_attribute
from ibidem.text.xml import Kind, read_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibidem.text.document import Document, Segment
    from ibidem.text.inline import Pieces

_UNFINISHED = "unfinished"
_OUTDATED = frozenset({"vanished", "obsolete"})
_MAX_SHOWN = 40


def _is_byte(name: str, _: Mapping[str, str]) -> bool:
    return name == "byte"


def _role(_: str, __: Mapping[str, str]) -> tuple[Role, str | None]:
    return Role.SINGLE, None


_SYNTAX = InlineSyntax(_is_byte, _role)


def read_ts_document(data: bytes, name: str) -> Document:
    """Read a .ts file as a document whose missing translations are filled in.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not such a file, or not well-formed.
    """
    xml, builder = XmlFile(data), DocumentBuilder()
    tokens = read_tokens(data, name)
    root = next((token for token in tokens if token.kind == Kind.START), None)
    if root is None or root.name != "TS":
        found = root.name[:_MAX_SHOWN] if root else "nothing"
        raise TextError(
            f"{name}, line {root.line if root else 1}: <{found}> where <TS> must be. Name the format with --format."
        )
    for attribute, is_target in (("sourcelanguage", False), ("language", True)):
        if tag := root.attributes.get(attribute):
            builder.languages.append(DeclaredLanguage(is_target, tag, root.line))
    for token in tokens:
        if token.kind == Kind.START and token.name == "message":
            _add_message(Element.collect(token, tokens, name), xml, builder)

    def encode(_: Segment, pieces: Pieces) -> bytes:
        return xml.encode_pieces(pieces)

    return builder.build(name, "Qt", data, encode)


def _add_message(message: Element, xml: XmlFile, builder: DocumentBuilder) -> None:
    """Add a message, and the edits that fill its translation."""
    source, translation = message.child("source"), message.child("translation")
    if source is None:
        return
    state = translation.attributes.get("type") if translation is not None else _UNFINISHED
    forms = list(translation.children("numerusform")) if translation is not None else []
    places = forms or ([translation] if translation is not None else [])
    target = "".join(place.text() for place in places)
    comments = (message.child(one) for one in ("comment", "extracomment", "translatorcomment"))
    content = read_content(source, xml, _SYNTAX)
    number = builder.add(
        content.pieces,
        source.line,
        target=target,
        filled=all(place.text().strip() for place in places) and bool(places),
        fuzzy=state == _UNFINISHED,
        locked=f'type="{state}"' if state in _OUTDATED else "",
        notes=tuple(one.text() for one in comments if one is not None),
        untranslatable=content.untranslatable,
    )
    if translation is None:
        opening = xml.encode(f'{xml.indent(*source.gap())}<translation type="{_UNFINISHED}">')
        place = source.closing.end
        parts = (opening, number, xml.encode("</translation>"))
        builder.edits.append(Edit(place, place, (number,), parts))
        return
    if state != _UNFINISHED:
        opening_tag = set_attribute(xml.tag(translation.opening), "type", _UNFINISHED)
        span = translation.opening.start, translation.opening.end
        if forms:
            builder.edits.append(Edit(*span, (number,), (xml.encode(opening_tag),)))
    else:
        opening_tag = xml.tag(translation.opening)
    for one in places:
        tag = opening_tag if one is translation else xml.tag(one.opening)
        first, last = (xml.encode(part) for part in open_and_close(tag))
        span = one.opening.start, max(one.closing.end, one.opening.end)
        builder.edits.append(Edit(*span, (number,), (first, number, last)))
