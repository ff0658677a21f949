"""XML files written by code that shares nothing with the readers, and comparisons without their targets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from hypothesis import strategies as st

from ibidem.text.document import Document, FillReport, FillSettings, fill

if TYPE_CHECKING:
    from ibidem.text.inline import Translate


class Style(NamedTuple):
    """How a file is written."""

    encoding: str = "UTF-8"
    codec: str = "utf-8"
    newline: str = "\n"
    indent: str = "  "
    prefix: str = ""

    def write(self, *lines: str) -> bytes:
        """Lines `depth tag …` with `@` for the prefix of element names, as bytes."""
        text = self.newline.join(lines) + self.newline
        declaration = f'<?xml version="1.0" encoding="{self.encoding}"?>{self.newline}'
        return (declaration + text.replace("@", self.prefix)).encode(self.codec, "xmlcharrefreplace")

    def at(self, depth: int, line: str) -> str:
        return self.indent * depth + line


STYLES = [
    Style(),
    Style(codec="utf-8-sig", newline="\r\n", indent="\t"),
    Style("UTF-16", "utf-16", "\r\n"),
    Style("utf-16", "utf-16-be", "\n", " "),
    Style("ISO-8859-1", "latin-1", "\n", "    ", "x:"),
    Style("windows-1252", "cp1252", "\r\n", "", "long-er.prefix:"),
    Style("us-ascii", "ascii", "\n", "", ""),
]

styles = st.sampled_from(STYLES)

# Parts of a source other than words; some of them are equivalent in XML.
_BITS = [
    "Datei",
    "öffnen",
    "%s",
    "&amp;",
    "&#228;",
    "&#x20AC;",
    "<![CDATA[<roh> & gut]]>",
    "<!-- Anmerkung -->",
    "und",
    "{0}",
]
texts = st.lists(st.sampled_from(_BITS), min_size=1, max_size=6).map(lambda bits: " ".join(["Wort", *bits]))


def filled(document: Document, translate: Translate, settings: FillSettings | None = None) -> tuple[bytes, FillReport]:
    """Return a document after filling, and the report; without targets it must be unchanged."""
    assert b"".join(document.write({})) == document.data
    targets, report = fill(document, translate, settings)
    assert report.segments == len(document.segments)
    return b"".join(document.write(targets)), report


def masked(data: bytes, codec: str, *patterns: str) -> str:
    """Return a file as text without the matches of some patterns."""
    text = data.decode(codec)
    for pattern in patterns:
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    return text


def parse(data: bytes) -> ElementTree.Element:
    """Parse a file with the parser of the standard library."""
    return ElementTree.fromstring(data)


def local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def find_all(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if local(element) == name]


def content(element: ElementTree.Element | None) -> str:
    """Return the text and tags of an element, without namespaces."""
    if element is None:
        return ""
    inside = ElementTree.tostring(element, encoding="unicode", short_empty_elements=True)
    inside = re.sub(r" xmlns(:\w+)?=\"[^\"]*\"|(?<=[</])\w+:", "", inside)
    inside = re.sub(r"\A<[^>]*>", "", inside)
    return re.sub(rf"</{local(element)}>\s*\Z", "", inside)
