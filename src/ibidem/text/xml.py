"""Text in XML, and what is wrong with an XML file, in words."""

from __future__ import annotations

import re
from xml.parsers import expat

from ibidem.errors import TextError
from ibidem.text.stream import bad_byte

ORIGIN, LOCATION = "x-ibidem-origin", "x-ibidem-location"
"""The types of the `<prop>` that say, in a TMX file of ours, where a pair once came from."""

UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""The characters that XML 1.0 cannot hold, not even as references."""

_INVALID_TOKEN = expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]


def malformed(name: str, parser: expat.XMLParserType, error: Exception, block: bytes, fed: int) -> TextError:
    """Describe what expat refused in a block of the file, before which it was fed so many bytes."""
    if not isinstance(error, expat.ExpatError):
        return TextError(f"{name}, line 1: {error}. Convert the file to UTF-8 and declare that encoding.")
    position = parser.ErrorByteIndex - fed
    if error.code == _INVALID_TOKEN and 0 <= position < len(block):
        # expat reports a byte that is not UTF-8 like any other misplaced one.
        try:
            block[position : position + 4].decode("utf-8")
        except UnicodeDecodeError as undecoded:
            if undecoded.start == 0:
                return bad_byte(name, error.lineno, block[position])
    return TextError(
        f"{name}, line {error.lineno}: not well-formed XML ({expat.ErrorString(error.code)}). "
        "Repair the file or export it again; `xmllint --noout FILE` shows the place."
    )


def refused_entity(name: str, line: int, entity: str) -> TextError:
    """Describe an entity, declared or used, that is none of the five of XML."""
    return TextError(
        f"{name}, line {line}: the entity {entity!r} is refused, because "
        "entities can open other files or fill the memory. Put its text in its place and remove its "
        "declaration."
    )


def escape(text: str, newline: str = "\n") -> str:
    """Text as it stands in an element; raises ValueError for characters that XML cannot hold."""
    if unfit := UNFIT.search(text):
        raise ValueError(f"XML cannot hold the character U+{ord(unfit[0]):04X}")
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    return escaped.replace("\n", newline)
