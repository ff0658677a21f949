"""Gettext catalogues: pairs in the user's direction, and the MO format."""

from __future__ import annotations

import gettext
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair
from ibidem.text.catalogue import remove_context
from ibidem.text.stream import ReadLimits

from .conftest import Write, sides

if TYPE_CHECKING:
    from collections.abc import Mapping


ENTRY = '\nmsgid "house"\nmsgstr "Haus"\n'


def header(*lines: str) -> str:
    return 'msgid ""\nmsgstr ""\n' + "".join(f'"{line}\\n"\n' for line in lines)


def test_the_translations_are_the_source_if_the_catalogue_is_in_the_source_language(write: Write) -> None:
    path = write("x.po", header("Language: de_DE") + ENTRY)
    assert sides(Corpus([path])) == [("Haus", "house")]
    assert sides(Corpus([path], source_language="en", target_language="de")) == [("house", "Haus")]


def test_the_path_names_the_language_if_the_header_does_not(write: Write) -> None:
    assert sides(Corpus([write("x.de.po", ENTRY)])) == [("Haus", "house")]
    assert sides(Corpus([write("en.po", header("Language: ") + ENTRY)])) == [("house", "Haus")]
    assert sides(Corpus([write("de/LC_MESSAGES/x.po.gz", header("Language-Team: fr") + ENTRY)])) == [("Haus", "house")]


def test_the_option_precedes_the_header_and_the_header_the_path(write: Write) -> None:
    path = write("en.po", header("Language: de") + ENTRY)
    assert sides(Corpus([path])) == [("Haus", "house")]
    assert sides(Corpus([path], catalogue_language="en-GB")) == [("house", "Haus")]


def test_an_unknown_language_is_refused_with_a_remedy(write: Write) -> None:
    path = write("messages.po", ENTRY)
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}: neither its header nor its path names its language")
    assert "--catalogue-language de" in str(error.value)
    assert sides(Corpus([path], catalogue_language="de")) == [("Haus", "house")]


def test_a_catalogue_of_a_third_language_is_refused(write: Write) -> None:
    path = write("de.po", header("Language: fr") + ENTRY)
    with pytest.raises(TextError, match=r"de.po: its language is 'fr', and one of 'de' and 'en' is needed"):
        list(Corpus([path]))


@pytest.mark.parametrize("charset", ["UTF-8", "utf8", "ASCII", "us-ascii", "CHARSET"])
def test_utf8_and_its_subsets_are_read(write: Write, charset: str) -> None:
    path = write("de.po", header(f"Content-Type: text/plain; charset={charset}") + ENTRY)
    assert sides(Corpus([path])) == [("Haus", "house")]


def test_another_charset_is_refused_with_a_remedy(write: Write) -> None:
    path = write("de.po", header("Content-Type: text/plain; charset=ISO-8859-1") + ENTRY)
    with pytest.raises(TextError, match=r"de.po: the catalogue is in ISO-8859-1, not in UTF-8. .*msgconv -t UTF-8"):
        list(Corpus([path]))


def plural(*forms: str) -> str:
    return '\nmsgid "one"\nmsgid_plural "many"\n' + "".join(
        f'msgstr[{index}] "{form}"\n' for index, form in enumerate(forms)
    )


@pytest.mark.parametrize(
    ("forms", "pairs"),
    [
        (("eins", "viele"), [("eins", "one"), ("viele", "many")]),
        (("eins", "wenige", "viele"), [("eins", "one"), ("viele", "many")]),
        (("alle",), [("alle", "one"), ("alle", "many")]),
        (("eins", ""), [("eins", "one")]),
    ],
)
def test_plurals_give_the_first_and_the_last_form(
    write: Write, forms: tuple[str, ...], pairs: list[tuple[str, str]]
) -> None:
    assert sides(Corpus([write("de.po", plural(*forms))])) == pairs


def test_an_entry_with_a_context_and_no_original_is_not_a_header(write: Write) -> None:
    corpus = Corpus([write("de.po", '\nmsgctxt "c"\nmsgid ""\nmsgstr "Content-Type: charset=latin1"\n')])
    assert list(corpus) == []
    assert corpus.counts.dropped == {"empty target": 1}


def test_messages_are_cleaned_before_they_are_compared(write: Write) -> None:
    corpus = Corpus([write("de.po", '\nmsgid "&Name"\nmsgstr "N&ame"\n\nmsgid "_: noun\\n&Open"\nmsgstr "Öff&nung"\n')])
    assert sides(corpus) == [("Öffnung", "Open")]
    assert corpus.counts.dropped == {"identical": 1}


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("_: verb\nOpen", "Open"),
        ("_: a\nb\nc", "b\nc"),
        ("_: no newline", "_: no newline"),
        ("Open\n_: verb\n", "Open\n_: verb\n"),
        ("_n: one\nmany", "_n: one\nmany"),
    ],
)
def test_kde_contexts_are_removed(text: str, rest: str) -> None:
    assert remove_context(text) == rest


HEADER = "Language: de\nContent-Type: text/plain; charset=UTF-8\n"
ENTRIES = {
    "": HEADER,
    "house": "Haus",
    "verb\x04open": "öffnen",
    "%d file\0%d files": "%d Datei\0%d Dateien",
    "same": "same",
    "empty": "",
}


def compile_catalogue(entries: Mapping[str, str | bytes], order: str = "<", revision: int = 0) -> bytes:
    encoded = [(key.encode(), text if isinstance(text, bytes) else text.encode()) for key, text in entries.items()]
    texts = [key for key, _ in encoded] + [text for _, text in encoded]
    start = 28 + 8 * len(texts)
    table, body = b"", b""
    for text in texts:
        table += struct.pack(f"{order}2I", len(text), start + len(body))
        body += text + b"\0"
    count = len(encoded)
    return struct.pack(f"{order}7I", 0x950412DE, revision, count, 28, 28 + 8 * count, 0, 0) + table + body


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_entries_are_pairs(write: Write, order: str, ending: str) -> None:
    path = write(f"x.mo{ending}", compile_catalogue(ENTRIES, order))
    corpus = Corpus([path])
    assert list(corpus) == [
        Pair("Haus", "house", path, 2),
        Pair("öffnen", "open", path, 3),
        Pair("%d Datei", "%d file", path, 4),
        Pair("%d Dateien", "%d files", path, 4),
    ]
    assert corpus.counts.dropped == {"identical": 1, "untranslated": 1}


def test_the_test_writes_what_gettext_reads(write: Write) -> None:
    with Path(write("x.mo", compile_catalogue(ENTRIES, ">"))).open("rb") as file:
        assert gettext.GNUTranslations(file).gettext("house") == "Haus"


def test_minor_revisions_are_read_and_major_ones_refused(write: Write) -> None:
    assert sides(Corpus([write("x.mo", compile_catalogue({"": HEADER, "a": "b"}, revision=7))])) == [("b", "a")]
    path = write("y.mo", compile_catalogue({"": HEADER, "a": "b"}, revision=2 << 16))
    with pytest.raises(TextError, match=r"y.mo: MO format 2 is not supported, only format 0. .*msgunfmt"):
        list(Corpus([path]))


def test_a_count_that_does_not_fit_the_file_is_refused(write: Write) -> None:
    data = bytearray(compile_catalogue(ENTRIES))
    struct.pack_into("<I", data, 8, 0xFFFFFFFF)
    path = write("de.mo", bytes(data))
    with pytest.raises(
        TextError, match=r"de.mo: .*damaged.* a table of 4,294,967,295 strings does not fit in .*msgfmt"
    ):
        list(Corpus([path]))


def test_a_string_beyond_the_end_is_refused(write: Write) -> None:
    data = bytearray(compile_catalogue(ENTRIES))
    struct.pack_into("<I", data, 28 + 8, 0xFFFFFFF0)
    with pytest.raises(TextError, match=r"entry 2 is beyond its end"):
        list(Corpus([write("de.mo", bytes(data))]))


@pytest.mark.parametrize("data", [b"", b"\xde\x12\x04\x95", b"msgid" * 20])
def test_a_file_of_another_kind_is_refused(write: Write, data: bytes) -> None:
    with pytest.raises(TextError, match=r"de.mo: not an MO catalogue.* Compile it again with msgfmt"):
        list(Corpus([write("de.mo", data)]))


def test_a_bad_byte_is_named_with_its_entry(write: Write) -> None:
    path = write("de.mo", compile_catalogue({"": HEADER, "door": "Tür".encode("latin1")}))
    with pytest.raises(TextError, match=r"de.mo, entry 2: byte 0xFC is not UTF-8. .*msgunfmt .* msgconv -t UTF-8"):
        list(Corpus([path]))


def test_a_catalogue_too_large_to_read_whole_is_refused(write: Write) -> None:
    with pytest.raises(TextError, match=r"de.mo.xz: .* larger than 100 bytes"):
        list(Corpus([write("de.mo.xz", compile_catalogue(ENTRIES))], limits=ReadLimits(whole_bytes=100)))


@settings(deadline=None)
@given(
    place=st.integers(0, len(compile_catalogue(ENTRIES)) - 1),
    value=st.integers(0, 255),
    length=st.integers(0, len(compile_catalogue(ENTRIES))),
)
def test_damaged_files_give_pairs_or_a_text_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, length: int
) -> None:
    data = bytearray(compile_catalogue(ENTRIES))
    data[place] = value
    path = tmp_path_factory.getbasetemp() / "damaged-de.mo"
    path.write_bytes(data[:length])
    with suppress(TextError):
        list(Corpus([path]))
