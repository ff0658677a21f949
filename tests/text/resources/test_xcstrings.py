"""Apple's string catalogues."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import TextError
from ibidem.text.document import FillSettings
from ibidem.text.inline.placeholders import mark
from ibidem.text.language import Languages
from ibidem.text.resources import read_xcstrings_document

from ..samples import filled
from ..translators import return_empty, shout

LANGUAGES = Languages("de", "en")


def unit(text: str, state: str = "translated") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": text}}


CATALOGUE: dict[str, Any] = {
    "sourceLanguage": "de",
    "strings": {
        "": {},
        "%lld dateien": {
            "comment": "Bleibt",
            "localizations": {
                "de": {"variations": {"plural": {"one": unit("%lld datei"), "other": unit("%lld dateien")}}},
                "fr": unit("x"),
            },
        },
        "abbrechen": {"extractionState": "manual"},
        "fertig": {"localizations": {"en-US": unit("done")}},
        "leer": {"localizations": {"en": unit("", "new")}},
        "marke": {"shouldTranslate": False},
        "prüfen": {"localizations": {"en": unit("check", "needs_review")}},
        "titel": {
            "localizations": {
                "de": {
                    "stringUnit": {"state": "translated", "value": "in %#@tage@ fällig"},
                    "substitutions": {
                        "tage": {
                            "argNum": 1,
                            "formatSpecifier": "lld",
                            "variations": {"plural": {"one": unit("%arg tag"), "other": unit("%arg tagen")}},
                        }
                    },
                }
            }
        },
    },
    "version": "1.0",
}


def write(catalogue: dict[str, Any], **style: Any) -> bytes:
    return json.dumps(catalogue, ensure_ascii=False, sort_keys=True, **style).encode()


STYLES: dict[str, dict[str, Any]] = {
    "xcode": {"indent": 2, "separators": (",", " : ")},
    "tabs": {"indent": "\t", "separators": (",", ": ")},
    "one line": {"separators": (",", ":")},
}


@pytest.mark.parametrize("style", STYLES)
def test_missing_translations_are_inserted_where_xcode_writes_them(style: str) -> None:
    data = write(CATALOGUE, **STYLES[style])
    written, report = filled(read_xcstrings_document(data, "L.xcstrings", LANGUAGES), shout)
    expected = json.loads(data)
    strings = expected["strings"]
    review = "needs_review"
    strings["%lld dateien"]["localizations"]["en"] = {
        "variations": {"plural": {"one": unit("%lld DATEI", review), "other": unit("%lld DATEIEN", review)}}
    }
    strings["abbrechen"]["localizations"] = {"en": unit("ABBRECHEN", review)}
    strings["leer"]["localizations"]["en"] = unit("LEER", review)
    strings["titel"]["localizations"]["en"] = {
        "stringUnit": {"state": review, "value": "IN %#@tage@ FÄLLIG"},
        "substitutions": {
            "tage": {
                "argNum": 1,
                "formatSpecifier": "lld",
                "variations": {"plural": {"one": unit("%arg TAG", review), "other": unit("%arg TAGEN", review)}},
            }
        },
    }
    # The bytes are those of a file that is written as a whole, with sorted keys.
    assert written == write(expected, **STYLES[style])
    assert report.failed == []
    assert report.kept == {"an empty source": 1, "translated already": 1, "shouldTranslate false": 1, "fuzzy": 1}


def test_fuzzy_translations_and_windows_line_ends() -> None:
    data = write(CATALOGUE, **STYLES["xcode"]).replace(b"\n", b"\r\n")
    document = read_xcstrings_document(data, "L.xcstrings", LANGUAGES)
    written, _ = filled(document, shout, FillSettings(fuzzy=True))
    assert json.loads(written)["strings"]["prüfen"]["localizations"]["en"] == unit("PRÜFEN", "needs_review")
    assert written.count(b"\n") == written.count(b"\r\n")
    assert [one.tag for one in document.languages] == ["de"]


def test_failed_translations_change_no_byte() -> None:
    data = write(CATALOGUE, **STYLES["xcode"])
    written, report = filled(read_xcstrings_document(data, "L.xcstrings", LANGUAGES), return_empty)
    assert written == data
    assert len(report.failed) == 7


def test_other_files_are_refused() -> None:
    for data in (b'{"a": "b"}', b'{"sourceLanguage": "de"}', b"[]", b'{"sourceLanguage": 1, "strings": {}}'):
        with pytest.raises(TextError, match="no string catalogue"):
            read_xcstrings_document(data, "L.xcstrings", LANGUAGES)
    for data in (b"", b"{", b'{"sourceLanguage": "de", "strings": {"a": {}'):
        with pytest.raises(TextError, match=r"L\.xcstrings"):
            read_xcstrings_document(data, "L.xcstrings", LANGUAGES)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_stay_json_or_give_an_error(data: st.DataObject) -> None:
    raw = bytearray(write(CATALOGUE, **STYLES["tabs"]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 30))] = data.draw(st.sampled_from([b"", b'"', b"{}", b"[", b"x"]))
    with suppress(TextError):
        document = read_xcstrings_document(bytes(raw), "L.xcstrings", LANGUAGES)
        written, _ = filled(document, shout)
        json.loads(written)


def test_placeholders_of_apple() -> None:
    assert [found.text for found in mark(("%#@dateien@ in %1$#@ordner@, %arg",)).marks] == [
        "%#@dateien@",
        "%1$#@ordner@",
        "%arg",
    ]
