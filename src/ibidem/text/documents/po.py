"""PO: the msgstr of entries that have none yet, or whose flag says that it is doubtful.

New translations are flagged `fuzzy` unless told otherwise, as translators expect of a machine's: msgfmt leaves fuzzy
entries out until a person has looked at them. Headers, comments, former msgids and obsolete entries stay as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ibidem.text.catalogue import check_charset, find_language
from ibidem.text.cleaning import remove_context
from ibidem.text.documents.document import Claim, Document, Draft, Edit
from ibidem.text.documents.lines import newline_of, read_lines
from ibidem.text.documents.segment import State
from ibidem.text.inline import plain_text
from ibidem.text.po import RECODE, read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ibidem.text.documents.lines import Line
    from ibidem.text.documents.segment import Segment
    from ibidem.text.inline import Pieces
    from ibidem.text.po import Entry

_PRINTF = frozenset(
    f"{language}-format"
    for language in ("c", "objc", "python", "php", "perl", "tcl", "awk", "lua", "ruby", "gcc-internal", "gfc-internal")
)
_SOURCE_LANGUAGE = re.compile(r"^x-source-language:[ \t]*([A-Za-z]\S*)", re.IGNORECASE | re.MULTILINE)
_WIDTH = 79
_UNWRAPPED = 100
_ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        '"': '\\"',
        "\n": "\\n",
        "\t": "\\t",
        "\r": "\\r",
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\v": "\\v",
    }
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_CHUNK = re.compile(r"\S*\s*")


def read_po_document(data: bytes, name: str, *, mark_fuzzy: bool = True) -> Document:
    """Read a catalogue in UTF-8; entries of several forms have a segment for each.

    With `mark_fuzzy` an entry that is filled gets the flag `fuzzy`; without, it loses the flag.
    """
    lines = list(read_lines(data, name, RECODE))
    draft = Draft()
    charset: str | None = None
    for entry in read_entries(((line.number, line.text) for line in lines), name):
        if entry.message.is_header:
            header = entry.message.translations[0]
            charset = check_charset(header, name, RECODE)
            draft.claims += _claims(header, entry.line)
            continue
        numbers = list(_add(entry, draft, lines))
        if not entry.message.obsolete:
            draft.edits += _flag(entry, tuple(numbers), lines, newline_of(data), mark_fuzzy)
    return Document(
        name, "PO", data, draft.segments, draft.edits, _encoder(lines, newline_of(data), charset), draft.claims
    )


def _claims(header: str, line: int) -> Iterator[Claim]:
    if tag := find_language(header):
        yield Claim(True, tag, line)
    if match := _SOURCE_LANGUAGE.search(header):
        yield Claim(False, match[1], line)


def _add(entry: Entry, draft: Draft, lines: Sequence[Line]) -> Iterator[int]:
    """Add a segment for each form of an entry: the first is that of the msgid, the others of the msgid_plural."""
    message = entry.message
    flags = entry.comments.names()
    for form, existing in enumerate(message.translations):
        singular = message.plural is None or (form == 0 and len(message.translations) > 1)
        source = message.original if singular else message.plural or ""
        locked = "obsolete" if message.obsolete else "" if source.strip() else "an empty source"
        state = State.FUZZY if message.fuzzy else State.FILLED
        number = draft.add(
            source=(remove_context(source),),
            location=message.location,
            target=existing,
            state=State.LOCKED if locked else state if existing.strip() else State.EMPTY,
            locked=locked,
            context=message.context,
            notes=tuple(entry.comments.notes),
            printf=any(flag in _PRINTF for flag in flags),
        )
        span = entry.fields["msgstr" if message.plural is None else f"msgstr[{form}]"]
        start, end = lines[span.line - 1].place(span.column), lines[span.last_line - 1].place(span.end)
        if not locked:
            draft.edits.append(Edit(start, end, (number,), (number,)))
        yield number


def _flag(
    entry: Entry, numbers: tuple[int, ...], lines: Sequence[Line], newline: bytes, mark_fuzzy: bool
) -> Iterator[Edit]:
    """Set or remove the flag of an entry, as gettext writes it."""
    flags = entry.comments.flags
    if mark_fuzzy and not entry.message.fuzzy:
        if number := next((number for number, text in flags.items() if text.startswith("#,")), None):
            place = lines[number - 1].place(lines[number - 1].text.index("#,") + 2)
            yield Edit(place, place, numbers, (b" fuzzy,",))
        else:
            place = lines[(entry.comments.former or entry.line) - 1].start
            yield Edit(place, place, numbers, (b"#, fuzzy" + newline,))
    elif not mark_fuzzy and entry.message.fuzzy:
        for number, text in flags.items():
            names = [name for name in text[2:].replace(",", " ").split() if name != "fuzzy"]
            line = lines[number - 1]
            if names:
                kept = f"{text[:2]} {', '.join(names)}".encode()
                yield Edit(line.start, line.end, numbers, (kept,), whole=True)
            else:
                yield Edit(line.start, lines[number].start, numbers, (b"",), whole=True)


def _encoder(lines: Sequence[Line], newline: bytes, charset: str | None) -> Callable[[Segment, Pieces], bytes]:
    """Strings in quotes, broken into lines as the rest of the file is: at 79 columns, unless it has long lines."""
    strings = (line.text for line in lines if line.text.startswith(('"', "msg")))
    width = None if any(len(text) > _UNWRAPPED and " " in text[12:-12] for text in strings) else _WIDTH

    def encode(_: Segment, pieces: Pieces) -> bytes:
        text = plain_text(pieces)
        if charset not in (None, "utf-8", "utf8") and not text.isascii():
            raise ValueError(f"the catalogue is in {charset}, which has no such characters: make it UTF-8")
        return quote(text, newline.decode(), width).encode("utf-8")

    return encode


def quote(text: str, newline: str, width: int | None) -> str:
    """A text in quotes: on one line if it fits, else from the next line on, broken at line ends and spaces."""
    whole = text.translate(_ESCAPES)
    keyword = len('msgstr[0] ""')
    if "\n" not in text[:-1] and (width is None or len(whole) + keyword <= width):
        return f'"{whole}"'
    lines = [part for line in _LINE.findall(text) for part in (_wrap(line, width) if width is not None else [line])]
    return newline.join(['""', *(f'"{line.translate(_ESCAPES)}"' for line in lines)])


def _wrap(line: str, width: int) -> Iterator[str]:
    part = ""
    for chunk in _CHUNK.findall(line):
        if part and len((part + chunk).translate(_ESCAPES).rstrip(" ")) + 2 > width:
            yield part
            part = ""
        part += chunk
    if part:
        yield part
