"""The texts: sentence pairs and target tokens of every domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NONE, NOT_RUN, markdown
from ibidem.reproduce.rows.statistics import Statistics
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row


def parts_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The parts of every domain that some table reads."""
    parts: dict[str, tuple[str, ...]] = dict.fromkeys(plan.domains, ("train", "dev", "test"))
    for domain in (*plan.large, *plan.general):
        parts.setdefault(domain, ("train",))
    for domain in (*plan.elsewhere, plan.large_test):
        parts.setdefault(domain, ("dev", "test"))
    return parts


def _rows(plan: Plan) -> list[Row]:
    return [Statistics(domain, part) for domain, parts in parts_of(plan).items() for part in parts]


def _lay_out(plan: Plan, results: Results) -> str:
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


TABLE = Table("datasets", "Sentence pairs and target tokens of every domain", _rows, _lay_out)
