from __future__ import annotations

import pytest

from ibidem.reproduce import paper
from ibidem.reproduce.tables import open_table, quality, speed

from ..made_up import cells_of, put_all, put_figures, put_speeds

INTRO, LATENCY = open_table("intro-speed"), open_table("latency")


def speeds(*key: object) -> dict[str, float]:
    sentences, tokens = paper.LATENCY_SPEED[key]
    return {"sentences_per_second": sentences, "tokens_per_second": tokens}


def test_the_papers_latency_is_a_difference_of_rates() -> None:
    """Its 57 % is k = 4 in batches of 8, in sentences; in tokens it is 54 %, in time a token 69 %."""
    best = speed.saving(speeds("base", None, 8), speeds("adaptive", 4, 8), speeds("PCKMT*", 4, 8))
    assert best == pytest.approx((0.565, 0.536, 0.691), abs=0.001)
    least = speed.saving(speeds("base", None, 64), speeds("adaptive", 16, 64), speeds("PCKMT*", 16, 64))
    assert least is not None
    assert least.sentences == pytest.approx(0.270, abs=0.001)


def test_nothing_can_be_saved_where_nothing_was_lost() -> None:
    fast = {"sentences_per_second": 10.0, "tokens_per_second": 100.0}
    assert speed.saving(fast, fast, fast) is None


def test_speed_storage_and_saving_by_batch(plan, results) -> None:
    put_speeds(results, plan, 8)
    text = LATENCY.lay_out(plan, results)
    label = quality.Variant("PCKMT*", 8, 0.7).label
    shown = cells_of(text, label)
    assert shown[2:4] == ["37", "419"]
    assert shown[5] == "2.00 GB"
    assert shown[6].endswith("% time")
    assert cells_of(text, quality.BASE)[1] == "1000"
    second = text[text.index("Batches of 64") :]
    assert cells_of(second, label)[0] == "not run"


def test_every_variant_is_timed_with_the_others(plan) -> None:
    timing = quality.large_timing(plan, 64)
    assert len(timing.systems) == 1 + len(quality.variants(plan))
    assert timing.alone
    rates = {(variant.k, variant.rate) for variant in quality.variants(plan) if variant.kind == quality.PCKMT}
    assert rates == {(16, 0.2), (8, 0.3), (8, 0.7), (4, 0.1), (4, 0.4)}


def test_figures_of_speed_and_storage(plan, results, tmp_path) -> None:
    put_speeds(results, plan, 64)
    put_all(results, speed.build_latency(plan).rows)
    names = [file.name for file in LATENCY.draw(plan, results, tmp_path)]
    assert names == ["speed.png", "speed.svg", "storage.png", "storage.svg"]


def test_the_introductions_table(plan, results) -> None:
    row = speed.intro_timing(plan)
    put_figures(results, row, speeds=[{"tokens_per_second": 900.4}, {"tokens_per_second": 600.0}])
    text = INTRO.lay_out(plan, results)
    assert cells_of(text, "MT") == ["900", "913.48", "not run", "37.50"]
    assert cells_of(text, "AK-MT (k = 4)") == ["600", "642.43", "not run", "46.32"]
