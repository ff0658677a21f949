from __future__ import annotations

import pytest

from ibidem.reproduce.stages import Extracted
from ibidem.reproduce.system import assemble, compactor_of
from ibidem.reproduce.tables import domains

from ..made_up import cells_of, put_score


def test_the_general_compactor_is_shared_by_all_domains(plan) -> None:
    cells = domains.build(plan, "exact").lines[domains.GENERAL]
    first = [cells[domain].rows[0].system for domain in ("it", "koran")]
    compactors = [compactor_of(system) for system in first]
    assert compactors[0] == compactors[1]
    assert compactors[0].memory.sources == (Extracted(("general",)),)
    assert assemble(first[0]).memory != assemble(first[1]).memory


def test_averages_are_over_what_every_line_was_run_in(plan, results) -> None:
    grid = domains.build(plan, "exact")
    scores = {}
    for label, cells in grid.lines.items():
        for domain in ("it", "koran", "law") if label == domains.NMT else ("it", "koran"):
            scores[label, domain] = put_score(results, cells[domain].rows[0], 0.5 if domain == "it" else 0.7)
    means = domains.averages(grid, results)
    assert means[domains.NMT] == pytest.approx((scores[domains.NMT, "it"] + scores[domains.NMT, "koran"]) / 2)
    text = domains.TABLE.lay_out(plan, results)
    shown = cells_of(text, domains.CKMT)
    assert shown[0] == f"{scores[domains.CKMT, 'it']:.2f}"
    assert shown[plan.domains.index("law")] == "not run"
    assert shown[-1] == f"{means[domains.CKMT]:.2f}"
    assert cells_of(text, "— paper")[:4] == ["38.35", "16.26", "45.48", "39.99"]


def test_without_a_shared_column_there_is_no_average(plan, results) -> None:
    grid = domains.build(plan, "exact")
    put_score(results, grid.lines[domains.NMT]["it"].rows[0], 0.5)
    assert set(domains.averages(grid, results).values()) == {None}
