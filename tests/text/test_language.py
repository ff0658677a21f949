"""Language tags and languages inferred from paths."""

from __future__ import annotations

import pytest

from ibidem.errors import UsageError
from ibidem.text.language import Languages, infer_language, primary_language

GERMAN_ENGLISH = Languages("de", "en")


@pytest.mark.parametrize("tag", ["de", "DE", "de-DE", "de_AT", "de.UTF-8", "de_DE@euro", " de "])
def test_spellings_of_one_language_agree(tag: str) -> None:
    assert primary_language(tag) == "de"


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("/usr/share/locale/de/LC_MESSAGES/x.mo", "de"),
        ("/usr/share/locale/de_DE.UTF-8/LC_MESSAGES/x.mo.gz", "de"),
        ("locale/en_GB/LC_MESSAGES/x-de.po", "en"),
        ("de.po", "de"),
        ("po/de_AT.po.xz", "de"),
        ("x.de.po", "de"),
        ("x-de_DE.po", "de"),
        ("x_de.po", "de"),
        ("x.DE.po", "de"),
        ("de@informal.po", "de"),
        ("in-de.po", "de"),
        ("fr.po", None),
        ("messages.po", None),
        ("/usr/share/locale/fr/LC_MESSAGES/x.mo", None),
        ("de/x.po", None),
        ("made.po", None),
        ("standard input", None),
        ("", None),
    ],
)
def test_the_language_is_inferred_from_the_path(path: str, language: str | None) -> None:
    assert infer_language(path, GERMAN_ENGLISH) == language


@pytest.mark.parametrize("tag", ["", "1", "x", "d€"])
def test_a_tag_that_names_no_language_is_refused(tag: str) -> None:
    with pytest.raises(UsageError, match=r"not a language tag. Use one such as 'de'"):
        Languages.from_tags(tag, "en", None)


def test_one_language_on_both_sides_is_refused() -> None:
    with pytest.raises(UsageError, match="'en-GB' and the target language 'en-US' are the same"):
        Languages.from_tags("en-GB", "en-US", None)


def test_a_catalogue_in_a_third_language_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'fr' is neither .* --catalogue-language"):
        Languages.from_tags("de", "en", "fr")


def test_three_letter_codes_name_the_same_languages() -> None:
    assert [primary_language(tag) for tag in ("deu_Latn", "eng", "zho_Hans", "de")] == ["de", "en", "zh", "de"]
    assert primary_language("bar") == "bar"
