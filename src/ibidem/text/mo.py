"""MO: the compiled catalogue of gettext."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.catalogue import Message, read_catalogue
from ibidem.text.limits import BLOCK_BYTES, MAX_MO_SHARING, MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.language import Languages
    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Stream

RECODE = "Convert it first: msgunfmt OLD.mo | msgconv -t UTF-8 -o NEW.po"

_MAGIC = 0x950412DE
_HEADER = 28


def read_mo(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of an MO catalogue; see `read_catalogue` for their direction and cleaning."""
    return read_catalogue(_read_messages(stream), name=stream.name, languages=languages, recode=RECODE)


def _read_messages(stream: Stream) -> Iterator[Message]:
    """Yield every entry with its number, from 1; the first one is usually the header.

    Both byte orders and every minor revision of format 0 are supported, except for the few strings that depend on the
    system (`%<PRIx64>`), which are stored separately. All offsets are checked against the file, and the lengths of all
    strings against its size, since many entries could share one long string.
    """
    data, order = _read_whole(stream)
    revision, count, originals, translations = struct.unpack_from(f"{order}4I", data, 4)
    if revision >> 16:
        raise TextError(
            f"{stream.name}: MO format {revision >> 16} is not supported, only format 0. "
            "Convert it first: msgunfmt OLD.mo -o NEW.po"
        )
    for table in (originals, translations):
        if table + 8 * count > len(data):
            raise _damaged(stream.name, f"a table of {count:,} strings does not fit in {len(data):,} bytes")
    used = 0
    for index in range(count):
        stream.check()
        key = _string(data, order, originals, index, stream.name)
        context, separator, rest = key.partition("\x04")
        original, *plurals = (rest if separator else key).split("\0")
        forms = _string(data, order, translations, index, stream.name)
        used += len(key) + len(forms)
        if used > MAX_MO_SHARING * len(data):
            raise _damaged(
                stream.name,
                f"the strings up to entry {index + 1:,} add up to {MAX_MO_SHARING} times the size of the file",
            )
        yield Message(
            original=original,
            plural=plurals[0] if plurals else None,
            translations=tuple(forms.split("\0")) if plurals else (forms,),
            context=context if separator else None,
            location=index + 1,
        )


def _read_whole(stream: Stream) -> tuple[bytearray, str]:
    """Return the file, which is read whole since its strings may be in any order, and its byte order."""
    data = bytearray()
    order = ""
    while block := stream.read(BLOCK_BYTES):
        data += block
        order = order or _byte_order(data, stream.name)
        if len(data) > stream.limits.whole_bytes:
            raise _damaged(stream.name, f"it is larger than {stream.limits.whole_bytes:,} bytes")
    return data, order or _byte_order(data, stream.name)


def _byte_order(data: bytearray, name: str) -> str:
    if len(data) >= _HEADER:
        for order in "<>":
            if struct.unpack_from(f"{order}I", data)[0] == _MAGIC:
                return order
    raise _damaged(name, "its first bytes are not those of an MO file")


def _string(data: bytearray, order: str, table: int, index: int, name: str) -> str:
    length, start = struct.unpack_from(f"{order}2I", data, table + 8 * index)
    if start + length > len(data) or length > MAX_TEXT:
        raise _damaged(name, f"entry {index + 1} is beyond its end, or is longer than {MAX_TEXT:,} bytes")
    try:
        return data[start : start + length].decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{name}, entry {index + 1}: byte 0x{data[start + error.start]:02X} is not UTF-8. {RECODE}"
        ) from error


def _damaged(name: str, what: str) -> TextError:
    return TextError(
        f"{name}: not an MO catalogue, or a damaged one: {what}. Compile it again with msgfmt, or give the .po file."
    )
