"""MO, gettext's compiled catalogue."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.catalogue import Message, read_catalogue
from ibidem.text.stream import LONGEST, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibidem.text.language import Languages
    from ibidem.text.pair import Found

LARGEST = 2**28
"""The largest catalogue, in bytes: it is read whole, since its strings may lie in any order."""

RECODE = "Convert it first: msgunfmt OLD.mo | msgconv -t UTF-8 -o NEW.po"

_MAGIC = 0x950412DE
_HEADER = 28


def read_mo(stream: Stream, languages: Languages) -> Iterator[Found]:
    """Yield the pairs of an MO catalogue; see `read_catalogue` for their direction and cleaning."""
    return read_catalogue(read_messages(stream), name=stream.name, languages=languages, recode=RECODE)


def read_messages(stream: Stream) -> Iterator[Message]:
    """Yield every entry with its number, from 1; the first one is usually the header.

    Both byte orders and every minor revision of format 0 are read, without the few strings that depend on the
    system (`%<PRIx64>`), which lie apart. All offsets are checked against the file.
    """
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise _damaged(stream.name, f"it is larger than {LARGEST:,} bytes")
    order = _byte_order(data, stream.name)
    revision, count, originals, translations = struct.unpack_from(f"{order}4I", data, 4)
    if revision >> 16:
        raise TextError(
            f"{stream.name}: MO format {revision >> 16} is not known, only format 0. "
            "Convert it first: msgunfmt OLD.mo -o NEW.po"
        )
    for table in (originals, translations):
        if table + 8 * count > len(data):
            raise _damaged(stream.name, f"a table of {count:,} strings does not fit in {len(data):,} bytes")
    for index in range(count):
        key = _string(data, order, originals, index, stream.name)
        context, separator, rest = key.partition("\x04")
        original, *plurals = (rest if separator else key).split("\0")
        forms = _string(data, order, translations, index, stream.name)
        yield Message(
            original=original,
            plural=plurals[0] if plurals else None,
            translations=tuple(forms.split("\0")) if plurals else (forms,),
            context=context if separator else None,
            location=index + 1,
        )


def _byte_order(data: bytes, name: str) -> str:
    if len(data) >= _HEADER:
        for order in "<>":
            if struct.unpack_from(f"{order}I", data)[0] == _MAGIC:
                return order
    raise _damaged(name, "it does not begin as one")


def _string(data: bytes, order: str, table: int, index: int, name: str) -> str:
    length, start = struct.unpack_from(f"{order}2I", data, table + 8 * index)
    if start + length > len(data) or length > LONGEST:
        raise _damaged(name, f"entry {index + 1} lies beyond its end, or is longer than {LONGEST:,} bytes")
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
