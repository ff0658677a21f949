"""PO as a document: missing translations are filled, and every other byte stays."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text import Corpus
from ibidem.text.document import FillSettings, State
from ibidem.text.po import quote, read_po_document

from .samples import filled
from .translators import backwards, return_empty

if TYPE_CHECKING:
    from pathlib import Path

HEADER = r"""# Kopf
#, fuzzy
msgid ""
msgstr ""
"Language: en\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"""

CATALOGUE = (
    HEADER
    + r"""
# Anmerkung des Übersetzers
#. für den Übersetzer
#: main.c:12
#, c-format
#| msgid "früher"
msgid "Datei %s fehlt"
msgstr ""

msgctxt "Verb"
msgid ""
"erste "
"zweite\n"
msgstr ""
""

#, fuzzy, no-wrap
msgid "unscharf hier"
msgstr "blurred"

  msgid "eingerückt hier"
  msgstr   ""  

#, python-format
msgid "%d Datei da"
msgid_plural "%d Dateien da"
msgstr[0] "one file"
msgstr[1] ""

msgid "fertig ist"
msgstr "done"
#~ msgid "alt"
#~ msgstr ""
"""  # noqa: W291
)


def translate(text: str, how=backwards, fill_settings: FillSettings | None = None, **options: bool):
    found, report = filled(read_po_document(text.encode(), "a.po", **options), how, fill_settings)
    return found.decode(), report


def test_untranslated_entries_are_filled_and_flagged() -> None:
    found, report = translate(CATALOGUE)
    expected = (
        CATALOGUE.replace("#, c-format\n", "#, fuzzy, c-format\n")
        .replace('fehlt"\nmsgstr ""', 'fehlt"\nmsgstr "fehlt %s Datei"')
        .replace('msgctxt "Verb"', '#, fuzzy\nmsgctxt "Verb"')
        .replace('msgstr ""\n""\n', 'msgstr "zweite erste\\n"\n')
        .replace('  msgid "ein', '#, fuzzy\n  msgid "ein')
        .replace('msgstr   ""  ', 'msgstr   "hier eingerückt"  ')
        .replace("#, python-format", "#, fuzzy, python-format")
        .replace('msgstr[1] ""', 'msgstr[1] "da Dateien %d"')
    )
    assert found == expected
    assert (report.translated, report.kept) == (4, {"fuzzy": 1, "obsolete": 1, "translated already": 2})


def test_without_flags_and_with_fuzzy_entries() -> None:
    found, report = translate(CATALOGUE, fill_settings=FillSettings(fuzzy=True), mark_fuzzy=False)
    assert found.count("fuzzy") == 1  # the header's
    assert '#, no-wrap\nmsgid "unscharf hier"\nmsgstr "hier unscharf"' in found
    assert report.translated == 5
    alone = CATALOGUE.replace("#, fuzzy, no-wrap", "#, fuzzy")
    found, _ = translate(alone, fill_settings=FillSettings(fuzzy=True), mark_fuzzy=False)
    assert '\n\nmsgid "unscharf hier"\nmsgstr "hier unscharf"' in found
    found, _ = translate(CATALOGUE, fill_settings=FillSettings(fuzzy=True))
    assert '#, fuzzy, no-wrap\nmsgid "unscharf hier"\nmsgstr "hier unscharf"' in found
    found, report = translate(CATALOGUE, fill_settings=FillSettings(overwrite=True))
    assert report.kept == {"obsolete": 1}
    assert 'msgstr[0] "da Datei %d"' in found
    assert '#, fuzzy\nmsgid "fertig ist"\nmsgstr "ist fertig"' in found


def test_failures_leave_the_entry_unchanged() -> None:
    found, report = translate(CATALOGUE, return_empty)
    assert found == CATALOGUE
    assert (report.failed[0].line, report.failed[0].reason) == (14, "the translation is empty")
    # A flag is taken away only if every form was translated anew.
    plural = HEADER + '\n#, fuzzy\nmsgid "a b"\nmsgid_plural "c d"\nmsgstr[0] "x"\nmsgstr[1] "y"\n'
    half = lambda texts: [text if "a" in text else "" for text in texts]  # noqa: E731
    found, _ = translate(plural, half, FillSettings(fuzzy=True), mark_fuzzy=False)
    assert found == plural.replace('"x"', '"a b"')


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks_stay(newline: str, mark: str) -> None:
    long = "wort " * 30
    text = HEADER + f'\nmsgid ""\n"{long[:75]}"\n"{long[75:]}\\n"\nmsgstr ""\n'
    found, _ = translate(mark + text.replace("\n", newline))
    assert found.startswith(mark + "# Kopf" + newline)
    assert found.count("\n") == found.count(newline)
    assert f'msgstr ""{newline}"wort wort' in found
    assert max(map(len, found.split(newline))) <= 79
    assert found.endswith(f'wort \\n"{newline}')


def test_files_with_long_lines_are_not_wrapped() -> None:
    text = HEADER + f'\nmsgid "{"wort " * 40}"\nmsgstr ""\n'
    found, _ = translate(text)
    assert f'msgstr "{"wort " * 40}"\n' in found


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=200),
    st.sampled_from([None, 79, 20]),
)
def test_quoted_text_is_read_back(text: str, width: int | None) -> None:
    text = "".join(character for character in text if character.isprintable() or character in "\n\t\r\a\b\f\v")
    written = f'{HEADER}\nmsgid "a"\nmsgstr {quote(text, chr(10), width)}\n'
    [segment] = read_po_document(written.encode(), "a.po").segments
    assert segment.target == text


def test_segments_have_the_details_of_the_catalogue() -> None:
    first, second, *_ = read_po_document(CATALOGUE.encode(), "a.po").segments
    assert first.notes == ("Anmerkung des Übersetzers", "für den Übersetzer")
    assert (first.printf, first.state, first.location) == (True, State.EMPTY, 14)
    assert (second.context, second.source, second.printf) == ("Verb", ("erste zweite\n",), False)


def test_languages_and_encodings() -> None:
    stated = HEADER.replace("en\\n", "fr\\n").replace('"Plural', '"X-Source-Language: de_AT\\n"\n"Plural')
    languages = read_po_document(stated.encode(), "a.po").languages
    assert [(language.is_target, language.tag, language.line) for language in languages] == [
        (True, "fr", 3),
        (False, "de_AT", 3),
    ]
    with pytest.raises(TextError, match=r"a\.po: the catalogue is in latin1, not in UTF-8\. Convert it first: msgconv"):
        read_po_document(HEADER.replace("UTF-8", "latin1").encode(), "a.po")
    with pytest.raises(TextError, match=r"a\.po, line 1: byte 0xFC is not UTF-8\. Convert it first: msgconv"):
        read_po_document("# für".encode("latin1"), "a.po")
    template = HEADER.replace("UTF-8", "CHARSET") + '\nmsgid "a b"\nmsgstr ""\n'
    assert 'msgstr "b a"' in translate(template)[0]
    found, report = translate(template, lambda texts: ["é"] * len(texts))
    assert (found, report.failed[0].reason.split(":")[0]) == (
        template,
        "the catalogue is in charset, which has no such characters",
    )


def test_a_single_form_is_that_of_the_plural() -> None:
    found, _ = translate('msgid "ein Ding"\nmsgid_plural "%d der Dinge"\nmsgstr[0] ""\n')
    assert 'msgstr[0] "Dinge der %d"' in found


def test_filled_catalogues_are_read_as_parallel_text(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(translate(CATALOGUE, mark_fuzzy=False)[0], "utf-8")
    pairs = [(pair.source, pair.target) for pair in Corpus([path])]
    assert ("Datei %s fehlt", "fehlt %s Datei") in pairs
    assert ("erste zweite", "zweite erste") in pairs


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="gettext is not installed")
def test_gettext_accepts_filled_catalogues(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    text = CATALOGUE.replace("one file", "%d file")
    path.write_text(translate(text)[0], "utf-8")
    subprocess.run(["msgfmt", "--check", "--use-fuzzy", "-o", tmp_path / "a.mo", path], check=True, capture_output=True)
