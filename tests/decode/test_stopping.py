"""A search and an explanation stop at the step at which their check raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ibidem.decode import BeamSearcher, SearchSettings, Translator
from ibidem.decode.fused import CudaGraphSearch
from ibidem.decode.scoring import BaseScorer
from ibidem.decode.search import beam_search, limits_of, rules_of

from .oracle import limited

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.model import BaseModel

LINES = ["Datei öffnen", "Der Hund läuft im Garten.", "Die Datei wurde gespeichert."]


class StoppedError(Exception):
    """Raised by a check."""


class Count:
    """A check that raises at its last call."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.last:
            raise StoppedError


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that decoders take from now on, as a list that grows by one for each."""
    from ibidem.model.fast_marian import FastMarianDecoding
    from ibidem.model.native_engine import NativeDecoding

    taken: list[int] = []
    for kind in (FastMarianDecoding, NativeDecoding):
        step = kind.step

        def counted(self: Any, tokens: Any, step: Callable[..., Any] = step) -> Any:
            taken.append(len(tokens))
            return step(self, tokens)

        monkeypatch.setattr(kind, "step", counted)
    return taken


def test_a_search_stops_before_the_next_step(tiny: BaseModel, steps: list[int]) -> None:
    translator = Translator(tiny, settings=limited(40, beam=2))
    check = Count(5)
    with pytest.raises(StoppedError):
        translator.translate(LINES, check=check)
    # One call precedes encoding, and one every step: the fifth is that before the fourth step.
    assert (check.calls, len(steps)) == (5, 3)
    assert translator.translate(LINES) == Translator(tiny, settings=limited(40, beam=2)).translate(LINES)


def test_batches_after_the_one_that_stopped_do_not_begin(tiny: BaseModel, steps: list[int]) -> None:
    translator = Translator(tiny, settings=limited(40, beam=1), batch_size=1)
    with pytest.raises(StoppedError):
        translator.translate(["Datei öffnen"] * 20, check=Count(1))
    assert steps == []


def test_a_check_changes_nothing_that_is_found(tiny: BaseModel) -> None:
    translator = Translator(tiny, settings=limited(12, beam=2))
    check = Count(-1)
    assert translator.translate(LINES, check=check) == translator.translate(LINES)
    assert check.calls >= 12
    assert translator.explain(LINES, check=check) == translator.explain(LINES)


def test_a_fused_search_stops(tiny: BaseModel) -> None:
    assert tiny.lean is not None
    settings = SearchSettings(beam=2, max_length_ratio=0, max_length_extra=40)
    sources = tiny.tokens.encode_sources(LINES)
    fused = CudaGraphSearch(tiny, tiny.lean, BaseScorer())
    check = Count(3)
    with pytest.raises(StoppedError):
        fused.search(sources, rules_of(tiny, settings), limits_of(tiny, sources, settings), check)
    found = fused.search(sources, rules_of(tiny, settings), limits_of(tiny, sources, settings), Count(-1))
    assert [best[0].tokens for best in found] == [
        best[0].tokens for best in beam_search(tiny, sources, settings, BaseScorer())
    ]


def test_a_search_with_prefixes_stops(tiny: BaseModel, steps: list[int]) -> None:
    sources = tiny.tokens.encode_sources(LINES)
    with pytest.raises(StoppedError):
        BeamSearcher(tiny)(sources, limited(40, beam=2), BaseScorer(), [[], [], []], Count(2))
    assert steps == []


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_explanation_stops(tiny_folder: Any, dtype: str, steps: list[int]) -> None:
    from ibidem.model import load_model

    model = load_model(tiny_folder, device="cpu", dtype=dtype)
    translator = Translator(model, settings=limited(12, beam=2))
    found = translator.search(LINES)
    steps.clear()
    with pytest.raises(StoppedError):
        translator.explain_found(LINES, found, check=Count(1))
    assert steps == []
    complete = Count(-1)
    translator.explain_found(LINES, found, check=complete)
    # Called for every batch, every step where steps are taken one by one, and every part.
    assert complete.calls == 1 + len(steps) + len(LINES)
