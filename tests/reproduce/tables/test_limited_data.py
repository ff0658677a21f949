from __future__ import annotations

from ibidem.reproduce.tables import limited_data
from ibidem.reproduce.tables.compact import STAR
from ibidem.reproduce.tables.compact import build as build_compact

from ..made_up import cells_of, put_all


def test_all_of_the_data_is_the_row_of_the_ablation(plan) -> None:
    whole = limited_data.build(plan).lines["100 %"][limited_data.COLUMN].rows
    assert whole == build_compact(plan).lines[STAR]["exact search"].rows


def test_shares_and_sizes(plan, results) -> None:
    grid = limited_data.build(plan)
    put_all(results, grid.lines["1 %"][limited_data.COLUMN].rows)
    text = limited_data.TABLE.lay_out(plan, results)
    share, printed, _, bleu = cells_of(text, "1 %")
    assert (share, printed, bleu) == ("0.90M", "0.04M", "46.21")
    assert cells_of(text, "20 %")[0] == "not run"
    assert {pair for pair in grid.pairs if pair[1] == "1 %"} == {
        ("20 %", "1 %"),
        ("100 %", "1 %"),
        (limited_data.ADAPTIVE, "1 %"),
    }
