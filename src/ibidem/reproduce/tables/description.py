"""The tables that describe: the texts, the number of parameters, the space of keys, and single sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.reproduce import paper
from ibidem.reproduce.data import own_sentences
from ibidem.reproduce.grid import NONE, NOT_RUN, markdown
from ibidem.reproduce.rows.statistics import ParameterCount, Statistics, TsneProjection
from ibidem.reproduce.rows.translation import OwnTranslation, Translation
from ibidem.reproduce.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ibidem.reproduce.data import Data
    from ibidem.reproduce.plan import Plan, System
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows import Row

PARAMETERS_K = 4
CASES_RATE = 0.1
SHOWN = 5
LONGEST_IN_WORDS = 12


def parts_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the parts of every domain that some table reads.

    Args:
        plan: Gives the domains.

    Returns:
        Some of "train", "dev" and "test", by domain.
    """
    parts: dict[str, tuple[str, ...]] = dict.fromkeys(plan.domains, ("train", "dev", "test"))
    for domain in (*plan.large, *plan.general):
        parts.setdefault(domain, ("train",))
    for domain in (*plan.elsewhere, plan.large_test):
        parts.setdefault(domain, ("dev", "test"))
    return parts


def _dataset_rows(plan: Plan) -> list[Row]:
    return [Statistics(domain, part) for domain, parts in parts_of(plan).items() for part in parts]


def _lay_out_datasets(plan: Plan, results: Results) -> str:
    header = ["domain", "train: pairs", "paper", "tokens", "paper"]
    header += ["dev: pairs", "tokens", "test: pairs", "paper", "tokens", "paper"]
    lines = []
    for domain, parts in parts_of(plan).items():
        printed = paper.DATASETS.get(domain, (NONE,) * 4)
        cells: dict[str, list[str]] = {}
        for part in ("train", "dev", "test"):
            found = results.find(Statistics(domain, part)) if part in parts else None
            absent = NOT_RUN if part in parts else NONE
            cells[part] = [absent, absent] if found is None else [f"{found[n]:,}" for n in ("pairs", "target_tokens")]
        train = [cells["train"][0], printed[0], cells["train"][1], printed[1]]
        test = [cells["test"][0], printed[2], cells["test"][1], printed[3]]
        lines.append([domain, *train, *cells["dev"], *test])
    true = ", ".join(f"{domain} {count}" for domain, count in paper.DATASETS_ROTATED.items())
    note = (
        "Tokens are target tokens of our model with the end of each sentence: what becomes entries. The paper's "
        f"training sentence counts of Koran, IT and Medical stand in each other's columns; the true ones are {true}. "
        "Its token counts are right, but those printed for the test sets are of the dev sets in the authors' code."
    )
    return f"{markdown(header, lines)}\n\n{note}"


def parameter_count(plan: Plan) -> ParameterCount:
    """Return the row that counts parameters.

    Args:
        plan: Gives the settings of both networks.
    """
    return ParameterCount(PARAMETERS_K, plan.star, plan.metak)


def sum_parameters(found: Mapping[str, int]) -> dict[str, int]:
    """Return the parameters of each system of the paper's table.

    Args:
        found: Parameters of "base", "metak" and "compactor".
    """
    adaptive = found["base"] + found["metak"]
    return {"MT": found["base"], "Adaptive kNN-MT": adaptive, "CKMT*": adaptive + found["compactor"]}


def _parameter_rows(plan: Plan) -> list[Row]:
    return [parameter_count(plan)]


def _lay_out_parameters(plan: Plan, results: Results) -> str:
    found = results.find(parameter_count(plan))
    counts = {} if found is None else sum_parameters(found)
    lines = []
    for label, printed in paper.PARAMETERS.items():
        number = counts.get(label)
        added = f"+{100 * (number / counts['MT'] - 1):.3f} %" if number is not None else NOT_RUN
        shown = NOT_RUN if number is None else f"{number:,}"
        lines.append([label, shown, added, f"{printed:.1f}M", f"+{100 * (printed / paper.PARAMETERS['MT'] - 1):.3f} %"])
    return markdown(["system", "parameters", "added", "paper", "added"], lines)


def tsne_projection(plan: Plan) -> TsneProjection:
    """Return the projection of CKMT* on the domain of the ablations.

    Args:
        plan: Gives the domain, the first seed and the number of points.
    """
    return TsneProjection(plan.ckmt(plan.domain, plan.seeds[0]), points=plan.points)


def _tsne_rows(plan: Plan) -> list[Row]:
    return [tsne_projection(plan)]


def _lay_out_tsne(plan: Plan, results: Results) -> str:
    found = results.find(tsne_projection(plan))
    if found is None:
        return NOT_RUN
    words = ", ".join(sorted(found["tokens"].values()))
    shares = [[name, f"{found[key]:.1%}"] for name, key in (("before", "purity_before"), ("after", "purity_after"))]
    table = markdown(["f_α", f"of {found['neighbours']} nearest neighbours of the same token"], shares)
    return (
        f"{table}\n\n{found['points']:,} entries of the tokens {words}. The share is measured among these entries, in "
        "the spaces themselves and not in the plane."
    )


def _draw_tsne(plan: Plan, results: Results, folder: Path) -> list[Path]:
    from ibidem.reproduce.plots import draw_frequencies, draw_tokens

    row = tsne_projection(plan)
    found = results.find(row)
    names = ("tokens", "before", "after", "whole", "frequencies")
    arrays = {name: array for name in names if found and (array := results.array(row, name)) is not None}
    if found is None or len(arrays) < len(names):
        return []
    words = {int(token): word for token, word in found["tokens"].items()}
    planes = {"model's own space": arrays["before"], "compact space": arrays["after"]}
    drawn = draw_tokens(planes, arrays["tokens"], words, folder / "tokens", smoke=plan.smoke)
    return drawn + draw_frequencies(arrays["whole"], arrays["frequencies"], folder / "frequencies", smoke=plan.smoke)


class Case(NamedTuple):
    """A sentence, its reference, and its translations by system.

    Attributes:
        source: Source sentence.
        reference: Its reference.
        translations: Its translations, by system.
    """

    source: str
    reference: str
    translations: dict[str, str]


def case_systems(plan: Plan) -> dict[str, System]:
    """Return the paper's four systems on the domain of its ablations.

    Args:
        plan: Gives the domain and the first seed.

    Returns:
        Systems by label.
    """
    domain, seed = plan.domain, plan.seeds[0]
    return {
        "base NMT": plan.base(),
        "adaptive kNN-MT": plan.adaptive(domain, seed),
        "CKMT*": plan.ckmt(domain, seed),
        "PCKMT*": plan.pruned(domain, seed, CASES_RATE),
    }


def choose_cases(
    sources: Sequence[str], references: Sequence[str], translations: Mapping[str, Sequence[str]], count: int = SHOWN
) -> list[Case]:
    """Return the first of the sentences of at most 12 words that have the most different translations.

    Args:
        sources: Source sentences.
        references: A reference for each.
        translations: Translations of all sentences, by system.
        count: Maximum number of cases.
    """
    cases = [
        Case(source, reference, {label: lines[number] for label, lines in translations.items()})
        for number, (source, reference) in enumerate(zip(sources, references, strict=True))
        if len(source.split()) <= LONGEST_IN_WORDS
    ]
    different = [case for case in cases if len(set(case.translations.values())) > 1]
    return sorted(different, key=lambda case: -len(set(case.translations.values())))[:count]


def format_cases(cases: Sequence[Case]) -> str:
    """Lay out a small table for each case.

    Args:
        cases: Cases to show.

    Returns:
        Markdown.
    """
    parts = []
    for case in cases:
        lines = [("source", case.source), ("reference", case.reference), *case.translations.items()]
        parts.append("\n".join(["| | |", "|---|---|", *(f"| {a} | {b.replace('|', '/')} |" for a, b in lines)]))
    return "\n\n".join(parts) or "No sentence is translated differently."


def _case_rows(plan: Plan) -> list[Row]:
    chosen = case_systems(plan).values()
    return [row for s in chosen for row in (OwnTranslation(s), Translation(s, plan.domain))]


def _lay_out_cases(plan: Plan, results: Results) -> str:
    rows = {label: OwnTranslation(system) for label, system in case_systems(plan).items()}
    found = {label: results.translations(row) for label, row in rows.items() if results.find(row) is not None}
    texts = {label: lines for label, lines in found.items() if lines is not None}
    if len(texts) < len(rows):
        return NOT_RUN
    own = [sentence for sentence in own_sentences() if sentence.domain == "software"]
    cases = choose_cases([s.german for s in own], [s.english for s in own], texts)
    note = (
        f"Of our own {len(own)} sentences about software, those of at most {LONGEST_IN_WORDS} words with the most "
        f"different translations, the first {SHOWN} of them; PCKMT* has {CASES_RATE:.0%} of its entries pruned, with "
        "our settings. Cases of the test set, chosen by the same rule, are printed when this is run, and stored in no "
        "file."
    )
    return f"{format_cases(cases)}\n\n{note}"


def show_test_cases(plan: Plan, results: Results, data: Data) -> str:
    """Lay out cases of the test set, which are printed and not stored.

    Args:
        plan: Gives the domain and the systems.
        results: Results folder with the translations.
        data: Texts of the test set.

    Returns:
        Markdown; empty where a translation or the text is missing.
    """
    rows = {label: Translation(system, plan.domain) for label, system in case_systems(plan).items()}
    texts = {label: lines for label, row in rows.items() if (lines := results.translations(row)) is not None}
    if len(texts) < len(rows) or not data.has(plan.domain, "test"):
        return ""
    pairs = list(data.corpus(plan.domain, "test"))
    cases = choose_cases([pair.source for pair in pairs], [pair.target for pair in pairs], texts)
    return f"## Cases of the {plan.domain} test set (printed only)\n\n{format_cases(cases)}\n"


BY_NAME = {
    "datasets": Table("datasets", "Sentence pairs and target tokens of every domain", _dataset_rows, _lay_out_datasets),
    "parameters": Table("parameters", "Number of parameters, k = 4", _parameter_rows, _lay_out_parameters),
    "visualise": Table(
        "visualise",
        "t-SNE of the IT memory",
        _tsne_rows,
        _lay_out_tsne,
        figures=("tokens", "frequencies"),
        draw=_draw_tsne,
    ),
    "cases": Table(
        "cases",
        "Sentences that the systems translate differently",
        _case_rows,
        _lay_out_cases,
        aside=show_test_cases,
    ),
}
