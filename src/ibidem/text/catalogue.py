"""Gettext catalogues: the messages of PO and MO as pairs in the user's direction, and the reader of MO.

User interface markup is removed from both sides: accelerators (`&File`) and the context that KDE once wrote into the
message (`_: context` on a line of its own).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ibidem.errors import TextError
from ibidem.text.inline.accelerators import remove_accelerators
from ibidem.text.language import Languages, infer_language
from ibidem.text.pair import Dropped, Unit, join_lines
from ibidem.text.stream import BLOCK_BYTES, MAX_MO_SHARING, MAX_TEXT
from ibidem.wording import describe_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ibidem.text.pair import ReadResult
    from ibidem.text.stream import Stream


# A template still has the placeholder "CHARSET"; its bytes must be UTF-8 like all others.
_CHARSETS = frozenset({"utf-8", "utf8", "ascii", "us-ascii", "ansi_x3.4-1968", "charset"})
_CHARSET = re.compile(r"^content-type:.*?charset=([^\s;]+)", re.IGNORECASE | re.MULTILINE)
_LANGUAGE = re.compile(r"^language:[ \t]*([A-Za-z][^\s]*)", re.IGNORECASE | re.MULTILINE)
_KDE_CONTEXT = re.compile(r"\A_:[^\n]*\n")
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a catalogue.

    Attributes:
        original: The text to translate (msgid).
        translations: The translated forms (msgstr), one unless there is a plural.
        location: The line of the msgid in PO, the number of the entry in MO.
        plural: The plural of the original (msgid_plural).
        context: The context (msgctxt).
        fuzzy: Whether the translation is marked as doubtful.
        obsolete: Whether the entry is no longer used.
    """

    original: str
    translations: tuple[str, ...]
    location: int
    plural: str | None = None
    context: str | None = None
    fuzzy: bool = False
    obsolete: bool = False

    @property
    def is_header(self) -> bool:
        """Whether this is the entry without an original that describes the catalogue."""
        return not self.original and self.context is None and not self.obsolete

    def forms(self) -> Iterator[tuple[str, str]]:
        """Yield the original with the first form, and the plural, if there is one, with the last form."""
        yield self.original, self.translations[0]
        if self.plural is not None:
            yield self.plural, self.translations[-1]


def read_catalogue(
    messages: Iterable[Message], *, name: str, languages: Languages, recode: str
) -> Iterator[ReadResult]:
    """Yield the pairs of a catalogue, one for each form of each message.

    The originals are assumed to be in that one of the two languages that the catalogue does not translate into.

    Args:
        messages: The entries of the catalogue.
        name: The name of the file, for messages.
        languages: The two languages of the corpus.
        recode: The advice for a catalogue that is not in UTF-8.

    Raises:
        TextError: If the catalogue is in another encoding, or its language is unknown.
    """
    declared: str | None = None
    language: str | None = None
    for message in messages:
        if message.is_header:
            header = message.translations[0]
            check_charset(header, name, recode)
            declared = find_language(header) or declared
            continue
        if language is None:
            language = _choose_language(name, declared, languages)
        for original, translation in message.forms():
            if reason := _reason_to_drop(message, translation):
                yield Dropped(reason)
                continue
            original, translation = clean(original, translation)
            if join_lines(original) == join_lines(translation):
                yield Dropped("identical")
            elif language == languages.source:
                yield Unit(translation, original, message.location)
            else:
                yield Unit(original, translation, message.location)


def clean(original: str, translation: str) -> tuple[str, str]:
    """Remove accelerators and KDE contexts from both sides of a message.

    Args:
        original: The msgid.
        translation: The msgstr.

    Returns:
        Both sides. Each accelerator is removed only if the other side has the same marker.
    """
    return remove_accelerators(remove_context(original), remove_context(translation))


def remove_context(text: str) -> str:
    r"""Remove the first line of a message if it is a KDE context.

    Args:
        text: The msgid or msgstr.

    Examples:
        >>> remove_context("_: verb\nOpen")
        'Open'
    """
    return _KDE_CONTEXT.sub("", text)


def check_charset(header: str, name: str, recode: str) -> str | None:
    """Check the encoding that a header declares.

    Args:
        header: The msgstr of the header, one field a line.
        name: The name of the file, for the message.
        recode: The advice for a catalogue that is not in UTF-8.

    Returns:
        The encoding in lower case, None if the header declares none.

    Raises:
        TextError: If it is neither UTF-8 nor a part of it.
    """
    match = _CHARSET.search(header)
    if match and match[1].lower() not in _CHARSETS:
        raise TextError(f"{name}: the catalogue is in {match[1][:_MAX_SHOWN]}, not in UTF-8. {recode}")
    return match[1].lower() if match else None


def find_language(header: str) -> str | None:
    """Return the language of the translations that a header declares.

    Args:
        header: The msgstr of the header, one field a line.

    Returns:
        The tag as it is written, None if the field `Language` is missing or empty.
    """
    match = _LANGUAGE.search(header)
    return match[1] if match else None


def _reason_to_drop(message: Message, translation: str) -> str | None:
    if message.obsolete:
        return "obsolete"
    if message.fuzzy:
        return "fuzzy"
    return None if translation else "untranslated"


def _choose_language(name: str, declared: str | None, languages: Languages) -> str:
    if languages.catalogue is not None:
        return languages.catalogue
    if declared is None:
        known, what = infer_language(name, languages), "neither its header nor its path names its language"
    else:
        known, what = languages.match(declared), f"its language is {declared[:_MAX_SHOWN]!r}"
    if known is None:
        raise TextError(
            f"{name}: {what}, and one of {languages.source!r} and {languages.target!r} is needed. State the language "
            f"of the msgstr entries, for instance: {describe_option('--catalogue-language', languages.source)}"
        )
    return known


_RECODE_MO = "Convert it first: msgunfmt OLD.mo | msgconv -t UTF-8 -o NEW.po"

_MAGIC = 0x950412DE
_HEADER = 28


def read_mo(stream: Stream, languages: Languages) -> Iterator[ReadResult]:
    """Yield the pairs of an MO catalogue; see `read_catalogue` for their direction and cleaning.

    Args:
        stream: The opened file, which is read whole.
        languages: The two languages of the corpus.

    Raises:
        TextError: If the file is damaged, too large or not in UTF-8, or its language is unknown.
    """
    return read_catalogue(_read_messages(stream), name=stream.name, languages=languages, recode=_RECODE_MO)


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
            f"{name}, entry {index + 1}: byte 0x{data[start + error.start]:02X} is not UTF-8. {_RECODE_MO}"
        ) from error


def _damaged(name: str, what: str) -> TextError:
    return TextError(
        f"{name}: not an MO catalogue, or a damaged one: {what}. Compile it again with msgfmt, or give the .po file."
    )
