"""What a program puts something else in place of, or reads as markup, inside a text: found by its look.

Texts come from anybody and may be long: every pattern is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAG = r"""</?[A-Za-z](?:[^<>"']|"[^"<]*"|'[^'<]*')*+>|<!--(?:[^-<]|-(?!->))*+-->"""
_BRACES = (
    r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}|\{\$[^{}\n]*\$\}"  # {{ user }}, {% tag %}, {$ user $}
    r"|[$#%@]?\{(?:[^{}\s]*|\s*[\w.]++\s*(?:[,:|!][^{}\n]*)?)\}"  # {0}, {name}, ${name}, {count, number}
)
_VARIABLE = r"\$\([^()\s]*\)|\$[A-Za-z_]\w*+(?:\$(?!\w))?|\$[0-9](?![0-9.,])"
_NAMED_PRINTF = (
    r"%\([^()\s]*\)[-+#0 ]*+[0-9]*+(?:\.[0-9]++)?[A-Za-z]"  # %(name)s
    r"|%-?[0-9]*+<(?!PRI)\w++>[A-Za-z]|%L[0-9]{1,2}"  # %<name>s, Qt's %L1
)
_PRINTF = (
    r"%{not}(?:[0-9]++\$)?[-+#0'{space}]*+(?:[0-9]++|\*(?:[0-9]++\$)?)?(?:\.(?:[0-9]++|\*(?:[0-9]++\$)?)?)?"
    r"(?:<PRI\w++>|(?:hh?|ll?|[Lqjzt])?[A-Za-z@%])"
)
_QT = r"%[0-9]{1,2}"
_ENTITY = r"&(?:#[0-9]++|#[xX][0-9a-fA-F]++|[A-Za-z][A-Za-z0-9]*+);"
# An entity inside an address is "&amp;", whole; one behind it is none of its own.
_ADDRESS = (
    r"""(?:https?|ftp|file)://(?:&amp;|(?!&#?\w++;)[^\s<>"'{}|\\^`])*(?!&#?\w++;)[\w/#=&]"""
    r"""|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"""
)
_ESCAPE = r"""\\[ntrabfv0"'\\]|\\[xu][0-9a-fA-F]{2,4}"""
_OPTION = r"(?<![\w-])--[A-Za-z][\w-]*+|(?<![\w-])-[A-Za-z](?![\w-])"
# The characters that stand for codes while a text is worked on, and those that no line of text has.
_ODD = r"[\U000F0000-\U0010FFFF\x00-\x08\x0e-\x1b\x1f\x7f]"


def _pattern(printf: str) -> re.Pattern[str]:
    parts = {
        "tag": _TAG,
        "other": "|".join((_BRACES, _VARIABLE, _NAMED_PRINTF)),
        "printf": printf,
        "rest": "|".join((_QT, _ENTITY, _ADDRESS, _ESCAPE, _OPTION, _ODD, "&&")),
    }
    return re.compile("|".join(f"(?P<{name}>{part})" for name, part in parts.items()))


# German writes "100%ige" and "5%-Hürde".
_PROSE = r"(?!ig(?:e[mnrs]?)?\b|(?<=[0-9]%)(?:-[A-Za-z]|\+))"

PLACEHOLDER = _pattern(_PRINTF.replace("{not}", _PROSE).replace("{space}", ""))
"""Placeholders of a text that may be of any kind: "100%ige" and "50% der" hold none."""

PRINTF_PLACEHOLDER = _pattern(_PRINTF.replace("{not}", "").replace("{space}", " "))
"""Placeholders of a text that is known to be a format string, where every `%` begins one."""

UNNUMBERED = re.compile(r"%[^(<{%$]*(?:[A-Za-z@]|<PRI\w+>)")
"""A printf placeholder that takes the next argument, so that its order must not change."""

ICU = re.compile(r"\{\s*\w++\s*,\s*(?:plural|select|selectordinal)\s*,")
"""The beginning of an ICU message with several texts inside."""

LINE_BREAKS = frozenset({"\\n", "\\r", "\\t"})
"""Line breaks and tabs that were left as escapes."""

VOID = frozenset({"br", "hr", "img", "wbr", "input", "link", "meta", "area", "col", "source", "embed"})
"""HTML's elements that are never closed."""

_WORD = re.compile(r"\w+")


def find_names(text: str) -> Iterator[re.Match[str]]:
    """Yield the words that are names of a program's, such as `file_name` and `__init__`."""
    for word in _WORD.finditer(text):
        if "_" in word[0] and ("_" in word[0].strip("_") or (word[0].startswith("__") and word[0].endswith("__"))):
            yield word
