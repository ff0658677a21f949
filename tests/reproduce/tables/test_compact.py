from __future__ import annotations

import pytest

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN
from ibidem.reproduce.plan import compactor_of
from ibidem.reproduce.tables import compact, open_table

from ..made_up import cells_of, put_all, put_score

METHODS, DIMENSIONS = open_table("compact"), open_table("dimensions")


def test_all_thirteen_lines_with_two_kinds_of_search(plan) -> None:
    grid = compact.build_methods(plan)
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
def test_labels_name_the_training_of_the_network(plan, label, pivots, objectives, clusters) -> None:
    settings = compact.compactors(plan)[label]
    assert (settings.pivots, [name for name, _ in settings.objectives], settings.clusters) == (
        pivots,
        objectives,
        clusters,
    )


def test_baselines_without_random_draws_are_trained_once(plan) -> None:
    grid = compact.build_methods(plan)
    trained = {
        label: {compactor_of(row.system) for row in cells["exact search"].rows} for label, cells in grid.lines.items()
    }
    assert [len(trained[label]) for label in (compact.PCA, compact.SVD, compact.STAR)] == [1, 1, len(plan.seeds)]


def test_means_over_seeds_are_shown_with_the_papers_numbers(plan, results) -> None:
    rows = compact.build_methods(plan).lines[compact.STAR]["exact search"].rows
    scores = [put_score(results, row, quality) for row, quality in zip(rows, (0.6, 0.8), strict=True)]
    shown = cells_of(METHODS.lay_out(plan, results), compact.STAR)
    assert shown[0].startswith(f"{sum(scores) / 2:.2f} ± ")
    assert shown[1:] == [NOT_RUN, "47.94"]


def test_neighbouring_lines_and_baselines_are_compared(plan, results) -> None:
    grid = compact.build_methods(plan)
    for label, quality in ((compact.ADAPTIVE, 0.8), (compact.STAR, 0.6)):
        put_score(results, grid.lines[label]["exact search"].rows[0], quality)
    found = METHODS.differences(plan, results)
    assert [(pair["baseline"], pair["system"], pair["column"]) for pair in found] == [
        (compact.ADAPTIVE, compact.STAR, "exact search")
    ]
    assert found[0]["value"] < 0
    assert found[0]["p_value"] < 0.05


def test_loss_and_quality_on_the_dev_set(plan, results) -> None:
    grid = compact.build_dimensions(plan)
    assert {row.part for row in grid.rows} == {"dev"}
    put_all(results, grid.lines["CKMT* 64"][compact.COLUMN].rows)
    text = DIMENSIONS.lay_out(plan, results)
    loss, printed_loss, _, printed = cells_of(text, "CKMT* 64")
    assert loss == "1.50 ± 0.00"
    assert (printed_loss, printed) == ("1.84", "44.49")
    assert cells_of(text, compact.ADAPTIVE) == ["not run", "1.82", "not run", "44.20"]


def test_every_dimension_has_a_space_of_its_own(plan) -> None:
    sizes = [row.system.compact.dimension for row in compact.build_dimensions(plan).rows if row.system.compact]
    assert sorted(set(sizes)) == [16, 32, 64, 128]
