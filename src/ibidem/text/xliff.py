"""XLIFF 1.0 to 2.2, as parallel text and as a document.

XLIFF 1.x has a `<target>` beside the `<source>` of each `<trans-unit>`. A filled target gets
`state="needs-review-translation"` and `state-qualifier="leveraged-mt"`, by which tools recognise a machine's
suggestion. `translate="no"`, also of a group, `approved="yes"` and the states `final` and `signed-off` lock a unit. If
a `<seg-source>` divides a unit, its segments are translated one by one.

XLIFF 2.x has a `<target>` beside the `<source>` of each `<segment>` of a `<unit>`. A filled segment gets
`state="translated"`, the first step after `initial`, and loses its `subState`, which belonged to the old state.
`translate="no"` of a file, a group or a unit, and the states `reviewed` and `final`, lock a segment. A file with
targets must name their language: if `trgLang` is missing, it is added.

The confidence of a translation is written as an `<alt-trans>` with `match-quality` in XLIFF 1.x, and in XLIFF 2.x as a
match of the Translation Candidates module with `matchQuality`, which refers to its segment by an id: segments without
one get none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ibidem.errors import TextError
from ibidem.text.document import DeclaredLanguage, DocumentBuilder, Edit, confidence_part
from ibidem.text.inline import Role, is_blank, plain_text
from ibidem.text.markup import (
    Element,
    InlineSyntax,
    XmlFile,
    XmlWindow,
    open_and_close,
    read_content,
    set_attribute,
    sibling_tag,
)
from ibidem.text.pair import Dropped, Unit
from ibidem.text.stream import BLOCK_BYTES
from ibidem.text.xml import LANGUAGE, SPACE, Kind, escape_value, parse_tokens, read_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ibidem.text.document import Document, Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages
    from ibidem.text.markup import Content
    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Stream
    from ibidem.text.xml import Token

_MAX_SHOWN = 40

_CODES_1 = frozenset({"x", "bx", "ex", "ph", "it", "bpt", "ept"})
_PENDING_1 = frozenset({"new", "needs-translation"})
_FINAL_1 = frozenset({"final", "signed-off"})
_SUGGESTED_1 = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}

_CODES_2 = frozenset({"ph", "sc", "ec", "sm", "em", "cp"})
_FINAL_2 = frozenset({"reviewed", "final"})

_ORIGIN = "ibidem"
_MATCHES = "urn:oasis:names:tc:xliff:matches:2.0"


@dataclass(slots=True)
class _Builder(DocumentBuilder):
    """Collects segments, and how their confidence is written, by their numbers."""

    confidence: dict[int, Callable[[Pieces, float], bytes]] = field(default_factory=dict)

    def encode_confidence(self, segment: Segment, pieces: Pieces, confidence: float) -> bytes:
        write = self.confidence.get(segment.number)
        return b"" if write is None else write(pieces, confidence)


@dataclass(frozen=True, slots=True)
class _Inherited:
    """The attributes that an element inherits: whether to translate its text, and whether white space counts."""

    translate: bool = True
    preserve: bool = False

    def with_attributes(self, attributes: Mapping[str, str]) -> _Inherited:
        translate, space = attributes.get("translate"), attributes.get(SPACE)
        if translate is None and space is None:
            return self
        return _Inherited(
            self.translate if translate is None else translate != "no",
            self.preserve if space is None else space == "preserve",
        )


class _Version(NamedTuple):
    """A major version of XLIFF.

    `unit` is the name of a unit. `languages` are the element and the attributes that declare the languages of the
    sources and of the targets. `read_unit` adds the segments of a unit; its last argument is the language that is
    stated on a new target, None if the file declares it.
    """

    unit: str
    languages: tuple[str, str, str]
    read_unit: Callable[[Element, _Inherited, _Builder, XmlFile, str | None], None]

    def declared_languages(self, token: Token) -> Iterator[DeclaredLanguage]:
        element, *names = self.languages
        if token.name == element:
            for is_target, name in zip((False, True), names, strict=True):
                if tag := token.attributes.get(name):
                    yield DeclaredLanguage(is_target, tag, token.line)


def read_xliff(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the segments in the user's direction, without codes; a segment without a target is dropped.

    The file is read block by block, and only the current unit is kept.

    Args:
        stream: The opened file, of version 1 or 2.
        languages: The two languages of the corpus.

    Raises:
        TextError: If the file is not valid, declares a language that is neither of the two, or translates in both
            directions.
    """
    head = stream.read(BLOCK_BYTES)
    window = XmlWindow(head)
    blocks = chain([head] if head else [], iter(lambda: stream.read(BLOCK_BYTES), b""))
    tokens = parse_tokens(window.pass_on(blocks), stream.name)
    root, version, _ = _read_root(tokens, stream.name)
    direction = _Direction(stream.name, languages)
    direction.check(version.declared_languages(root))
    current = root
    for file, unit, inherited in _read_units(tokens, root, version.unit, stream.name, window):
        if file is not current:
            direction.check(version.declared_languages(file))
            current = file
        builder = _Builder()
        version.read_unit(unit, inherited, builder, window, None)
        for segment in builder.segments:
            source, target = plain_text(segment.source), segment.target
            if not target.strip():
                yield Dropped("untranslated")
            elif direction.is_reverse:
                yield Unit(target, source, segment.location)
            else:
                yield Unit(source, target, segment.location)


class _Direction:
    """Whether a file translates from the user's target language; False if it declares no languages."""

    def __init__(self, name: str, languages: Languages) -> None:
        self._name = name
        self._languages = languages
        self._reverse: bool | None = None

    @property
    def is_reverse(self) -> bool:
        return self._reverse is True

    def check(self, declared: Iterable[DeclaredLanguage]) -> None:
        """Set the direction from declared languages; raises TextError if they do not fit."""
        for language in declared:
            side = self._languages.match(language.tag)
            if side is None:
                raise TextError(
                    f"{self._name}, line {language.line}: its language is {language.tag[:_MAX_SHOWN]!r}, and one of "
                    f"{self._languages.source!r} and {self._languages.target!r} is needed. Choose them with "
                    "--source-language and --target-language."
                )
            reverse = language.is_target == (side == self._languages.source)
            if self._reverse not in (None, reverse):
                raise TextError(
                    f"{self._name}, line {language.line}: its files translate in both directions. "
                    "Split it, one direction a file."
                )
            self._reverse = reverse


def read_xliff_document(data: bytes, name: str, target_language: str | None) -> Document:
    """Read an XLIFF file as a document.

    Args:
        data: The file.
        name: Its name, for messages.
        target_language: The language that is written where targets need one that the file does not declare.

    Raises:
        TextError: If the file is not valid.
    """
    tokens = read_tokens(data, name)
    root, version, number = _read_root(tokens, name)
    xml, builder = XmlFile(data), _Builder()
    builder.languages += version.declared_languages(root)
    current = root
    for file, unit, inherited in _read_units(tokens, root, version.unit, name):
        if file is not current:
            builder.languages += version.declared_languages(file)
            current = file
        declared = file.attributes.get("target-language")
        version.read_unit(unit, inherited, builder, xml, None if declared else target_language)
    if version is _VERSION_2 and target_language is not None and not root.attributes.get("trgLang"):
        tag = set_attribute(xml.tag(root), "trgLang", target_language)
        builder.edits.append(Edit(root.start, root.end, tuple(range(len(builder.segments))), (xml.encode(tag),)))
    document = builder.build(name, f"XLIFF {number}", data, lambda _, pieces: xml.encode_pieces(pieces))
    return replace(document, encode_confidence=builder.encode_confidence)


def _read_root(tokens: Iterator[Token], name: str) -> tuple[Token, _Version, str]:
    """Return the start tag of the root element, the version and its number."""
    root = next(token for token in tokens if token.kind == Kind.START)
    number = root.attributes.get("version", "")
    versions = {"1.": _VERSION_1, "2.": _VERSION_2}
    if root.name != "xliff" or number[:2] not in versions:
        found = f"XLIFF {number[:_MAX_SHOWN]!r}" if root.name == "xliff" else f"<{root.name[:_MAX_SHOWN]}>"
        raise TextError(
            f'{name}, line {root.line}: {found} where <xliff version="1.2"> or "2.x" must be. '
            "Export the file as one of these, or name its format with --format."
        )
    return root, versions[number[:2]], number


def _read_units(
    tokens: Iterator[Token], root: Token, unit: str, name: str, window: XmlWindow | None = None
) -> Iterator[tuple[Token, Element, _Inherited]]:
    """Yield the start tag of the `<file>` of each unit, the unit, and the attributes that it inherits.

    A window discards the bytes before the current unit.
    """
    file = root
    stack = [_Inherited().with_attributes(root.attributes)]
    for token in tokens:
        if window is not None:
            window.forget(token.start)
        if token.kind == Kind.END:
            stack.pop()
        elif token.kind == Kind.START:
            inherited = stack[-1].with_attributes(token.attributes)
            if token.name == unit:
                yield file, Element.collect(token, tokens, name), inherited
                continue
            stack.append(inherited)
            if token.name == "file":
                file = token


class _Target(NamedTuple):
    """The position of a target element in the file, and its tags."""

    start: int
    end: int
    opening: bytes
    closing: bytes

    def edit(self, number: int) -> Edit:
        """Return the edit that writes the target of one segment."""
        return Edit(self.start, self.end, (number,), (self.opening, number, self.closing))


def _place_target(
    source: Element, target: Element | None, before: Element, xml: XmlFile, attributes: Mapping[str, str]
) -> _Target:
    """Return the existing target, or a new one after an element, with some attributes set."""
    if target is None:
        start = end = before.closing.end
        tag, indent = sibling_tag(xml.tag(source.opening), "target"), xml.indent(*source.gap())
    else:
        start, end, indent = target.opening.start, target.closing.end, ""
        tag = xml.tag(target.opening)
    for name, value in attributes.items():
        tag = set_attribute(tag, name, value)
    opening, closing = open_and_close(tag)
    return _Target(start, end, xml.encode(indent + opening), xml.encode(closing))


def _find_lock(inherited: _Inherited, state: str, final: frozenset[str], *, approved: bool = False) -> str:
    if not inherited.translate:
        return 'translate="no"'
    if approved:
        return 'approved="yes"'
    return f'state="{state}"' if state in final else ""


def _is_code_1(name: str, attributes: Mapping[str, str]) -> bool:
    return name in _CODES_1 or (name == "mrk" and attributes.get("mtype") == "protected")


def _role_1(name: str, attributes: Mapping[str, str]) -> tuple[Role, str | None]:
    if name in ("bpt", "bx", "ept", "ex"):
        return (Role.OPEN if name in ("bpt", "bx") else Role.CLOSE), attributes.get("rid") or attributes.get("id")
    if name == "it":
        return (Role.CLOSE if attributes.get("pos") in ("close", "end") else Role.OPEN), None
    return Role.SINGLE, None


_SYNTAX_1 = InlineSyntax(_is_code_1, _role_1)


def _is_division(token: Token) -> bool:
    return token.name == "mrk" and token.attributes.get("mtype") == "seg"


class _Reader1:
    """Adds the segments of one `<trans-unit>` of XLIFF 1.x."""

    def __init__(self, unit: Element, inherited: _Inherited, builder: _Builder, xml: XmlFile) -> None:
        self.unit = unit
        self.builder = builder
        self.xml = xml
        self.target = unit.child("target")
        state = self.target.attributes.get("state", "") if self.target else ""
        approved = unit.attributes.get("approved") == "yes"
        self.locked = _find_lock(inherited, state, _FINAL_1, approved=approved)
        self.is_pending = state in _PENDING_1
        self.details: dict[str, Any] = {
            "context": unit.attributes.get("resname") or unit.attributes.get("id"),
            "notes": tuple(note.text() for note in unit.children("note")),
            "keep_lines": inherited.preserve,
        }

    def read(self, source: Element, language: str | None) -> None:
        """Add the segments; `language` is stated on a new target."""
        target, division = self.target, self.unit.child("seg-source")
        divided = list(division.descendants(_is_division)) if division else []
        existing = self._content(target).pieces
        if target is not None and not is_blank(existing) and not any(target.descendants(_is_division)):
            divided = []  # the target translates the whole unit
        attributes = {LANGUAGE: language} if target is None and language is not None else {}
        place = _place_target(source, target, division or source, self.xml, attributes | _SUGGESTED_1)
        if division is None or not divided:
            content = self._content(source)
            empty = is_blank(existing) or (self.is_pending and existing == content.pieces)
            number = self._add(source, content, "" if empty else plain_text(existing))
            self.builder.edits.append(self._with_confidence(place.edit(number), source, (number,)))
        elif target is None or is_blank(existing):
            numbers = [self._add(part, self._content(part)) for part in divided]
            parts = (place.opening, *self._divide(division, divided, numbers), place.closing)
            whole = Edit(place.start, place.end, tuple(numbers), parts)
            marks = [part.attributes.get("mid") for part in divided]
            self.builder.edits.append(self._with_confidence(whole, source, numbers, marks))
        else:
            self._read_divided_target(divided, target, place)

    def _with_confidence(
        self, edit: Edit, source: Element, numbers: Sequence[int], marks: Sequence[str | None] = (None,)
    ) -> Edit:
        """Write the confidence of segments behind the target; `marks` are the names of the parts of a divided unit."""
        indent = self.xml.indent(*source.gap())
        for number, mid in zip(numbers, marks, strict=True):
            tag = self.xml.tag(source.opening)
            self.builder.confidence[number] = partial(_write_confidence_1, self.xml, tag, indent, mid)
        return edit._replace(parts=(*edit.parts, *map(confidence_part, numbers)))

    def _content(self, element: Element | None) -> Content:
        return read_content(element, self.xml, _SYNTAX_1)

    def _add(self, source: Element, content: Content, target: str = "", locked: str = "") -> int:
        return self.builder.add(
            content.pieces,
            source.line,
            target=target,
            filled=bool(target),
            locked=self.locked or locked,
            untranslatable=content.untranslatable,
            **self.details,
        )

    def _divide(self, whole: Element, divided: Sequence[Element], numbers: Sequence[int]) -> Iterator[bytes | int]:
        """Yield the content of a divided source, with the numbers of segments in place of their text."""
        last = whole.opening.end
        for part, number in zip(divided, numbers, strict=True):
            opening, closing = open_and_close(self.xml.tag(part.opening))
            yield self.xml.bytes_of(last, part.opening.start) + self.xml.encode(opening)
            yield number
            yield self.xml.encode(closing)
            last = part.closing.end
        yield self.xml.bytes_of(last, whole.closing.start)

    def _read_divided_target(self, divided: Sequence[Element], target: Element, place: _Target) -> None:
        """Add the segments of a unit whose target is divided too, each with a place of its own."""
        targets = {part.attributes.get("mid"): part for part in target.descendants(_is_division)}
        numbers = []
        for part in divided:
            own = targets.get(part.attributes.get("mid"))
            existing = plain_text(self._content(own).pieces).strip()
            number = self._add(part, self._content(part), existing, "" if own else "no place for it in the target")
            if own is not None:
                opening, closing = open_and_close(self.xml.tag(own.opening))
                parts = (self.xml.encode(opening), number, self.xml.encode(closing))
                self.builder.edits.append(Edit(own.opening.start, own.closing.end, (number,), parts))
                numbers.append(number)
        self.builder.edits.append(
            Edit(target.opening.start, target.opening.end, tuple(numbers), (place.opening,)),
        )


def _write_confidence_1(
    xml: XmlFile, source_tag: str, indent: str, mid: str | None, pieces: Pieces, confidence: float
) -> bytes:
    """Encode an `<alt-trans>` with the confidence of a translation."""
    tag = sibling_tag(source_tag, "alt-trans")
    for name, value in {"mid": mid, "match-quality": f"{_percent(confidence)}%", "origin": _ORIGIN}.items():
        tag = set_attribute(tag, name, None if value is None else escape_value(value))
    opening, closing = open_and_close(tag)
    inner, inner_closing = open_and_close(sibling_tag(source_tag, "target"))
    return xml.encode(f"{indent}{opening}{inner}") + xml.encode_pieces(pieces) + xml.encode(f"{inner_closing}{closing}")


def _percent(confidence: float) -> int:
    return round(100 * confidence)


def _read_unit_1(unit: Element, inherited: _Inherited, builder: _Builder, xml: XmlFile, language: str | None) -> None:
    source = unit.child("source")
    if source is not None:
        inside = _Inherited(inherited.translate, inherited.with_attributes(source.attributes).preserve)
        _Reader1(unit, inside, builder, xml).read(source, language)


_VERSION_1 = _Version("trans-unit", ("file", "source-language", "target-language"), _read_unit_1)


def _is_code_2(name: str, attributes: Mapping[str, str]) -> bool:
    return name in _CODES_2 or (name == "mrk" and attributes.get("translate") == "no")


def _role_2(name: str, attributes: Mapping[str, str]) -> tuple[Role, str | None]:
    kind = "mark" if name in ("sm", "em") else "code"
    if name in ("sc", "sm"):
        return Role.OPEN, f"{kind} {attributes.get('id')}"
    if name in ("ec", "em"):
        start = attributes.get("startRef")
        return Role.CLOSE, f"{kind} {start}" if start else None
    return Role.SINGLE, None


_SYNTAX_2 = InlineSyntax(_is_code_2, _role_2)


def _read_unit_2(unit: Element, inherited: _Inherited, builder: _Builder, xml: XmlFile, _: str | None) -> None:
    notes = tuple(note.text() for group in unit.children("notes") for note in group.children("note"))
    assessed, first = [], len(builder.edits)
    for segment in unit.children("segment"):
        source, target = segment.child("source"), segment.child("target")
        if source is None:
            continue
        content = read_content(source, xml, _SYNTAX_2)
        existing = read_content(target, xml, _SYNTAX_2).pieces
        number = builder.add(
            content.pieces,
            source.line,
            target=plain_text(existing),
            filled=not is_blank(existing),
            locked=_find_lock(inherited, segment.attributes.get("state", ""), _FINAL_2),
            untranslatable=content.untranslatable,
            context=unit.attributes.get("name") or unit.attributes.get("id"),
            notes=notes,
            keep_lines=inherited.with_attributes(source.attributes).preserve,
        )
        tag = set_attribute(xml.tag(segment.opening), "state", "translated")
        tag = set_attribute(tag, "subState", None)
        builder.edits += [
            Edit(segment.opening.start, segment.opening.end, (number,), (xml.encode(tag),)),
            _place_target(source, target, source, xml, {}).edit(number),
        ]
        if id := segment.attributes.get("id"):
            text = plain_text(content.pieces)
            builder.confidence[number] = partial(_write_confidence_2, xml, xml.tag(source.opening), id, text)
            assessed.append(confidence_part(number))
    if assessed:
        # Before the edits of the segments, of which the first may begin at the same place.
        builder.edits.insert(first, _place_matches(unit, xml, assessed))


def _place_matches(unit: Element, xml: XmlFile, parts: Sequence[int]) -> Edit:
    """Return the edit that writes the matches of a unit, into its `<matches>` if it has them."""
    existing = next(unit.descendants(lambda token: token.name.endswith("matches")), None)
    if existing is not None and not xml.tag(existing.opening).endswith("/>"):
        place = existing.closing.start
        return Edit(place, place, tuple(parts), tuple(parts))
    if existing is not None:
        opening, closing = open_and_close(xml.tag(existing.opening))
        return Edit(
            existing.opening.start,
            existing.opening.end,
            tuple(parts),
            (xml.encode(opening), *parts, xml.encode(closing)),
        )
    place = unit.opening.end
    begin, end = xml.encode(f'<mtc:matches xmlns:mtc="{_MATCHES}">'), xml.encode("</mtc:matches>")
    return Edit(place, place, tuple(parts), (begin, *parts, end))


def _write_confidence_2(
    xml: XmlFile, source_tag: str, id: str, source: str, pieces: Pieces, confidence: float
) -> bytes:
    """Encode a match with the confidence of a translation; its texts are plain, since codes may refer to the unit."""
    texts = []
    for name, text in (("source", source), ("target", plain_text(pieces))):
        opening, closing = open_and_close(sibling_tag(source_tag, name))
        texts += [xml.encode(opening), xml.encode_pieces((text,)), xml.encode(closing)]
    match = (
        f'<mtc:match xmlns:mtc="{_MATCHES}" ref="#{escape_value(id)}" type="mt" origin="{_ORIGIN}" '
        f'matchQuality="{_percent(confidence)}">'
    )
    return b"".join([xml.encode(match), *texts, xml.encode("</mtc:match>")])


_VERSION_2 = _Version("unit", ("xliff", "srcLang", "trgLang"), _read_unit_2)
