from __future__ import annotations

from ibidem.reproduce.tables import fine_tuning

from ..made_up import cells_of, put_score


def test_in_the_domain_and_elsewhere(plan, results) -> None:
    grid = fine_tuning.build(plan)
    assert grid.columns == ("it", "news", "medical")
    tuned = grid.lines[fine_tuning.TUNED]
    models = {row.model for cell in tuned.values() for row in cell.rows}
    assert len(models) == len(plan.seeds)  # one model of a seed serves all test sets
    stages = {"finetuned": {"seconds": 120.0}}
    bleu = put_score(results, tuned["news"].rows[0], 0.4, stages=stages)
    put_score(results, tuned["it"].rows[0], 0.7, stages=stages)
    put_score(results, grid.lines[fine_tuning.NMT]["news"].rows[0], 0.6)
    text = fine_tuning.TABLE.lay_out(plan, results)
    assert cells_of(text, fine_tuning.TUNED)[1] == f"{bleu:.2f}"
    assert "fine-tuned 2.0 minutes" in text
    assert "CKMT* not run" in text
    forgotten = [d for d in fine_tuning.TABLE.differences(plan, results) if d["column"] == "news"]
    assert [(d["system"], d["value"] < 0) for d in forgotten] == [(fine_tuning.TUNED, True)]
