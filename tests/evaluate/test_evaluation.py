"""BLEU, chrF and their comparison are those of sacreBLEU; every system is warmed up before it is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sacrebleu

from ibidem.decode import BaseScorer, SearchSettings, Translator
from ibidem.errors import UsageError
from ibidem.evaluate import Speed, compare, evaluate_systems, score
from ibidem.evaluate.evaluation import WARM_UP_LINES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.decode import Scorer
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

REFERENCES = [
    "Open the file with the editor.",
    "The printer reports a paper jam.",
    "Could you bring us the bill, please?",
]
HYPOTHESES = [
    "Open the file in the editor.",
    "The printer is reporting a paper jam.",
    "could you bring us the bill please?",
]
SENTENCES = Path(__file__).parents[2] / "src" / "ibidem" / "reproduce" / "sentences.tsv"
ALL_REFERENCES = [line.split("\t")[2] for line in SENTENCES.read_text(encoding="utf-8").splitlines()[:80]]


def test_values_are_those_of_sacrebleu_called_directly() -> None:
    bleu, chrf = score(HYPOTHESES, REFERENCES)

    assert (bleu.name, chrf.name) == ("BLEU", "chrF")
    assert bleu.value == pytest.approx(
        sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="13a", lowercase=False, smooth_method="exp").score
    )
    assert chrf.value == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert 0 < bleu.value < 100


def test_signatures_name_the_settings_and_the_version() -> None:
    bleu, chrf = score(HYPOTHESES, REFERENCES)

    assert bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert chrf.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_case_counts() -> None:
    assert score([line.upper() for line in REFERENCES], REFERENCES)[0].value < 50
    assert score(REFERENCES, REFERENCES)[0].value == pytest.approx(100)


def test_unequal_counts_are_rejected_with_both_counts() -> None:
    with pytest.raises(UsageError, match=r"hypotheses has 2 sentences but there are 3 references"):
        score(HYPOTHESES[:2], REFERENCES)


def test_no_lines_are_rejected() -> None:
    with pytest.raises(UsageError, match="0 hypotheses, 0 references"):
        score([], [])


def test_one_string_is_not_a_list_of_sentences() -> None:
    with pytest.raises(UsageError, match="split one string into its lines"):
        score("one", "two")


def test_importing_the_package_loads_no_heavy_library() -> None:
    program = (
        "import sys, ibidem.evaluate;"
        "print([name for name in ('numpy', 'sacrebleu', 'torch', 'transformers') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def drop_last_words(every: int) -> list[str]:
    """Return the references without the last word of every n-th sentence."""
    return [text.rsplit(" ", 1)[0] if number % every == 0 else text for number, text in enumerate(ALL_REFERENCES)]


def test_a_system_compared_with_itself_is_not_significant() -> None:
    system = drop_last_words(2)

    for comparison in compare(system, system, ALL_REFERENCES, samples=100):
        assert comparison.baseline == comparison.system
        assert comparison.p_value == 1.0
        assert not comparison.significant


def test_a_clearly_better_system_is_significant() -> None:
    comparisons = compare(drop_last_words(1), drop_last_words(10), ALL_REFERENCES, samples=200)

    assert [comparison.metric for comparison in comparisons] == ["BLEU", "chrF"]
    for comparison in comparisons:
        assert comparison.system > comparison.baseline
        assert comparison.significant


def test_a_difference_in_one_sentence_is_not_significant() -> None:
    baseline = drop_last_words(2)
    system = [ALL_REFERENCES[0], *baseline[1:]]

    for comparison in compare(baseline, system, ALL_REFERENCES, samples=200):
        assert comparison.system > comparison.baseline
        assert not comparison.significant


def test_scores_are_those_of_sacrebleu_with_the_interval_of_the_difference() -> None:
    system = drop_last_words(3)
    bleu, chrf = compare(drop_last_words(2), system, ALL_REFERENCES, samples=300, seed=7)

    assert bleu.system == pytest.approx(sacrebleu.corpus_bleu(system, [ALL_REFERENCES]).score)
    assert chrf.system == pytest.approx(sacrebleu.corpus_chrf(system, [ALL_REFERENCES]).score)
    for found in (bleu, chrf):
        assert found.low < found.difference < found.high
        assert found.low > 0 or not found.significant
    assert bleu.signature == score(system, ALL_REFERENCES)[0].signature


def test_the_seed_determines_the_draws() -> None:
    baseline, system = drop_last_words(2), drop_last_words(3)

    first = compare(baseline, system, ALL_REFERENCES, samples=50, seed=1)
    assert first == compare(baseline, system, ALL_REFERENCES, samples=50, seed=1)
    other = compare(baseline, system, ALL_REFERENCES, samples=50, seed=2)
    assert [(c.low, c.high) for c in first] != [(c.low, c.high) for c in other]


def test_unequal_counts_name_the_wrong_system() -> None:
    with pytest.raises(UsageError, match="system has 79 sentences but there are 80 references"):
        compare(ALL_REFERENCES, ALL_REFERENCES[:79], ALL_REFERENCES)
    with pytest.raises(UsageError, match="baseline has 1 sentences but there are 80 references"):
        compare(ALL_REFERENCES[:1], ALL_REFERENCES, ALL_REFERENCES)


def test_invalid_samples_and_seeds_are_rejected() -> None:
    with pytest.raises(UsageError, match="Invalid samples 0"):
        compare(ALL_REFERENCES, ALL_REFERENCES, ALL_REFERENCES, samples=0)
    with pytest.raises(UsageError, match="Invalid seed -1"):
        compare(ALL_REFERENCES, ALL_REFERENCES, ALL_REFERENCES, seed=-1)


def test_rates_divide_by_the_time() -> None:
    speed = Speed(sentences=30, tokens=450, seconds=1.5)

    assert speed.sentences_per_second == 20
    assert speed.tokens_per_second == 300


@pytest.mark.parametrize(
    ("sentences", "tokens", "seconds"),
    [(1, 1, 0.0), (1, 1, -2.0), (-1, 1, 1.0), (1, -1, 1.0), (1, 1, float("nan"))],
)
def test_invalid_speeds_are_rejected(sentences: int, tokens: int, seconds: float) -> None:
    with pytest.raises(UsageError, match="Invalid speed"):
        Speed(sentences, tokens, seconds)


@pytest.mark.parametrize("lines", [3, WARM_UP_LINES, 2 * WARM_UP_LINES + 1])
def test_every_system_translates_some_lines_untimed_first(
    tiny: BaseModel, learnt: Memory, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    translator = Translator(tiny, learnt, settings=SearchSettings(beam=1, max_length_ratio=0, max_length_extra=4))
    scorers = {"base": BaseScorer(), "memory": translator.scorer}
    calls: list[tuple[Any, list[str]]] = []
    translate = translator.translate

    def spy(texts: Iterable[str], scorer: Scorer, glossary: None) -> list[str]:
        calls.append((scorer, list(texts)))
        return translate(calls[-1][1], scorer=scorer, glossary=glossary)

    monkeypatch.setattr(translator, "translate", spy)
    sources = [f"Wort {number}" for number in range(lines)]
    results = evaluate_systems(translator, scorers, sources, sources, samples=2)
    assert [scorer for scorer, _ in calls] == [scorer for scorer in scorers.values() for _ in range(2)]
    for warm_up, timed in zip(calls[::2], calls[1::2], strict=True):
        assert 1 <= len(warm_up[1]) <= WARM_UP_LINES
        assert set(warm_up[1]) <= set(sources)
        assert timed[1] == sources
    assert [result.speed.sentences for result in results] == [lines, lines]
    assert [result.name for result in results] == ["base", "memory"]
    assert [len(result.comparisons) for result in results] == [0, 2]
