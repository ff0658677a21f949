from __future__ import annotations

import os
from pathlib import Path

import pytest
import sacrebleu

from ibidem.errors import UsageError
from ibidem.evaluate import compare

SENTENCES = Path(__file__).parents[2] / "src" / "ibidem" / "reproduce" / "sentences.tsv"
REFERENCES = [line.split("\t")[2] for line in SENTENCES.read_text(encoding="utf-8").splitlines()[:80]]


def drop_last_words(every: int) -> list[str]:
    """Make a system that is right except that it loses the last word of every n-th sentence."""
    return [text.rsplit(" ", 1)[0] if number % every == 0 else text for number, text in enumerate(REFERENCES)]


def test_a_system_compared_with_itself_is_not_significant() -> None:
    system = drop_last_words(2)

    for comparison in compare(system, system, REFERENCES, samples=100):
        assert comparison.baseline == comparison.system
        assert comparison.p_value == 1.0
        assert not comparison.significant


def test_a_clearly_better_system_is_significant() -> None:
    comparisons = compare(drop_last_words(1), drop_last_words(10), REFERENCES, samples=200)

    assert [comparison.metric for comparison in comparisons] == ["BLEU", "chrF"]
    for comparison in comparisons:
        assert comparison.system > comparison.baseline
        assert comparison.significant


def test_a_difference_in_one_sentence_is_not_significant() -> None:
    baseline = drop_last_words(2)
    system = [REFERENCES[0], *baseline[1:]]

    for comparison in compare(baseline, system, REFERENCES, samples=200):
        assert comparison.system > comparison.baseline
        assert not comparison.significant


def test_scores_and_half_widths_are_those_of_sacrebleu() -> None:
    system = drop_last_words(3)
    bleu = compare(drop_last_words(2), system, REFERENCES, samples=300, seed=7)[0]

    assert bleu.system == pytest.approx(sacrebleu.corpus_bleu(system, [REFERENCES]).score)
    assert 0 < bleu.system_half_width < 10
    assert 0 < bleu.baseline_half_width < 10
    assert "|bs:300|seed:7|" in bleu.signature


def test_the_seed_decides_the_draws() -> None:
    baseline, system = drop_last_words(2), drop_last_words(3)

    first = compare(baseline, system, REFERENCES, samples=50, seed=1)
    assert first == compare(baseline, system, REFERENCES, samples=50, seed=1)
    other = compare(baseline, system, REFERENCES, samples=50, seed=2)
    assert [c.system_half_width for c in first] != [c.system_half_width for c in other]


@pytest.mark.parametrize("before", [None, "none", "99"])
def test_the_environment_neither_decides_nor_changes(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    baseline, system = drop_last_words(2), drop_last_words(3)
    expected = compare(baseline, system, REFERENCES, samples=50)
    if before is None:
        monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    else:
        monkeypatch.setenv("SACREBLEU_SEED", before)

    assert compare(baseline, system, REFERENCES, samples=50) == expected
    assert os.environ.get("SACREBLEU_SEED") == before


def test_unequal_counts_name_the_system_at_fault() -> None:
    with pytest.raises(UsageError, match="system has 79 sentences but there are 80 references"):
        compare(REFERENCES, REFERENCES[:79], REFERENCES)
    with pytest.raises(UsageError, match="baseline has 1 sentences but there are 80 references"):
        compare(REFERENCES[:1], REFERENCES, REFERENCES)


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(UsageError, match="samples is 0"):
        compare(REFERENCES, REFERENCES, REFERENCES, samples=0)
    with pytest.raises(UsageError, match="seed is 0"):
        compare(REFERENCES, REFERENCES, REFERENCES, seed=0)
