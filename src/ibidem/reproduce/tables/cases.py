"""Sentences that the systems translate differently, chosen by a rule and not by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.reproduce.grid import NOT_RUN
from ibidem.reproduce.rows.own import OwnTranslation
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.smoke import own_sentences
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ibidem.reproduce.data import Data
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row
    from ibidem.reproduce.system import System

RATE = 0.1
SHOWN = 5
LONGEST_IN_WORDS = 12


class Case(NamedTuple):
    """A sentence, its reference, and its translations by system."""

    source: str
    reference: str
    translations: dict[str, str]


def systems(plan: Plan) -> dict[str, System]:
    """The paper's four, on the domain of its ablations."""
    domain, seed = plan.domain, plan.seeds[0]
    return {
        "base NMT": plan.base(),
        "adaptive kNN-MT": plan.adaptive(domain, seed),
        "CKMT*": plan.ckmt(domain, seed),
        "PCKMT*": plan.pruned(domain, seed, RATE),
    }


def choose_cases(
    sources: Sequence[str], references: Sequence[str], translations: Mapping[str, Sequence[str]], count: int = SHOWN
) -> list[Case]:
    """The sentences of at most 12 words with the most different translations; of these the first."""
    cases = [
        Case(source, reference, {label: lines[number] for label, lines in translations.items()})
        for number, (source, reference) in enumerate(zip(sources, references, strict=True))
        if len(source.split()) <= LONGEST_IN_WORDS
    ]
    different = [case for case in cases if len(set(case.translations.values())) > 1]
    return sorted(different, key=lambda case: -len(set(case.translations.values())))[:count]


def format_cases(cases: Sequence[Case]) -> str:
    """A small table for each."""
    parts = []
    for case in cases:
        lines = [("source", case.source), ("reference", case.reference), *case.translations.items()]
        parts.append("\n".join(["| | |", "|---|---|", *(f"| {a} | {b.replace('|', '/')} |" for a, b in lines)]))
    return "\n\n".join(parts) or "No sentence is translated differently."


def _rows(plan: Plan) -> list[Row]:
    chosen = systems(plan).values()
    return [row for s in chosen for row in (OwnTranslation(s), Translation(s, plan.domain))]


def _lay_out(plan: Plan, results: Results) -> str:
    rows = {label: OwnTranslation(system) for label, system in systems(plan).items()}
    found = {label: results.translations(row) for label, row in rows.items() if results.find(row) is not None}
    texts = {label: lines for label, lines in found.items() if lines is not None}
    if len(texts) < len(rows):
        return NOT_RUN
    own = [sentence for sentence in own_sentences() if sentence.domain == "software"]
    cases = choose_cases([s.german for s in own], [s.english for s in own], texts)
    note = (
        f"Of our own {len(own)} sentences about software, those of at most {LONGEST_IN_WORDS} words with the most "
        f"different translations, the first {SHOWN} of them; PCKMT* has {RATE:.0%} of its entries pruned. Cases of the "
        "test set, chosen by the same rule, are printed when this is run, and kept in no file."
    )
    return f"{format_cases(cases)}\n\n{note}"


def show_test_cases(plan: Plan, results: Results, data: Data) -> str:
    """Cases of the test set, to be printed and not to be kept."""
    rows = {label: Translation(system, plan.domain) for label, system in systems(plan).items()}
    texts = {label: lines for label, row in rows.items() if (lines := results.translations(row)) is not None}
    if len(texts) < len(rows) or not data.has(plan.domain, "test"):
        return ""
    pairs = list(data.corpus(plan.domain, "test"))
    cases = choose_cases([pair.source for pair in pairs], [pair.target for pair in pairs], texts)
    return f"## Cases of the {plan.domain} test set (printed only)\n\n{format_cases(cases)}\n"


TABLE = Table("cases", "Sentences that the systems translate differently", _rows, _lay_out, aside=show_test_cases)
