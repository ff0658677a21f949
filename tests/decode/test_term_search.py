"""Glossaries in the translator: terms are forced, other sentences do not change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import SearchSettings, Translator
from ibidem.decode.constrained_search import ConstrainedSearcher
from ibidem.errors import GlossaryError, UsageError
from ibidem.glossary import Entry, Glossary, load_glossary
from ibidem.model import load_model

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).parents[1] / "glossary"
SENTENCES = [line.split("\t") for line in (FOLDER / "sentences.tsv").read_text("utf-8").splitlines()]
PLAIN = ["Guten Morgen.", "Die Mandantenfähigkeit ist {Mandant}.", "", "Wo ist der nächste Strand?"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(load_model(device="cpu"), batch_size=8)


@pytest.fixture(scope="module")
def glossary() -> Glossary:
    return load_glossary(FOLDER / "terms.csv")


def one_term(source: str, *targets: str) -> Glossary:
    return Glossary("one", "de", "en", [Entry(source, targets)])


def test_terms_are_in_the_translations(translator: Translator, glossary: Glossary) -> None:
    chosen = SENTENCES[::25]
    found = translator.translate([source for source, _, _ in chosen], glossary=glossary)
    wanted = [form for _, _, forms in chosen for form in forms.split(";")]
    present = [
        form
        for text, (_, _, forms) in zip(found, chosen, strict=True)
        for form in forms.split(";")
        if form.lower() in text.lower()
    ]
    assert len(present) >= 0.9 * len(wanted)


def test_sentences_without_terms_are_not_searched_again(
    translator: Translator, glossary: Glossary, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = translator.search(translator.split(PLAIN))

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the constrained search was called")

    monkeypatch.setattr(ConstrainedSearcher, "__call__", fail)
    assert translator.search(translator.split(PLAIN), glossary=glossary) == expected
    # A translation that has the term by itself is kept.
    kept = translator.search(translator.split(["Die Datei ist leer."]), glossary=one_term("Datei", "file"))[0][0][0]
    assert kept.tokens == translator.search(translator.split(["Die Datei ist leer."]))[0][0][0].tokens
    assert [(use.is_met, use.forced, use.glossary) for use in kept.terms] == [(True, False, "one")]


def test_results_do_not_depend_on_the_batch(translator: Translator, glossary: Glossary) -> None:
    texts = [source for source, _, _ in SENTENCES[5:200:70]]
    together = translator.translate([*texts, *PLAIN], glossary=glossary)
    assert together == [translator.translate([text], glossary=glossary)[0] for text in [*texts, *PLAIN]]


@pytest.mark.parametrize(
    ("source", "term", "target", "expected"),
    [
        ("Der Mandant wurde gelöscht.", "Mandant", "tenant", "The tenant was deleted."),
        ("Mandanten werden gelöscht.", "Mandant", "tenant", "Tenants"),
        ("Sie sucht eine Wohnung.", "Wohnung", "flat", " a flat"),
        ("Er kaufte ein Haus.", "Haus", "estate", " an estate"),
        ("DER MANDANT IST NEU", "Mandant", "tenant", "TENANT"),
        ("Der Speicher ist voll.", "Speicher", "CloudVault", "CloudVault"),
    ],
)
def test_the_form_fits_the_sentence(translator: Translator, source: str, term: str, target: str, expected: str) -> None:
    assert expected in translator.translate([source], glossary=one_term(term, target))[0]


def test_a_term_that_occurs_twice_is_translated_twice(translator: Translator) -> None:
    text = "Der alte Rechner ist langsam, der neue Rechner ist schnell."
    found = translator.translate([text], glossary=one_term("Rechner", "workstation"))[0]
    assert found.lower().count("workstation") == 2


def test_alternatives_have_the_term(translator: Translator) -> None:
    found = translator.alternatives(["Der Mandant ist neu."], 3, glossary=one_term("Mandant", "tenant"))[0]
    assert len({text for text, _ in found}) == len(found) == 3
    assert all("tenant" in text.lower() for text, _ in found)


def test_a_prefix_and_a_term(translator: Translator) -> None:
    found = translator.translate(["Der Mandant ist neu."], prefixes=["Now the"], glossary=one_term("Mandant", "tenant"))
    assert found[0].startswith("Now the tenant")


def test_a_term_that_cannot_be_met_is_reported(translator: Translator) -> None:
    short = Translator(translator.model, settings=SearchSettings(max_length_ratio=0, max_length_extra=4))
    text = "Der Mandant ist neu."
    long_term = one_term("Mandant", "very long winded expression for a tenant of the whole application")
    assert short.translate([text], glossary=long_term) == short.translate([text])
    assert [(unmet.text, unmet.entry.source) for unmet in short.work.unmet_terms] == [(text, "Mandant")]
    assert (short.work.terms, short.work.forced_terms) == (1, 0)
    explanation = short.explain([text], glossary=long_term)[0]
    assert [(term.met, term.forced, term.start) for term in explanation.terms] == [(False, False, -1)]


def test_explanations_name_the_glossary(translator: Translator) -> None:
    texts = ["Der Mandant ist neu.", "Guten Morgen."]
    explained = translator.explain(texts, glossary=one_term("Mandant", "tenant"))
    assert explained[0].translation == translator.translate(texts, glossary=one_term("Mandant", "tenant"))[0]
    term = explained[0].terms[0]
    assert (term.glossary, term.source, term.targets, term.forced) == ("one", "Mandant", ("tenant",), True)
    assert explained[0].translation[term.start : term.end] == "tenant"
    assert [word.text for word in explained[0].words if word.summary == "from the glossary one"] == ["tenant"]
    assert {token.glossary for token in explained[0].tokens} == {None, "one"}
    assert explained[1].terms == ()
    # The tokens' log-probabilities give the score, as in other explanations.
    total = sum(token.log_probability for token in explained[0].tokens) / len(explained[0].tokens)
    assert total == pytest.approx(explained[0].scores[0], abs=0.05)


def test_parts_of_long_texts(translator: Translator) -> None:
    short = Translator(translator.model, piece_tokens=12)
    text = "Guten Morgen, liebe Leute, wie geht es euch? Der Mandant ist neu."
    explanation = short.explain([text], glossary=one_term("Mandant", "tenant"))[0]
    term = explanation.terms[0]
    assert len(explanation.scores) > 1
    assert explanation.translation[term.start : term.end].lower() == "tenant"


def test_with_a_memory(translator: Translator, tmp_path: Path) -> None:
    from ibidem.learn import MemoryWriter

    MemoryWriter(tmp_path / "memory", translator.model).add_pair("Der Mandant ist neu.", "The tenant is brand new.")
    with_memory = Translator(translator.model, tmp_path / "memory")
    assert with_memory.translate(["Der Mandant ist neu."], glossary=one_term("Mandant", "tenant")) == [
        "The tenant is brand new."
    ]
    text = "Der Ordner ist neu."
    found = with_memory.translate([text], glossary=one_term("Ordner", "directory"))[0]
    assert "directory" in found


def test_the_glossary_of_a_translator(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "app.csv").write_text("Mandant,tenant\n", encoding="utf-8")
    own = Translator(translator.model, glossary=tmp_path / "app.csv")
    assert own.translate(["Der Mandant ist neu."]) == ["The tenant is new."]
    assert list(own.translate_stream(["Der Mandant ist neu."])) == ["The tenant is new."]
    with pytest.raises(UsageError, match="en to de"):
        Translator(translator.model, glossary=Glossary("x", "en", "de", [Entry("a", ("b",))]))
    with pytest.raises(GlossaryError, match="cannot be read"):
        Translator(translator.model, glossary=tmp_path / "missing.csv")
    empty = replace(one_term("Mandant", "tenant"), entries=())
    assert translator.translate(PLAIN, glossary=empty) == translator.translate(PLAIN)


@pytest.mark.parametrize("kind", ["t5", "mbart50", "fsmt"])
def test_other_models(model_of: Any, kind: str, short: Sequence[Any]) -> None:
    """Random models of other kinds: the search ends, and a term is met or reported."""
    model = model_of(kind)
    translator = Translator(model, settings=SearchSettings(beam=2, max_length_ratio=1, max_length_extra=8))
    source, target = model.tokens.source_language or "de", model.tokens.target_language or "en"
    word = next(word for word in short[0].german.split() if word.isalpha() and len(word) > 3)
    glossary = Glossary("x", source, target, [Entry(word, ("file",))])
    found = translator.search(translator.split([short[0].german]), glossary=glossary)[0][0][0]
    assert len(found.terms) >= 1
    assert all(use.is_met for use in found.terms) or translator.work.unmet_terms
