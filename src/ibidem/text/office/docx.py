"""DOCX: the paragraphs of a text, its tables, text boxes, headers, footers, footnotes and endnotes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.markup import Element, XmlFile, name_of
from ibidem.text.office.package import Package, PackageBuilder
from ibidem.text.office.runs import NO_FORMAT, Atom, AtomKind, Format, RunWriter, add_paragraph, word_run
from ibidem.text.xml import Kind, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ibidem.text.document import Document
    from ibidem.text.xml import Token

_CONTENT_TYPES = "[content_types].xml"
# The ends of the content types of the parts with text; documents with macros and templates have other beginnings.
_TEXT_PARTS = (
    *("document.main+xml", "template.main+xml", "macroEnabled.main+xml", "macroEnabledTemplate.main+xml"),
    *("header+xml", "footer+xml", "footnotes+xml", "endnotes+xml"),
)
_PAIRS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "customXml", "bdo", "dir"})
_RANGES = ("bookmark", "commentRange", "perm", "moveFromRange", "moveToRange")
_IGNORED = frozenset({"pPr", "proofErr", "lastRenderedPageBreak"})
_TEXT_ELEMENTS = {"tab": "\t", "cr": "\n", "noBreakHyphen": "\u2011", "softHyphen": ""}
_INVISIBLE = frozenset({"lang", "noProof"})
_COMPUTED = ("dropDownList", "comboBox", "date", "dataBinding", "docPartList", "equation", "picture")
_PLACEHOLDER_BOOKMARK = "_GoBack"
_FIELD_END = "field end"
_INSTRUCTION = "instruction "


def read_docx_document(data: bytes, name: str) -> Document:
    """Read a DOCX file as a document whose paragraphs are replaced by their translations.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is no DOCX file, is damaged or encrypted, or exceeds a limit.
    """
    package = Package(data, name, "DOCX")
    builder = PackageBuilder(package)
    members = find_parts(package, "DOCX", _TEXT_PARTS)
    for member, content, edits in builder.open(members):
        xml = XmlFile(content)
        numbers = count(1)
        tokens = read_tokens(content, f"{name}, {member}")
        for token in tokens:
            if token.kind == Kind.START and token.name == "p":
                paragraph = Element.collect(token, tokens, name)
                for inner in _find_paragraphs(paragraph):
                    prefix = _prefix(xml.tag(inner.opening))
                    writer = RunWriter(xml, word_run(prefix))
                    atoms = _ParagraphReader(xml, writer, prefix).read(inner)
                    place = f"{member}, paragraph {next(numbers)}"
                    add_paragraph(atoms, writer, builder, edits, token.line, place=place)
    return builder.build_package("DOCX")


def find_parts(package: Package, kind: str, endings: tuple[str, ...]) -> list[str]:
    """Return the members of some content types, in the order of the archive.

    Args:
        package: The archive.
        kind: The name of the format, for messages.
        endings: The ends of the content types.

    Raises:
        TextError: If the archive has no such member.
    """
    found: set[str] = set()
    for types in (name for name in package.names if _fold(name) == _CONTENT_TYPES):
        for token in read_tokens(package.read(types), f"{package.name}, {types}"):
            if token.name == "Override" and token.attributes.get("ContentType", "").endswith(endings):
                found.add(_fold(token.attributes.get("PartName", "")))
    members = [name for name in package.names if _fold(name) in found]
    if not members:
        raise TextError(f"{package.name}: a zip archive without the parts of a {kind} file. Check the file.")
    return members


def _fold(name: str) -> str:
    """Return the name of a part as names are compared: in any case; some programs write backslashes."""
    return name.replace("\\", "/").lstrip("/").lower()


def _prefix(tag: str) -> str:
    prefix, colon, _ = name_of(tag).rpartition(":")
    return prefix + colon


def _find_paragraphs(paragraph: Element) -> Iterator[Element]:
    """Yield a paragraph and those of the text boxes in it."""
    yield paragraph
    for inner in paragraph.descendants(_is_paragraph):
        yield from _find_paragraphs(inner)


def _is_paragraph(token: Token) -> bool:
    return token.name == "p"


@dataclass(slots=True)
class _ParagraphReader:
    """Reads the atoms of one paragraph."""

    xml: XmlFile
    writer: RunWriter
    prefix: str
    atoms: list[Atom] = field(default_factory=list)
    pairs: Iterator[int] = field(default_factory=count)

    def read(self, paragraph: Element) -> list[Atom]:
        self._read_content(paragraph)
        return list(_join_fields(self.atoms, self.writer))

    def _read_content(self, parent: Element) -> None:
        for element in _children(parent):
            name = element.opening.name
            if name == "r":
                self._read_run(element)
            elif name in _IGNORED or name.endswith("Pr"):
                continue
            elif name in _PAIRS:
                properties = next((one for one in _children(element) if one.opening.name == f"{name}Pr"), element)
                content = properties.closing.end if properties is not element else element.opening.end
                self._read_pair(element, element, content)
            elif name == "sdt" and (content_element := self._find_sdt_content(element)):
                self._read_pair(element, content_element, content_element.opening.end)
            elif name.endswith(("Start", "End")) and name.startswith(_RANGES):
                self._add_range(element)
            else:
                self._add(self._code_kind(element), self._raw(element), element)

    def _read_pair(self, outer: Element, inner: Element, content: int) -> None:
        """Read an element around runs; `content` is the position after its opening markup."""
        if outer.opening.end == outer.closing.end:
            return
        pair = f"pair {next(self.pairs)}"
        start, end = outer.opening.start, outer.closing.end
        closing = inner.closing.start
        self.atoms.append(Atom(AtomKind.OPEN, self.xml.raw(start, content), start, content, pair=pair))
        self._read_content(inner)
        self.atoms.append(Atom(AtomKind.CLOSE, self.xml.raw(closing, end), closing, end, pair=pair))

    def _find_sdt_content(self, element: Element) -> Element | None:
        """Return the content of a control with free text, None for a list, a date or bound data."""
        properties, content = element.child("sdtPr"), element.child("sdtContent")
        computed = properties and any(token.name.endswith(_COMPUTED) for token in properties.inside())
        return None if computed or content is None or content.opening.end == content.closing.end else content

    def _add_range(self, element: Element) -> None:
        name = element.opening.name
        is_start = name.endswith("Start")
        identity = element.attributes.get(f"{self.prefix}id", "")
        pair = f"{name.removesuffix('Start').removesuffix('End')} {identity}"
        if element.attributes.get(f"{self.prefix}name") == _PLACEHOLDER_BOOKMARK:
            pair += " last edited place"
        self._add(AtomKind.START if is_start else AtomKind.END, self._raw(element), element, pair=pair)

    def _read_run(self, run: Element) -> None:
        format = NO_FORMAT
        before = len(self.atoms)
        for child in _children(run):
            name = child.opening.name
            if name == "rPr":
                format = self._read_format(child)
                if _is_hidden(child, self.prefix):
                    self._add(AtomKind.SINGLE, self._raw(run), run)
                    return
            elif name == "t":
                self._add(AtomKind.TEXT, child.text(), run, format)
            elif name in _TEXT_ELEMENTS:
                self._add(AtomKind.TEXT, _TEXT_ELEMENTS[name], run, format)
            elif name == "br" and child.attributes.get(f"{self.prefix}type", "textWrapping") == "textWrapping":
                self._add(AtomKind.TEXT, "\n", run, format)
            elif name not in _IGNORED:
                markup = f"<{self.prefix}r>{format.markup}{self._raw(child)}</{self.prefix}r>"
                self._add(self._code_kind(child), markup, run, format, pair=self._field_part(child))
        if any(atom.kind == AtomKind.BARRIER for atom in self.atoms[before:]):
            self.atoms[before:] = [Atom(AtomKind.BARRIER, "", run.opening.start, run.closing.end)]

    def _field_part(self, element: Element) -> str:
        """Return the role of an element in a field, "" if it has none."""
        if element.opening.name == "instrText":
            return _INSTRUCTION + element.text()
        if element.opening.name == "fldChar":
            return f"field {element.attributes.get(f'{self.prefix}fldCharType', '')}"
        return ""

    def _read_format(self, properties: Element) -> Format:
        visible = [self._raw(child) for child in _children(properties) if child.opening.name not in _INVISIBLE]
        return Format(self._raw(properties), "".join(visible))

    def _code_kind(self, element: Element) -> AtomKind:
        return AtomKind.BARRIER if any(_is_paragraph(token) for token in element.inside()) else AtomKind.SINGLE

    def _raw(self, element: Element) -> str:
        return self.xml.raw(element.opening.start, element.closing.end)

    def _add(self, kind: AtomKind, text: str, element: Element, format: Format = NO_FORMAT, pair: str = "") -> None:
        self.atoms.append(Atom(kind, text, element.opening.start, element.closing.end, format, pair))


def _children(element: Element) -> Iterator[Element]:
    """Yield the elements directly in an element."""
    index, end = element.index + 1, element.tree.ends[element.index]
    while index < end:
        if element.tree.tokens[index].kind == Kind.START:
            yield Element(element.tree, index)
            index = element.tree.ends[index]
        index += 1


def _is_hidden(properties: Element, prefix: str) -> bool:
    vanish = properties.child("vanish")
    return vanish is not None and vanish.attributes.get(f"{prefix}val", "true") not in ("0", "false", "off")


def _join_fields(atoms: list[Atom], writer: RunWriter) -> Iterator[Atom]:
    """Make each field one code; the shown text of a link field stands between two codes."""
    ends = _match_fields(atoms)
    separators = _match_separators(atoms, ends)
    link_ends: set[int] = set()
    number = 0
    while number < len(atoms):
        atom, last = atoms[number], number
        if number in link_ends:
            yield atom._replace(kind=AtomKind.CLOSE)
        elif number in ends:
            last = end = ends[number]
            separator = separators.get(number, end)
            whole = atoms[number : end + 1]
            if not _is_balanced(whole):
                yield _merge(whole, writer, AtomKind.BARRIER)
            elif separator < end and _is_link(atoms[number:separator]) and _is_balanced(atoms[number:separator]):
                last = separator
                link_ends.add(end)
                atoms[end] = atoms[end]._replace(pair=f"field {number}")
                yield _merge(atoms[number : last + 1], writer, AtomKind.OPEN)._replace(pair=f"field {number}")
            else:
                has_barrier = any(one.kind == AtomKind.BARRIER for one in whole)
                yield _merge(whole, writer, AtomKind.BARRIER if has_barrier else AtomKind.SINGLE)
        elif atom.kind == AtomKind.SINGLE:
            yield atom._replace(pair="")
        else:
            yield atom
        number = last + 1


def _is_balanced(atoms: Sequence[Atom]) -> bool:
    """Return whether each pair of tags is complete."""
    opened = {atom.pair for atom in atoms if atom.kind == AtomKind.OPEN}
    return opened == {atom.pair for atom in atoms if atom.kind == AtomKind.CLOSE}


def _merge(atoms: Sequence[Atom], writer: RunWriter, kind: AtomKind) -> Atom:
    start, end = min(atom.start for atom in atoms), max(atom.end for atom in atoms)
    return Atom(kind, "".join(map(writer.render, atoms)), start, end)


def _is_link(atoms: Sequence[Atom]) -> bool:
    parts = [atom.pair.removeprefix(_INSTRUCTION) for atom in atoms if atom.pair.startswith(_INSTRUCTION)]
    return "".join(parts).strip().upper().startswith("HYPERLINK")


def _match_fields(atoms: Sequence[Atom]) -> dict[int, int]:
    """Return the ends of the fields that begin and end in the paragraph, by their beginnings."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for number, atom in enumerate(atoms):
        if atom.pair == "field begin":
            opened.append(number)
        elif atom.pair == _FIELD_END and opened:
            ends[opened.pop()] = number
    return ends


def _match_separators(atoms: Sequence[Atom], ends: Mapping[int, int]) -> dict[int, int]:
    """Return the marks between the instruction and the shown text of the fields, by their beginnings."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for number, atom in enumerate(atoms):
        if number in ends:
            opened.append(number)
        elif opened and ends[opened[-1]] == number:
            opened.pop()
        elif atom.pair == "field separate" and opened:
            found.setdefault(opened[-1], number)
    return found
