"""PO as parallel text."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus, Pair
from ibidem.text.stream import MAX_TEXT

from .conftest import Write, sides

if TYPE_CHECKING:
    from pathlib import Path

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'

CATALOGUE = (
    HEADER
    + r"""
# A comment, and where it is from
#: main.c:12
#, c-format
msgid "house"
msgstr "Haus"

#, c-format, fuzzy
#| msgid "former"
msgid "fuzzy"
msgstr "unscharf"

msgctxt "verb"
msgid "open"
msgstr "öffnen"

msgid "same"
msgstr "same"

msgid "not yet"
msgstr ""

msgid ""
"several "
"lines\n"
msgstr "mehrere\n"
"Zeilen\n"

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid  "near"	"by"
msgstr"nahebei"
#~ msgid "old"
#~ msgstr ""
#~ "alt"

#, fuzzy
#~| msgid "older"
#~ msgid "very old"
#~ msgstr "uralt"
"""
)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_entries_are_pairs(write: Write, ending: str) -> None:
    path = write(f"x.po{ending}", CATALOGUE)
    corpus = Corpus([path])
    assert list(corpus) == [
        Pair("Haus", "house", path, 9),
        Pair("öffnen", "open", path, 18),
        Pair("mehrere Zeilen", "several lines", path, 27),
        Pair("%d Datei", "%d file", path, 34),
        Pair("%d Dateien", "%d files", path, 34),
        Pair("nahebei", "nearby", path, 39),
    ]
    assert corpus.counts.dropped == {"fuzzy": 1, "identical": 1, "untranslated": 1, "obsolete": 2}
    assert corpus.counts.read == 11


def test_windows_newlines_and_a_byte_order_mark_change_nothing(write: Write) -> None:
    plain = sides(Corpus([write("x.po", CATALOGUE)]))
    assert sides(Corpus([write("y.po", "\ufeff" + CATALOGUE.replace("\n", "\r\n"))])) == plain


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"a\\b\"c\'d\?e", "a\\b\"c'd?e"),
        (r"a\nb\tc", "a b c"),
        (r"a\a\b\f\r\vz", "a\a\b\f\r\vz"),
        (r"\101\x42\x0443", "ABC"),
        (r"T\303\274r", "Tür"),
        (r"T\xC3" + '"\n"' + r"\xBCr", "Tür"),
        (r"\\n", "\\n"),
        (r"\1234", "S4"),
    ],
)
def test_every_escape_of_gettext_is_read(write: Write, escaped: str, text: str) -> None:
    assert sides(Corpus([write("x.po", f'{HEADER}\nmsgid "k"\nmsgstr "{escaped}"\n')])) == [(text, "k")]


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="gettext is not installed")
def test_the_reader_agrees_with_gettext(write: Write, tmp_path: Path) -> None:
    path = write("x.po", CATALOGUE + '\nmsgid "k"\nmsgstr "\\a\\b\\f\\r\\v\\101\\x42\\\\T\\303\\274r\\"z"\n')
    compiled = tmp_path / "x.mo"
    subprocess.run(["msgfmt", "-o", compiled, path], check=True)
    assert sorted(sides(Corpus([compiled]))) == sorted(sides(Corpus([path])))


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('msgid "a"\nmsgstr "b\n', 2, "cannot be parsed at '\"b'. Write a keyword"),
        ('msgid "a"\nmsgstr "b" c\n', 2, "cannot be parsed at 'c'"),
        ('msgid "a"\nmsgstr b\n', 2, "cannot be parsed at 'msgstr b'"),
        ('msgid "a"\nmsgword "b"\n', 2, "cannot be parsed at 'msgword"),
        ('"a"\n', 1, "a string that belongs to no keyword. Write msgid"),
        ('\nmsgstr "a"\n', 2, "msgstr without msgid before it."),
        ('msgid_plural "a"\n', 1, "msgid_plural without msgid before it."),
        ('msgid "a"\nmsgid "b"\n', 2, "a second msgid in one entry."),
        ('msgid "a"\nmsgstr "b"\nmsgstr "c"\n', 3, "a second msgstr in one entry."),
        ('msgid "a"\nmsgctxt "c"\nmsgstr "b"\n', 2, "msgctxt in the wrong place. The order is"),
        ('msgid "a"\nmsgstr "b"\nmsgid_plural "c"\n', 3, "msgid_plural in the wrong place."),
        ('msgid "a"\nmsgstr[0] "b"\n', 2, "msgstr[0] does not fit: msgstr has an index"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', 3, "msgstr does not fit"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[1] "c"\n', 3, "msgstr[1] without msgstr[0] before it."),
        ('msgid[0] "a"\n', 1, "msgid[0] does not fit"),
        ('\n\nmsgid "a"\n\n', 3, "the file ends inside this entry, before its msgstr."),
        ('msgid "a\\q"\n', 1, "\\q is no escape of gettext. Write \\\\ for a backslash."),
        (
            'msgid "a"\nmsgstr "\\xff"\n\nmsgid "b"\nmsgstr "c"\n',
            1,
            "escapes in this entry do not give UTF-8",
        ),
    ],
)
def test_a_syntax_error_is_named_with_its_line(write: Write, text: str, line: int, what: str) -> None:
    path = write("de.po", text)
    with pytest.raises(TextError) as error:
        list(Corpus([path]))
    assert str(error.value).startswith(f"{path}, line {line}: {what}")


def test_an_invalid_byte_is_refused_with_a_remedy(write: Write) -> None:
    path = write("de.po", "# Müller\n".encode("latin1"))
    with pytest.raises(TextError, match=r"de.po, line 1: byte 0xFC is not UTF-8. Convert it first: msgconv -t UTF-8"):
        list(Corpus([path]))


def test_an_entry_without_end_is_refused(write: Write) -> None:
    path = write("de.po.gz", 'msgid "a"\nmsgstr ""\n' + ('"' + "x" * 1000 + '"\n') * 1100)
    with pytest.raises(TextError, match=rf"line 1051: an entry longer than {MAX_TEXT:,} bytes"):
        list(Corpus([path]))


def test_an_unclosed_string_full_of_backslashes_fails_quickly(write: Write) -> None:
    path = write("de.po", 'msgid "' + "\\\\" * 400_000 + "\n")
    with pytest.raises(TextError, match="line 1: cannot be parsed"):
        list(Corpus([path]))
