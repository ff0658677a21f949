"""Speeds divide by the time, and every system is warmed up before it is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import BaseScorer, SearchSettings, Translator
from ibidem.errors import UsageError
from ibidem.evaluate import Speed, evaluate_systems
from ibidem.evaluate.evaluation import WARM_UP_LINES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ibidem.decode import Scorer
    from ibidem.memory import Memory
    from ibidem.model import BaseModel


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

    def spy(texts: Iterable[str], scorer: Scorer) -> list[str]:
        calls.append((scorer, list(texts)))
        return translate(calls[-1][1], scorer=scorer)

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
