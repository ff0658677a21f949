"""Terms in sources, their translations in targets, and the forms of words."""

from __future__ import annotations

from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibidem.glossary import Entry, Glossary, TermMatcher, inflection, load_glossary
from ibidem.glossary.inflection import MAX_FORMS, forms_of_term

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent


def make(*terms: tuple[str, str], languages: tuple[str, str] = ("de", "en")) -> TermMatcher:
    return TermMatcher(Glossary("app", *languages, [Entry(source, (target,)) for source, target in terms]))


def found_in(matcher: TermMatcher, text: str) -> list[str]:
    return [text[match.start : match.end] for match in matcher.find(text)]


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        ("Mandant", "Der Mandant sieht des Mandanten Daten, nicht die der Mandantin.", ["Mandant", "Mandanten"]),
        ("Mandant", "Mandantenverwaltung und Hauptmandant sind andere Wörter.", []),
        ("Mandant", "Mandanten-ID und SAP-Mandant", ["Mandanten", "Mandant"]),
        ("Mandant", "mandant MANDANT Mandant", ["MANDANT", "Mandant"]),
        ("Vorgang", "Vorgänge, Vorgängen, Vorgangs, Vorgängerin", ["Vorgänge", "Vorgängen", "Vorgangs"]),
        ("Arzt", "Ärzte und Ärztinnen", ["Ärzte"]),
        ("Verein", "Vereine", ["Vereine"]),
        ("Konto", "Konten und Kontos", ["Konten", "Kontos"]),
        ("Ergebnis", "Ergebnisse", ["Ergebnisse"]),
        ("löschen", "Er löscht, was gelöscht werden soll. Löschen!", ["löscht", "gelöscht", "Löschen"]),
        ("abmelden", "abgemeldet, abzumelden, meldet ab", ["abgemeldet", "abzumelden"]),
        ("künstliche Intelligenz", "mit künstlicher Intelligenz", ["künstlicher Intelligenz"]),
        ("künstliche Intelligenz", "künstliche, Intelligenz", []),
        ("API", "die APIs, eine API, api", ["APIs", "API"]),
        ("Mandant", "{Mandant} %Mandant $Mandant Mandant_id <Mandant> Mandant()", []),
        ("Mandant", "„Mandant“ (Mandant) Mandant/Kunde", ["Mandant", "Mandant", "Mandant"]),
        ("C++", "C++ und C", ["C++"]),
    ],
)
def test_terms_are_found(term: str, text: str, expected: list[str]) -> None:
    assert found_in(make((term, "x")), text) == expected


def test_the_longest_term_counts() -> None:
    matcher = make(
        ("Mandant", "tenant"), ("Mandant löschen", "purge tenant"), ("Mandantenverwaltung", "administration")
    )
    assert found_in(matcher, "Mandant löschen, Mandantenverwaltung, Mandant") == [
        "Mandant löschen",
        "Mandantenverwaltung",
        "Mandant",
    ]


def test_english_sources_and_german_targets() -> None:
    matcher = make(("tenant", "Mandant"), ("directory", "Ordner"), languages=("en", "de"))
    assert found_in(matcher, "All tenants have directories.") == ["tenants", "directories"]
    entries = [match.entry for match in matcher.find("All tenants have directories.")]
    assert all(use.is_met for use in matcher.check(entries, "Alle Mandanten haben Ordner."))


@pytest.mark.parametrize(
    ("entry", "translation", "met"),
    [
        (("Mandant", "tenant"), "Tenants are new.", True),
        (("Mandant", "tenant"), "The tenant's data.", True),
        (("Mandant", "tenant"), "The tenantry.", False),
        (("Speicher", "CloudVault"), "In CloudVault.", True),
        (("Speicher", "CloudVault"), "In cloudvault.", False),
        (("Speicher", "CloudVault"), "IN CLOUDVAULT", True),
        (("löschen", "to purge"), "It was purged.", True),
        (("Ansprechpartner", "point of contact"), "Our points of contact", True),
        (("Kriterium", "criterion"), "Two criteria", True),
    ],
)
def test_translations_are_found(entry: tuple[str, str], translation: str, met: bool) -> None:
    matcher = make(entry)
    assert [use.is_met for use in matcher.check(list(matcher.glossary.entries), translation)] == [met]


def test_every_term_needs_a_place_of_its_own() -> None:
    matcher = make(("Mandant", "tenant"), ("Verwaltung", "tenant administration"))
    tenant, administration = matcher.glossary.entries
    assert [use.is_met for use in matcher.check([tenant, tenant], "One tenant.")] == [True, False]
    assert [use.is_met for use in matcher.check([tenant, tenant], "A tenant and tenants.")] == [True, True]
    both = matcher.check([tenant, administration], "The tenant administration")
    assert [use.is_met for use in both] == [False, True]
    both = matcher.check([tenant, administration], "The tenant administration of a tenant")
    assert [use.is_met for use in both] == [True, True]
    assert "The tenant administration of a tenant"[both[0].start : both[0].end] == "tenant"


def test_the_rules_find_all_terms_of_the_sentences_for_the_benchmark() -> None:
    """Each term of the third column is found in the source, and its form in the reference is one of the glossary's."""
    matcher = TermMatcher(load_glossary(FOLDER / "terms.csv"))
    rows = [line.split("\t") for line in (FOLDER / "sentences.tsv").read_text("utf-8").splitlines()]
    assert len(rows) == 200
    assert len({source for source, _, _ in rows}) == 200
    for source, reference, forms in rows:
        entries = [match.entry for match in matcher.find(source)]
        assert len(entries) == len(forms.split(";")), source
        assert all(use.is_met for use in matcher.check(entries, reference)), source


@given(st.text(max_size=40), st.sampled_from(["de", "en", "fr"]), st.booleans())
def test_forms_of_any_text(text: str, language: str, verb: bool) -> None:
    forms = forms_of_term(text, language, verb=verb)
    assert forms[0] == text
    assert len(set(forms)) == len(forms) <= MAX_FORMS


@given(st.text(max_size=60))
def test_any_text_is_searched(text: str) -> None:
    matcher = make(("Mandant", "tenant"), ("löschen", "to purge"), ("zwei Wörter", "two words"))
    places = [(match.start, match.end) for match in matcher.find(f"{text} Mandanten {text}")]
    assert places == sorted(places)
    assert all(0 <= start < end for start, end in places)
    matcher.check([match.entry for match in matcher.find(text)], text)


def test_no_more_forms_are_made_than_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def count(*choices: list[str]) -> Iterator[tuple[str, ...]]:
        nonlocal made
        for parts in product(*choices):
            made += 1
            yield parts

    monkeypatch.setattr(inflection, "product", count)
    words = [list(dict.fromkeys(inflection._german_word(word))) for word in ("anmelden", "abmelden", "umstellen")]
    forms = forms_of_term("anmelden abmelden umstellen", "de")
    assert forms == tuple(islice((" ".join(parts) for parts in product(*words)), MAX_FORMS))
    assert MAX_FORMS <= made < 2 * MAX_FORMS
