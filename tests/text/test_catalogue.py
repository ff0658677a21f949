"""The direction, the language and the cleaning of gettext catalogues."""

from __future__ import annotations

import pytest

from ibidem.errors import TextError
from ibidem.text import Corpus
from ibidem.text.catalogue import remove_context

from .conftest import Write, sides

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
