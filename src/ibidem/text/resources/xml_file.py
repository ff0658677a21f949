"""XML resource files: Android's strings.xml and .NET's RESX."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.inline import Code, Role, plain_text
from ibidem.text.markup import Element, InlineSyntax, XmlFile, read_content
from ibidem.text.replacement import ReplacementBuilder
from ibidem.text.xml import Kind, escape, read_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

_XLIFF = "urn:oasis:names:tc:xliff:document:1.2 g"
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CHARACTERS = {"n": "\n", "t": "\t"}
_REFERENCE = re.compile(r"\s*[@?][\w.:+-]*/?[\w.:]+\s*\Z")
_CDATA = re.compile(r"<!\[CDATA\[(?:(?!\]\]>).)*+\]\]>", re.DOTALL)
_MAX_SHOWN = 40


def _is_protected(name: str, _: Mapping[str, str]) -> bool:
    return name == _XLIFF


def _role(_: str, __: Mapping[str, str]) -> tuple[Role, str | None]:
    return Role.SINGLE, None


_SYNTAX = InlineSyntax(_is_protected, _role)


def _read_elements(data: bytes, name: str, root_name: str, wanted: tuple[str, ...]) -> Iterator[Element]:
    """Yield the elements of some names; raises TextError if the root has another name."""
    tokens = read_tokens(data, name)
    root = next((token for token in tokens if token.kind == Kind.START), None)
    if root is None or root.name != root_name:
        found = root.name[:_MAX_SHOWN] if root else "nothing"
        line = root.line if root else 1
        raise TextError(f"{name}, line {line}: <{found}> where <{root_name}> must be. Name the format with --format.")
    for token in tokens:
        if token.kind == Kind.START and token.name in wanted:
            yield Element.collect(token, tokens, name)


def read_android_document(data: bytes, name: str) -> Document:
    r"""Read Android's strings.xml as a document whose strings, plurals and arrays are replaced by their translations.

    Escapes (`\'`, `\n`) are converted; `<xliff:g>` is kept with its content; `translatable="false"` and references to
    other resources stay as they are.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not such a file, or not well-formed.
    """
    xml, builder = XmlFile(data), ReplacementBuilder(name=name)
    for outer in _read_elements(data, name, "resources", ("string", "plurals", "string-array")):
        if outer.attributes.get("translatable") == "false":
            continue
        for element in [outer] if outer.opening.name == "string" else outer.children("item"):
            _add_content(element, outer.attributes.get("name"), xml, builder, _unescape, _escape)
    return builder.build_replaced(name, "Android", data)


def read_resx_document(data: bytes, name: str) -> Document:
    """Read a RESX file of .NET as a document whose strings are replaced by their translations.

    Args:
        data: The file.
        name: Its name, for messages.

    Raises:
        TextError: If the file is not such a file, or not well-formed.
    """
    xml, builder = XmlFile(data), ReplacementBuilder(name=name)
    for element in _read_elements(data, name, "root", ("data",)):
        key = element.attributes.get("name", "")
        # Data with a type is binary, and names with ">>" belong to the designer of forms.
        if "type" in element.attributes or "mimetype" in element.attributes or key.startswith(">>"):
            continue
        value = element.child("value")
        if value is not None:
            _add_content(value, key, xml, builder, str, str)
    return builder.build_replaced(name, "RESX", data)


def _add_content(
    element: Element,
    key: str | None,
    xml: XmlFile,
    builder: ReplacementBuilder,
    unescape: Callable[[str], str],
    escape_text: Callable[[str], str],
) -> None:
    """Add the content of an element as a text."""
    if element.opening.end >= element.closing.start:
        return
    content = read_content(element, xml, _SYNTAX)
    if (
        unescape is _unescape
        and all(isinstance(piece, str) for piece in content.pieces)
        and _REFERENCE.match(element.text())
    ):
        return
    pieces = tuple(piece if isinstance(piece, Code) else unescape(piece) for piece in content.pieces)
    # Android keeps white space only inside quotes.
    quote = '"' if unescape is _unescape and len(pieces) == 1 and _is_quoted(element.text()) else ""

    in_cdata = _CDATA.fullmatch(xml.raw(element.opening.end, element.closing.start)) is not None

    def encode(target: Pieces) -> bytes:
        if in_cdata and (section := _write_cdata(escape_text(plain_text(target)), xml)) is not None:
            return section
        written = [one.text if isinstance(one, Code) else escape(escape_text(one), xml.newline) for one in target]
        return xml.encode(f"{quote}{''.join(written)}{quote}")

    span = element.opening.end, element.closing.start
    builder.replace(xml.data, span, pieces, element.line, encode, accelerators=True, context=key)


def _write_cdata(text: str, xml: XmlFile) -> bytes | None:
    """Return a CDATA section, None for a text that must be escaped; raises ValueError as `escape` does."""
    escape(text)
    if "]]>" in text or "\r" in text:
        return None
    try:
        return f"<![CDATA[{text.replace(chr(10), xml.newline)}]]>".encode(xml.codec)
    except UnicodeEncodeError:
        return None


def _is_quoted(text: str) -> bool:
    stripped = text.strip()
    return len(stripped) > 1 and stripped.startswith('"') and stripped.endswith('"') and not stripped.endswith('\\"')


def _unescape(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _CHARACTERS.get(found[2], found[2])

    # Android collapses white space that is not escaped, unless the text is in quotes.
    if _is_quoted(text):
        text = text.strip()[1:-1]
    else:
        text = re.sub(r"\s+", " ", text)
    return _ESCAPE.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str) -> str:
    written = (
        text.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    )
    return f"\\{written}" if written.startswith(("@", "?")) else written
