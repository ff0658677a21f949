from __future__ import annotations

from ibidem.reproduce.tables import dimensions

from ..made_up import cells_of, put_all


def test_loss_and_quality_on_the_dev_set(plan, results) -> None:
    grid = dimensions.build(plan)
    assert {row.part for row in grid.rows} == {"dev"}
    put_all(results, grid.lines["CKMT* 64"][dimensions.COLUMN].rows)
    text = dimensions.TABLE.lay_out(plan, results)
    loss, printed_loss, _, printed = cells_of(text, "CKMT* 64")
    assert loss == "1.50 ± 0.00"
    assert (printed_loss, printed) == ("1.84", "44.49")
    assert cells_of(text, dimensions.ADAPTIVE) == ["not run", "1.82", "not run", "44.20"]


def test_every_dimension_has_a_space_of_its_own(plan) -> None:
    sizes = [row.system.compact.dimension for row in dimensions.build(plan).rows if row.system.compact]
    assert sorted(set(sizes)) == [16, 32, 64, 128]
