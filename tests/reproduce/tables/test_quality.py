from __future__ import annotations

import pytest

from ibidem.reproduce.grid import format_spread, spread_of
from ibidem.reproduce.plan import assemble, compactor_of
from ibidem.reproduce.stages import Extracted
from ibidem.reproduce.tables import compact, open_table, quality

from ..made_up import cells_of, put_all, put_score, put_speeds

DOMAINS, LIMITED_DATA, OPTIMAL, FINE_TUNING = map(open_table, ("domains", "limited-data", "optimal", "fine-tuning"))


def test_the_general_compactor_is_shared_by_all_domains(plan) -> None:
    cells = quality.build_domains(plan, "exact").lines[quality.GENERAL]
    first = [cells[domain].rows[0].system for domain in ("it", "koran")]
    compactors = [compactor_of(system) for system in first]
    assert compactors[0] == compactors[1]
    assert compactors[0].memory.sources == (Extracted(("general",)),)
    assert assemble(first[0]).memory != assemble(first[1]).memory


def test_averages_are_over_what_every_line_was_run_in(plan, results) -> None:
    grid = quality.build_domains(plan, "exact")
    scores = {}
    for label, cells in grid.lines.items():
        for domain in ("it", "koran", "law") if label == quality.NMT else ("it", "koran"):
            scores[label, domain] = put_score(results, cells[domain].rows[0], 0.5 if domain == "it" else 0.7)
    means = quality.averages(grid, results)
    assert means[quality.NMT] == pytest.approx((scores[quality.NMT, "it"] + scores[quality.NMT, "koran"]) / 2)
    text = DOMAINS.lay_out(plan, results)
    shown = cells_of(text, quality.CKMT)
    assert shown[0] == f"{scores[quality.CKMT, 'it']:.2f}"
    assert shown[plan.domains.index("law")] == "not run"
    assert shown[-1] == f"{means[quality.CKMT]:.2f}"
    assert cells_of(text, "— paper")[:4] == ["38.35", "16.26", "45.48", "39.99"]


def test_without_a_shared_column_there_is_no_average(plan, results) -> None:
    grid = quality.build_domains(plan, "exact")
    put_score(results, grid.lines[quality.NMT]["it"].rows[0], 0.5)
    put_score(results, grid.lines[quality.CKMT]["koran"].rows[0], 0.5)
    assert set(quality.averages(grid, results).values()) == {None}


def test_all_of_the_data_is_the_row_of_the_ablation(plan) -> None:
    whole = quality.build_limited_data(plan).lines["100 %"][quality.COLUMN].rows
    assert whole == compact.build_methods(plan).lines[compact.STAR]["exact search"].rows


def test_shares_and_sizes(plan, results) -> None:
    grid = quality.build_limited_data(plan)
    put_all(results, grid.lines["1 %"][quality.COLUMN].rows)
    text = LIMITED_DATA.lay_out(plan, results)
    share, printed, _, bleu = cells_of(text, "1 %")
    assert (share, printed, bleu) == ("0.90M", "0.04M", "46.21")
    assert cells_of(text, "20 %")[0] == "not run"
    assert {pair for pair in grid.pairs if pair[1] == "1 %"} == {
        ("20 %", "1 %"),
        ("100 %", "1 %"),
        (quality.ADAPTIVE, "1 %"),
    }


def test_optimal_shows_the_speeds_of_the_latency_table(plan, results) -> None:
    put_speeds(results, plan, 64)
    put_all(results, quality.build_optimal(plan).rows)
    text = OPTIMAL.lay_out(plan, results)
    shown = cells_of(text, quality.Variant("PCKMT*", 8, 0.3).label)
    assert shown[1:] == ["", "450", "", "1.50M", ""]
    printed = cells_of(text, quality.Variant("PCKMT*", 8, 0.3, as_printed=True).label)
    assert printed[1:] == ["31.72", "not run", "1024", "1.50M", "108M"]
    assert quality.Variant("PCKMT*", 8, 0.7).label not in quality.build_optimal(plan).lines


def test_domains_show_chrf_where_it_was_run(plan, results) -> None:
    rows = quality.build_domains(plan, "exact").lines[quality.CKMT]["it"].rows
    for number, row in enumerate(rows):
        put_score(results, row, 0.5, scores={"BLEU": 1.0, "chrF": 40.0 + number})
    shown = DOMAINS.lay_out(plan, results).split("### chrF, exact search")[1]
    [line] = [line for line in shown.splitlines() if line.startswith("| CKMT*")][:1]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    expected = format_spread(spread_of([40.0 + number for number in range(len(rows))]))
    assert cells[1 + plan.domains.index("it")] == expected
    assert cells.count("not run") == len(plan.domains) - 1


def test_domains_show_what_a_memory_does_to_other_text(plan, results) -> None:
    grid = quality.build_elsewhere(plan)
    assert grid.columns == ("news (it)", "medical (it)")
    systems = [row.system for row in grid.lines[quality.CKMT]["news (it)"].rows]
    assert {system.corpus for system in systems} == {("it",)}
    # the rows of the table of fine-tuning: nothing is measured twice
    shared = quality.build_fine_tuning(plan).lines
    for label in (quality.NMT, quality.ADAPTIVE, quality.CKMT):
        assert grid.lines[label]["news (it)"].rows == shared[label]["news"].rows
    put_score(results, grid.lines[quality.NMT]["news (it)"].rows[0], 0.6)
    put_score(results, grid.lines[quality.ADAPTIVE]["news (it)"].rows[0], 0.5)
    [found] = [d for d in DOMAINS.differences(plan, results) if d["column"] == "news (it)"]
    assert found["value"] < 0
    # claims about every domain have no other text
    assert not set(grid.columns) & set(quality.build_domains(plan, "exact").columns)


def test_in_the_domain_and_elsewhere(plan, results) -> None:
    grid = quality.build_fine_tuning(plan)
    assert grid.columns == ("it", "news", "medical")
    tuned = grid.lines[quality.TUNED]
    models = {row.model for cell in tuned.values() for row in cell.rows}
    assert len(models) == len(plan.seeds)  # one model of a seed serves all test sets
    both = [row.memory for cell in grid.lines[quality.BOTH].values() for row in cell.rows]
    assert {memory.model for memory in both} == models
    assert all(memory.seed == memory.model.settings.seed for memory in both)
    assert {row.memory.model for row in grid.lines[quality.DEFAULT]["it"].rows} == {None}
    adapters = {row.model for cell in grid.lines[quality.LORA].values() for row in cell.rows}
    assert {model.settings.lora_rank > 0 for model in adapters} == {True}
    assert {model.settings.lora_rank for model in models} == {0}
    assert {row.memory.model for cell in grid.lines[quality.LORA_BOTH].values() for row in cell.rows} == adapters
    names = [row.name for row in grid.rows]
    assert len(set(names)) == len(names)
    stages = {"finetuned": {"seconds": 120.0}}
    bleu = put_score(results, tuned["news"].rows[0], 0.4, stages=stages)
    put_score(results, tuned["it"].rows[0], 0.7, stages=stages)
    put_score(results, grid.lines[quality.NMT]["news"].rows[0], 0.6)
    text = FINE_TUNING.lay_out(plan, results)
    assert cells_of(text, quality.TUNED)[1] == f"{bleu:.2f}"
    assert "fine-tuned 2.0 minutes" in text
    assert "CKMT* not run" in text
    forgotten = [d for d in FINE_TUNING.differences(plan, results) if d["column"] == "news"]
    assert [(d["system"], d["value"] < 0) for d in forgotten] == [(quality.TUNED, True)]
