from __future__ import annotations

import pytest

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN
from ibidem.reproduce.system import compactor_of
from ibidem.reproduce.tables import compact

from ..made_up import cells_of, put_score


def test_all_thirteen_lines_with_two_kinds_of_search(plan) -> None:
    grid = compact.build(plan)
    assert list(grid.lines) == list(paper.COMPACT)
    assert grid.columns == ("exact search", "paper index")
    assert len(grid.rows) == 1 + 12 * 2 * len(plan.seeds)


@pytest.mark.parametrize(
    ("label", "pivots", "objectives", "clusters"),
    [
        ("[DY] CKMT+DR", "dynamic", ["ranking"], False),
        ("[DY] CKMT+WP", "dynamic", ["prediction"], False),
        ("[DY] CKMT+NCE+CL", "dynamic", ["nce"], True),
        ("[ST] CKMT+NCE+CL+WP", "static", ["nce", "prediction"], True),
    ],
)
def test_labels_say_how_the_network_is_trained(plan, label, pivots, objectives, clusters) -> None:
    settings = compact.compactors(plan)[label]
    assert (settings.pivots, [name for name, _ in settings.objectives], settings.clusters) == (
        pivots,
        objectives,
        clusters,
    )


def test_rivals_that_draw_nothing_are_trained_once(plan) -> None:
    grid = compact.build(plan)
    trained = {
        label: {compactor_of(row.system) for row in cells["exact search"].rows} for label, cells in grid.lines.items()
    }
    assert [len(trained[label]) for label in (compact.PCA, compact.SVD, compact.STAR)] == [1, 1, len(plan.seeds)]


def test_means_over_seeds_stand_beside_the_papers_numbers(plan, results) -> None:
    rows = compact.build(plan).lines[compact.STAR]["exact search"].rows
    scores = [put_score(results, row, quality) for row, quality in zip(rows, (0.6, 0.8), strict=True)]
    shown = cells_of(compact.TABLE.lay_out(plan, results), compact.STAR)
    assert shown[0].startswith(f"{sum(scores) / 2:.2f} ± ")
    assert shown[1:] == [NOT_RUN, "47.94"]


def test_neighbours_and_rivals_are_compared(plan, results) -> None:
    grid = compact.build(plan)
    for label, quality in ((compact.ADAPTIVE, 0.8), (compact.STAR, 0.6)):
        put_score(results, grid.lines[label]["exact search"].rows[0], quality)
    found = compact.TABLE.differences(plan, results)
    assert [(pair["baseline"], pair["system"], pair["column"]) for pair in found] == [
        (compact.ADAPTIVE, compact.STAR, "exact search")
    ]
    assert found[0]["value"] < 0
    assert found[0]["p_value"] < 0.05
