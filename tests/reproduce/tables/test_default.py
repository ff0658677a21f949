from __future__ import annotations

from dataclasses import replace

from ibidem.reproduce.stages import FineTuned
from ibidem.reproduce.tables import default, quality


def test_the_fixed_combiner_is_chosen_by_bleu(plan) -> None:
    grid = default.build_default(plan)
    fixed = [row.memory for cell in grid.lines[default.FIXED_ENTRIES].values() for row in cell.rows]
    assert fixed
    assert {memory.tuning.objective for memory in fixed} == {"bleu"}
    # A pruned copy of that memory is tuned before the pruning, so with the same settings.
    [row, *_] = grid.lines[default.PRUNED]["it"].rows
    assert row.memory.tuning == row.memory.copied.tuning
    others = [
        replace(fixed[0], seed=fixed[0].seed + 1),
        replace(fixed[0], model=FineTuned(("it",), "it", plan.fine_tuning)),
    ]
    assert {memory.tuning.objective for memory in others} == {"likelihood"}
    assert others[0].tuning.contextual.seed == others[0].seed


def test_every_combiner_searches_the_same_memory(plan) -> None:
    grid = default.build_default(plan)
    rows = [grid.lines[label]["it"].rows[0] for label in (default.FIXED_ENTRIES, quality.DEFAULT)]
    assert len({row.memory for row in rows}) == 1
    assert [row.combiner for row in rows] == ["fixed", "contextual"]
