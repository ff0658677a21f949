"""TMX 1.4: parallel text that is read and written as a stream, and documents whose missing `<tuv>` are filled in.

In a document, a missing `<tuv>` is put after that of the source, with `creationtool="ibidem"`, so that a translation
memory can distinguish it from a person's translation; an empty `<seg>` is filled.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

import ibidem
from ibidem.errors import TextError
from ibidem.text.document import DocumentBuilder, Edit
from ibidem.text.inline import Role, is_blank, plain_text
from ibidem.text.markup import Element, InlineSyntax, XmlFile, name_of, open_and_close, read_content, sibling_tag
from ibidem.text.pair import Dropped, PairWriter, Unit
from ibidem.text.stream import BLOCK_BYTES, MAX_ATTRIBUTES, MAX_DEPTH, MAX_TEXT
from ibidem.text.xml import LANGUAGE, UNFIT, Kind, XmlParser, escape, escape_value, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ibidem.text.document import Document
    from ibidem.text.language import Languages
    from ibidem.text.pair import LocatedPair, ReadResult
    from ibidem.text.stream import Stream

# The types of the <prop> elements in which an exported memory states where a pair came from.
_ORIGIN, _LOCATION = "x-ibidem-origin", "x-ibidem-location"
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
_NUMBER = re.compile("[0-9]{1,18}")
# Languages that an error message lists, and characters of each.
_MAX_TAGS, _MAX_TAG = 8, 20


def _tag_of(attributes: Mapping[str, str]) -> str:
    return attributes.get(LANGUAGE) or attributes.get("lang") or ""


def read_tmx(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the first segment of either language from each `<tu>`; a unit without both is dropped.

    Text inside `<hi>` is kept. The content of `<bpt>`, `<ept>`, `<it>`, `<ph>` and `<ut>` is native code and is left
    out, including any `<sub>` in it, which is a separate text such as a footnote. The encoding is the one that the XML
    declares. The origin and the location that an exported memory states in `<prop>` elements are used.

    Args:
        stream: The opened file.
        languages: The two languages of the corpus.

    Raises:
        TextError: If the file is not well-formed or exceeds a limit, or if none of its units has both languages.
    """
    parser = _UnitParser(stream.name, languages)
    for _ in parser.feed(iter(lambda: stream.read(BLOCK_BYTES), b"")):
        yield from parser.take()
    parser.check_languages()


class _UnitParser(XmlParser):
    """Collects units from the events of expat, without a tree."""

    def __init__(self, name: str, languages: Languages) -> None:
        super().__init__(name)
        self._languages = languages
        self._results: deque[ReadResult] = deque()
        self._line = 0
        self._sides: dict[str, str] = {}
        self._language: str | None = None
        self._properties: dict[str, str] = {}
        self._property = ""
        self._text: list[str] | None = None
        self._length = 0
        self._code_depth = 0
        self._complete_units = 0
        self._tags: dict[str, None] = {}
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add_text

    def take(self) -> Iterator[ReadResult]:
        """Yield the units that were completed since the last call."""
        while self._results:
            yield self._results.popleft()

    def check_languages(self) -> None:
        """Raise TextError if there are units and none has both languages; called at the end of the file."""
        if self._tags and not self._complete_units:
            found = ", ".join(self._tags)
            source, target = self._languages.source, self._languages.target
            raise TextError(
                f"{self.name}: no unit has both {source} and {target}; the languages of the file are: {found}. "
                f"To learn from {source} to {target}, give a file with these two, in any order; for other languages, "
                "choose another model with --source-language and --target-language."
            )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH or len(attributes) > MAX_ATTRIBUTES:
            raise self.element_error()
        if ":" in name:
            name = name.rpartition(":")[2]
        if self._text is not None:
            self._code_depth += self._code_depth > 0 or name in _CODES
        elif name == "tu":
            self._line = self.parser.CurrentLineNumber
            self._sides, self._properties = {}, {}
        elif name == "prop" and attributes.get("type") in (_ORIGIN, _LOCATION):
            self._property, self._text, self._length, self._code_depth = attributes["type"], [], 0, 0
        elif name == "tuv":
            tag = _tag_of(attributes)
            self._language = self._languages.match(tag)
            if len(self._tags) < _MAX_TAGS:
                self._tags[tag[:_MAX_TAG]] = None
        elif name == "seg" and self._language and self._language not in self._sides:
            self._text, self._length, self._code_depth = [], 0, 0

    def _end(self, name: str) -> None:
        self.depth -= 1
        if ":" in name:
            name = name.rpartition(":")[2]
        if self._text is not None and self._property:
            if name == "prop":
                self._properties[self._property] = "".join(self._text)
                self._property, self._text = "", None
        elif self._text is not None and self._language is not None:
            if name == "seg":
                self._sides[self._language] = "".join(self._text)
                self._text = None
            elif self._code_depth:
                self._code_depth -= 1
        elif name == "tuv":
            self._language = None
        elif name == "tu":
            self._results.append(self._build_unit())

    def _add_text(self, text: str) -> None:
        if self._text is None or self._code_depth:
            return
        self._length += len(text)
        if self._length > MAX_TEXT:
            raise TextError(
                f"{self.name}, line {self._line}: a segment of this unit is longer than {MAX_TEXT:,} "
                "characters. Remove or split the unit."
            )
        self._text.append(text)

    def _build_unit(self) -> ReadResult:
        for language in (self._languages.source, self._languages.target):
            if language not in self._sides:
                return Dropped(f"no {language!r} segment")
        self._complete_units += 1
        unit = Unit(self._sides[self._languages.source], self._sides[self._languages.target], self._line)
        location = self._properties.get(_LOCATION, "")
        return unit.with_origin(self._properties.get(_ORIGIN), int(location) if _NUMBER.fullmatch(location) else None)


def _role(name: str, attributes: Mapping[str, str]) -> tuple[Role, str | None]:
    if name in ("bpt", "ept"):
        return (Role.OPEN if name == "bpt" else Role.CLOSE), attributes.get("i")
    if name == "it":
        return (Role.CLOSE if attributes.get("pos") == "end" else Role.OPEN), None
    return Role.SINGLE, None


_SYNTAX = InlineSyntax(lambda name, _: name in _CODES, _role)


def read_tmx_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read a TMX file as a document whose targets are in the target language.

    Args:
        data: The file, in the encoding that the XML declares.
        name: Its name, for messages.
        languages: The two languages; a target that is missing is added in the second one.

    Raises:
        TextError: If the file is not valid, or has units but none in the source language.
    """
    tokens = read_tokens(data, name)
    root = next(token for token in tokens if token.kind == Kind.START)
    if root.name != "tmx":
        raise TextError(f"{name}, line {root.line}: <{root.name}> where <tmx> must be. Check that it is a TMX file.")
    xml, builder = XmlFile(data), DocumentBuilder()
    tags: dict[str, None] = {}
    missing: list[tuple[int, Element, Element]] = []
    target_tag = languages.target
    for token in tokens:
        if token.kind != Kind.START or token.name != "tu":
            continue
        sides: dict[str, Element] = {}
        unit = Element.collect(token, tokens, name)
        for variant in unit.children("tuv"):
            tag = _tag_of(variant.attributes)
            tags.setdefault(tag)
            if side := languages.match(tag):
                sides.setdefault(side, variant)
                target_tag = tag if side == languages.target else target_tag
        source, target = sides.get(languages.source), sides.get(languages.target)
        if source and (segment := source.child("seg")):
            number = _add_segment(unit, segment, target.child("seg") if target else None, builder, xml)
            if target is None:
                missing.append((number, source, segment))
    if not builder.segments and tags:
        raise TextError(
            f"{name}: no unit is in {languages.source!r}, the language to translate from; the languages found are "
            f"{', '.join(map(repr, list(tags)[:10]))}. Choose it with --source-language, or use a model for these."
        )
    builder.edits += [_add_variant(number, variant, segment, xml, target_tag) for number, variant, segment in missing]
    return builder.build(name, "TMX", data, lambda _, pieces: xml.encode_pieces(pieces))


def _add_segment(unit: Element, source: Element, target: Element | None, builder: DocumentBuilder, xml: XmlFile) -> int:
    """Add the segment of a unit, and the edit of its target if there is a `<seg>` for it."""
    content = read_content(source, xml, _SYNTAX)
    existing = read_content(target, xml, _SYNTAX).pieces
    number = builder.add(
        content.pieces,
        source.line,
        target=plain_text(existing),
        filled=not is_blank(existing),
        untranslatable=content.untranslatable,
        context=unit.attributes.get("tuid"),
        notes=tuple(note.text() for note in unit.children("note")),
    )
    if target is not None:
        opening, closing = open_and_close(xml.tag(target.opening))
        parts = (xml.encode(opening), number, xml.encode(closing))
        builder.edits.append(Edit(target.opening.start, target.closing.end, (number,), parts))
    return number


def _add_variant(number: int, variant: Element, segment: Element, xml: XmlFile, language: str) -> Edit:
    """Return the edit that adds a `<tuv>` after that of the source, with the same indentation."""
    tag = sibling_tag(xml.tag(variant.opening), "tuv")
    attribute = LANGUAGE if LANGUAGE in variant.attributes else "lang"
    opening = f'{tag.removesuffix(">")} {attribute}="{escape_value(language)}" creationtool="ibidem">'
    seg_opening, seg_closing = open_and_close(sibling_tag(xml.tag(segment.opening), "seg"))
    before = xml.indent(*variant.gap()) + opening + xml.indent(*segment.gap()) + seg_opening
    after = seg_closing + xml.indent(segment.closing.end, variant.closing.start) + f"</{name_of(tag)}>"
    end = variant.closing.end
    return Edit(end, end, (number,), (xml.encode(before), number, xml.encode(after)))


def _head(languages: Languages) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
        f'<header creationtool="ibidem" creationtoolversion="{ibidem.__version__}" segtype="sentence" o-tmf="ibidem" '
        f'adminlang="en" srclang="{languages.source}" datatype="plaintext"/>\n<body>\n'
    )


def _format_pair(pair: LocatedPair, languages: Languages) -> tuple[str, bool]:
    texts = (pair.origin, pair.source, pair.target)
    fitting = [UNFIT.sub("\ufffd", text) for text in texts]
    origin, source, target = map(escape, fitting)
    unit = (
        f'<tu><prop type="{_ORIGIN}">{origin}</prop><prop type="{_LOCATION}">{pair.location}</prop>\n'
        f'<tuv xml:lang="{languages.source}"><seg>{source}</seg></tuv>\n'
        f'<tuv xml:lang="{languages.target}"><seg>{target}</seg></tuv></tu>\n'
    )
    return unit, fitting != list(texts)


TMX_WRITER = PairWriter(_head, _format_pair, "</body>\n</tmx>\n")
"""Writes pairs as TMX 1.4, with their origins and locations; a character that XML cannot contain becomes U+FFFD."""
