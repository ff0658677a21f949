"""Several memories mounted at once, and how they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ibidem.combine import FixedCombiner
from ibidem.decode import EnsembleScorer, Translator
from ibidem.errors import MismatchError, UsageError

from .oracle import limited, write_memory

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.memory import Memory
    from ibidem.model import BaseModel

COMBINER = FixedCombiner(4, 0.9, 1e-3)


@pytest.fixture(scope="module")
def two(tiny: BaseModel, sentences: list[Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Memory, Memory]:
    """Two memories without a common sentence."""
    folder = tmp_path_factory.mktemp("two")
    return (
        write_memory(tiny, sentences[:20], folder / "one"),
        write_memory(tiny, sentences[20:40], folder / "other"),
    )


def test_neighbours_come_from_every_memory(tiny: BaseModel, two, sentences: list[Any]) -> None:
    translator = Translator(tiny, list(two), combiner=COMBINER)
    for explanation in translator.explain([s.german for s in sentences[:40:4]]):
        for token in explanation.tokens:
            assert [neighbour.pair.memory for neighbour in token.neighbours].count(str(two[0].path)) == 4
            assert [neighbour.pair.memory for neighbour in token.neighbours].count(str(two[1].path)) == 4
    assert translator.memories == list(two)


def test_weights_decide_between_memories(tiny: BaseModel, sentences: list[Any], tmp_path: Path) -> None:
    """Both memories know the sentence, and translate it differently."""
    german = sentences[0]
    memories = [
        write_memory(tiny, [german._replace(english=english)], tmp_path / english)
        for english in ("Yes sir", "No madam")
    ]
    for weights, expected in (((3, 1), "Yes sir"), ((1, 3), "No madam")):
        given = list(zip(memories, weights, strict=True))
        assert Translator(tiny, given, combiner=COMBINER).translate([german.german]) == [expected]


def test_the_scores_are_explained(tiny: BaseModel, two, short: list[Any]) -> None:
    translator = Translator(
        tiny, [(two[0], 2.0), two[1].path], combiner=FixedCombiner(4, 0.5, 10.0), settings=limited(12)
    )
    assert isinstance(translator.scorer, EnsembleScorer)
    for explanation in translator.explain([s.german for s in short]):
        total = sum(token.log_probability for token in explanation.tokens) / len(explanation.tokens)
        assert total == pytest.approx(explanation.scores[0], abs=1e-5)


def test_an_empty_memory_changes_nothing(tiny: BaseModel, two, short: list[Any], tmp_path: Path) -> None:
    empty = write_memory(tiny, [], tmp_path / "empty")
    texts = [s.german for s in short]
    both = Translator(tiny, [empty, two[0]], combiner=COMBINER, settings=limited(12))
    assert both.translate(texts) == Translator(tiny, two[0], combiner=COMBINER, settings=limited(12)).translate(texts)
    assert Translator(tiny, empty, settings=limited(12)).translate(texts) == Translator(
        tiny, [], settings=limited(12)
    ).translate(texts)


def test_what_cannot_be_mounted_is_refused_by_name(tiny: BaseModel, model_of, two, tmp_path: Path) -> None:
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="one cannot have the weight"):
            Translator(tiny, [(two[0], weight)], combiner=COMBINER)
    with pytest.raises(UsageError, match="given twice"):
        Translator(tiny, [two[0], str(two[0].path)], combiner=COMBINER)
    other = write_memory(model_of("marian"), [], tmp_path / "foreign")
    with other.edit() as edit:
        edit.set_complete(True)
        edit.commit()
    with pytest.raises(MismatchError, match="foreign"):
        Translator(tiny, [two[0], other.path], combiner=COMBINER)
