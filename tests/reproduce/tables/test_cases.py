from __future__ import annotations

from dataclasses import replace

from ibidem.reproduce.data import Data
from ibidem.reproduce.rows.own import OwnTranslation
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.smoke import own_sentences
from ibidem.reproduce.tables import cases

from ..made_up import TRACE


def test_the_most_different_short_ones_come_first() -> None:
    sources = ["eins", "zwei", "drei " * 13, "vier", "fünf"]
    translations = {
        "base": ["one", "two", "a", "four", "five"],
        "memory": ["one", "too", "b", "vier", "five"],
        "pruned": ["one", "two", "c", "4", "five"],
    }
    chosen = cases.choose_cases(sources, sources, translations)
    assert [case.source for case in chosen] == ["vier", "zwei"]
    assert chosen[0].translations == {"base": "four", "memory": "vier", "pruned": "4"}
    assert [case.source for case in cases.choose_cases(sources, sources, translations, 1)] == ["vier"]


def test_only_our_own_sentences_are_written_and_the_test_set_is_printed(plan, results, tmp_path) -> None:
    plan = replace(plan, domain="it")
    own = [sentence for sentence in own_sentences() if sentence.domain == "software"]
    (tmp_path / "data" / "it").mkdir(parents=True)
    (tmp_path / "data" / "it" / "test.tsv").write_text("geheimes Deutsch\tsecret English\n", encoding="utf-8")
    assert cases.TABLE.lay_out(plan, results) == "not run"
    for label, system in cases.systems(plan).items():
        for row, lines in (
            (OwnTranslation(system), [f"{label} {number}" for number in range(len(own))]),
            (Translation(system, "it"), [f"hidden {label}"]),
        ):
            results.put(row, Measured({"name": row.name, "seed": row.seed, **TRACE}, {}, lines))
    written = cases.TABLE.lay_out(plan, results)
    assert own[0].german in written
    assert "CKMT* 0" in written
    assert "hidden" not in written
    assert "Deutsch" not in written
    printed = cases.TABLE.aside(plan, results, Data(tmp_path / "data"))
    assert "geheimes Deutsch" in printed
    assert "hidden PCKMT*" in printed
