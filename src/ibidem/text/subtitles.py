"""Subtitles: SRT and WebVTT. The lines of a subtitle are translated as one text and broken again.

Positions (`{\\an8}`) at the beginning stay, and so do the dashes of a dialogue, whose lines are translated one by one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.inline import Code, Role, plain_text
from ibidem.text.replacement import ReplacementBuilder, TextFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ibidem.text.document import Document
    from ibidem.text.inline import Pieces

_TIMING = re.compile(r"\s*(?:[0-9]+:)?[0-9]{1,2}:[0-9]{1,2}[.,][0-9]{1,3}\s*-->")
_CODE = re.compile(r"<[^<>\n]*>|\{[^{}\n]*\}")
_NAME = re.compile(r"</?([A-Za-z]+)")
_POSITIONS = re.compile(r"\s*(?:\{[^{}\n]*\}\s*)*")
_SPEAKER = re.compile(rf"{_POSITIONS.pattern}[-–—]\s*(?=\S)")
_SKIPPED = ("NOTE", "STYLE", "REGION")
_MARKUP = str.maketrans({"<": "&lt;", "&": "&amp;"})


def read_subtitle_document(data: bytes, name: str) -> Document:
    """Read a file of subtitles as a document whose texts are replaced by their translations.

    Args:
        data: The file, in UTF-8, or UTF-16 with a byte order mark.
        name: Its name, for messages.

    Raises:
        TextError: If the file has no subtitles, or is not in UTF-8.
    """
    file = TextFile(data, name)
    is_vtt = file.text.startswith("WEBVTT")
    builder = ReplacementBuilder(name=name)
    cues = 0
    for lines in _find_cues(file.text):
        cues += 1
        dialogue = len(lines) > 1 and all(_SPEAKER.match(one) for _, one in lines)
        for part in [[line] for line in lines] if dialogue else [lines]:
            found = (_SPEAKER if dialogue else _POSITIONS).match(part[0][1])
            lead = found.end() if found else 0
            start, end = part[0][0] + lead, part[-1][0] + len(part[-1][1])
            texts = part[0][1][lead:], *(text for _, text in part[1:])
            source = " ".join(text.strip() for text in texts).strip()
            encode = _encoder(file, len(part), is_vtt)
            builder.replace(data, file.span(start, end), _read_codes(source), file.line_of(start), encode)
    if not cues and file.text.strip():
        raise TextError(f"{name}: no line with the time of a subtitle (00:00:01,000 --> 00:00:02,000). Check the file.")
    return builder.build_replaced(name, "WebVTT" if is_vtt else "SRT", data)


def _find_cues(text: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of the text of each subtitle, each with its place.

    Where no blank line ends a subtitle, the next one begins with its number or its time.
    """
    place = 0
    timed = skipped = False
    lines: list[tuple[int, str]] = []
    for raw in [*text.split("\n"), ""]:
        line = raw.removesuffix("\r")
        if not line.strip():
            if lines and not skipped:
                yield lines
            timed = skipped = False
            lines = []
        elif _TIMING.match(line):
            if lines and lines[-1][1].strip().isdecimal():
                lines.pop()
            if lines and not skipped:
                yield lines
            timed = True
            lines = []
        elif timed:
            lines.append((place, line))
        elif line.startswith(_SKIPPED):
            skipped = True
        place += len(raw) + 1


def _read_codes(text: str) -> Pieces:
    """Return the text with its tags, positions and times as codes."""
    pieces: list[str | Code] = []
    opened: dict[str, list[int]] = {}
    last = 0
    for number, found in enumerate(_CODE.finditer(text)):
        pieces.append(text[last : found.start()])
        last = found.end()
        name = _NAME.match(found[0])
        if name and not found[0].startswith("</"):
            opened.setdefault(name[1], []).append(len(pieces))
        elif name and opened.get(name[1]):
            opening = opened[name[1]].pop()
            first = pieces[opening]
            pieces[opening] = Code(str(first.text if isinstance(first, Code) else first), Role.OPEN, f"tag {number}")
            pieces.append(Code(found[0], Role.CLOSE, f"tag {number}"))
            continue
        pieces.append(Code(found[0]))
    pieces.append(text[last:])
    return tuple(piece for piece in pieces if piece != "")


def _encoder(file: TextFile, count: int, is_vtt: bool) -> Callable[[Pieces], bytes]:
    def encode(pieces: Pieces) -> bytes:
        if "-->" in plain_text(pieces):
            raise ValueError("--> was added")
        written = "".join(piece.text if isinstance(piece, Code) else _escape(piece, is_vtt) for piece in pieces)
        return file.encode(file.newline.join(line for line in _break(written, count) if line))

    return encode


def _escape(text: str, is_vtt: bool) -> str:
    """Escape the characters of markup; references that the source has stay in the text."""
    return re.sub(r"&(?!#?\w+;)|<", lambda found: found[0].translate(_MARKUP), text) if is_vtt else text


def _break(text: str, count: int) -> list[str]:
    """Break a text into lines of similar length, without breaking a code."""
    words = re.findall(r"(?:<[^<>]*>|\{[^{}]*\}|\S)+", text)
    rest = sum(map(len, words)) + len(words)
    lines: list[str] = []
    end = 0
    for left in range(count, 0, -1):
        width = rest / left
        start, size = end, 0
        while end < len(words) and (left == 1 or end == start or size + len(words[end]) / 2 <= width):
            size += len(words[end]) + 1
            end += 1
        rest -= size
        lines.append(" ".join(words[start:end]))
    return lines
