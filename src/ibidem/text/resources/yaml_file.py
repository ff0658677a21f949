"""YAML files of translations, such as those of Rails: every string value is a text.

The language at the top of a Rails file (`de:`) becomes the target language.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from ibidem.errors import TextError
from ibidem.text.document import Edit
from ibidem.text.inline import plain_text
from ibidem.text.language import primary_language
from ibidem.text.replacement import ReplacementBuilder, TextFile
from ibidem.text.stream import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces
    from ibidem.text.language import Languages

MAX_YAML_BYTES = 2**22
"""The largest YAML file, in bytes; the parser is slow."""

_SAFE_PLAIN = re.compile(
    r"(?!(?:true|false|yes|no|on|off|null|~)\Z)[^\W\d_](?:[^:#\n\\{}\[\],&*!|>'\"%@`]|:(?=\S)|#(?<=\S#))*\Z", re.I
)

_RESOLVER: Any = yaml.SafeLoader("")


def read_yaml_document(data: bytes, name: str, languages: Languages) -> Document:
    """Read a YAML file as a document whose string values are replaced by their translations.

    Values with anchors and tags stay as they are, and so do references to anchors.

    Args:
        data: The file, in UTF-8, or UTF-16 with a byte order mark.
        name: Its name, for messages.
        languages: The two languages; a key at the top that names the source becomes the target.

    Raises:
        TextError: If the file is not valid YAML, too large or nested too deeply.
    """
    if len(data) > MAX_YAML_BYTES:
        raise TextError(f"{name}: larger than {MAX_YAML_BYTES:,} bytes. Divide it into several files.")
    file, builder = TextFile(data, name), ReplacementBuilder(name=name)
    root: tuple[int, int] | None = None
    for event, path, is_key in _read_scalars(file):
        start, end = event.start_mark.index, event.end_mark.index
        if is_key:
            if len(path) == 1 and primary_language(event.value) == languages.source and len(event.value) <= 5:
                root = file.span(start, end)
            continue
        if event.anchor is not None or event.tag is not None or not _is_string(event):
            continue
        encode = _encoder(file, event)
        line = file.line_of(start)
        builder.replace(
            data, file.span(start, end), (event.value,), line, encode, accelerators=True, context=".".join(path)
        )
    if root is not None and builder.segments:
        numbers = tuple(segment.number for segment in builder.segments)
        builder.edits.append(Edit(*root, numbers, (file.encode(languages.target),)))
    return builder.build_replaced(name, "YAML", data)


def _read_scalars(file: TextFile) -> Iterator[tuple[Any, list[str], bool]]:
    """Yield the scalars, the keys that lead to each, and whether it is a key itself."""
    path: list[str] = []
    # For each open collection: None for a list, else whether a key comes next.
    stack: list[bool | None] = []
    try:
        for event in yaml.parse(file.text, Loader=yaml.SafeLoader):
            is_key = bool(stack) and stack[-1] is True
            if isinstance(event, yaml.CollectionStartEvent):
                if len(stack) == MAX_DEPTH:
                    line = event.start_mark.line + 1 if event.start_mark else 1
                    raise TextError(f"{file.name}, line {line}: more than {MAX_DEPTH} levels. Check the file.")
                stack.append(True if isinstance(event, yaml.MappingStartEvent) else None)
                path.append("")
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                path.pop()
            elif isinstance(event, yaml.ScalarEvent):
                if is_key:
                    path[-1] = event.value
                yield event, path, is_key
            elif not isinstance(event, yaml.AliasEvent):
                continue
            if stack and stack[-1] is not None:
                stack[-1] = not stack[-1]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or "an invalid character"
        raise TextError(f"{file.name}, line {line}: not valid YAML ({problem}). Correct this line.") from error
    except RecursionError as error:
        raise TextError(f"{file.name}: nested too deeply. Check the file.") from error


def _is_string(event: Any) -> bool:
    """Return whether a scalar is a string; a plain one may be a number or a truth value."""
    if event.style is not None:
        return True
    return bool(_RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit) == "tag:yaml.org,2002:str")


def _encoder(file: TextFile, event: Any) -> Callable[[Pieces], bytes]:
    """Return a function that writes a text in the style of a scalar, or else in double quotes."""
    style = event.style
    start, end = event.start_mark.index, event.end_mark.index
    written = file.text[start:end]

    def encode(pieces: Pieces) -> bytes:
        text = plain_text(pieces)
        if style == "'" and "\n" not in text:
            return file.encode("'" + text.replace("'", "''") + "'")
        if style == "|" and (block := _write_block(text, written, file.newline)):
            return file.encode(block)
        if style is None and _SAFE_PLAIN.match(text) and text == text.strip():
            return file.encode(text)
        quoted = json.dumps(text, ensure_ascii=False)
        if style in ("|", ">"):
            trailing = written[len(written.rstrip()) :]
            return file.encode(quoted + (trailing or file.newline))
        return file.encode(quoted)

    return encode


def _write_block(text: str, written: str, newline: str) -> str | None:
    """Write a literal block with the header and the indentation of the old one, None if that is not possible."""
    header, _, body = written.replace("\r\n", "\n").partition("\n")
    first = next((line for line in body.split("\n") if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" "))]
    lines = text.rstrip("\n").split("\n")
    if not indent or not lines or lines[0].startswith(" ") or any(line != line.rstrip() for line in lines):
        return None
    trailing = body[len(body.rstrip()) :]
    return newline.join([header, *(f"{indent}{line}" if line else "" for line in lines)]) + trailing.replace(
        "\n", newline
    )
