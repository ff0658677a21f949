"""An explanation adds up: what is shown gives the probabilities that the search used."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ibidem.combine import Combiner, FixedCombiner, mix
from ibidem.decode import Explanation, MemoryScorer, Retrieved, Translator, beam_search
from ibidem.decode.explain import describe

from .oracle import adaptive, contextual, limited, write_memory

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from ibidem.combine import StepContext
    from ibidem.decode import SearchSettings, Token
    from ibidem.memory import Memory
    from ibidem.model import BaseModel

LIMIT = 12
CLOSE = 1e-5


COMBINERS = [FixedCombiner(4, 0.6, 20.0), adaptive(), contextual()]


@pytest.fixture(scope="session")
def memory_of(tmp_path_factory: pytest.TempPathFactory, short: list[Any]):
    """A memory of half of the short sentences, for any model."""
    made: dict[str, Memory] = {}

    def make(model: BaseModel) -> Memory:
        if model.name not in made:
            made[model.name] = write_memory(model, short[::2], tmp_path_factory.mktemp("explained") / "memory")
        return made[model.name]

    return make


def score_of(tokens: list[Token], model: BaseModel, settings: SearchSettings) -> float:
    length = len(tokens) + len(model.tokens.start) - 1
    return sum(token.log_probability for token in tokens) / length**settings.length_penalty


def check_sums(explanation: Explanation) -> None:
    for token in explanation.tokens:
        total = sum(neighbour.weight for neighbour in token.neighbours)
        agreeing = sum(neighbour.weight for neighbour in token.neighbours if neighbour.agrees)
        assert token.base_weight + total == pytest.approx(1, abs=1e-6)
        assert token.probability == pytest.approx(token.base_weight * token.base_probability + agreeing, rel=1e-9)
        assert all(neighbour.agrees == (neighbour.value == token.value) for neighbour in token.neighbours)
        if token.memory_probability is not None:
            from_both = token.base_weight * token.base_probability + total * token.memory_probability
            assert token.probability == pytest.approx(from_both, rel=1e-9)


@pytest.mark.parametrize(
    ("combiner", "penalty"), list(zip(COMBINERS, [1.7, 1.0, 1.0], strict=True)), ids=["fixed", "adaptive", "contextual"]
)
def test_the_tokens_give_the_score_of_the_search(
    any_model: BaseModel, memory_of, short: list[Any], combiner: Combiner, penalty: float
) -> None:
    """Some hypotheses run into the limit, with and without an end that the model forces."""
    settings = replace(limited(LIMIT, beam=3), length_penalty=penalty)
    translator = Translator(any_model, memory_of(any_model), combiner=combiner, settings=settings, batch_size=5)
    texts = [s.german for s in short]
    explanations = translator.explain(texts)
    assert [explanation.translation for explanation in explanations] == translator.translate(texts)
    found = translator.search(translator.split(texts))
    for explanation, parts in zip(explanations, found, strict=True):
        assert explanation.scores == pytest.approx([parts[0][0].score], abs=CLOSE)
        assert score_of(list(explanation.tokens), any_model, settings) == pytest.approx(parts[0][0].score, abs=CLOSE)
        check_sums(explanation)


@pytest.mark.parametrize("margin", [math.inf, 0.0])
def test_steps_without_retrieval_have_no_neighbours(
    tiny: BaseModel, memory_of, short: list[Any], margin: float
) -> None:
    """The last hypotheses of a beam skipped retrieval while they were beyond the retrieval margin."""
    settings = limited(LIMIT, beam=3, n_best=3, retrieval_margin=margin)
    translator = Translator(tiny, memory_of(tiny), combiner=COMBINERS[0], settings=settings)
    texts = [s.german for s in short]
    layouts = translator.split(texts)
    found = [[hypotheses[-1:] for hypotheses in parts] for parts in translator.search(layouts)]
    assert any(parts[0][0].skipped for parts in found) == (margin < math.inf)
    for explanation, parts in zip(translator.explain_found(layouts, found), found, strict=True):
        last = parts[0][0]
        assert score_of(list(explanation.tokens), tiny, settings) == pytest.approx(last.score, abs=CLOSE)
        for number, token in enumerate(explanation.tokens):
            assert (number in last.skipped) == (token.base_weight == 1)


class Recorder:
    """A scorer that keeps the mixtures of its results."""

    def __init__(self, scorer: MemoryScorer, model: BaseModel) -> None:
        self._scorer = scorer
        self._model = model
        self.memories = scorer.memories
        self.answers: list[torch.Tensor] = []

    def retrieve(self, states: torch.Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        retrieved = self._scorer.retrieve(states, group_size, context)
        self.answers.append(mix(self._model.project(states).log_softmax(dim=1), retrieved.weights, retrieved.values))
        return retrieved


@pytest.mark.parametrize("combiner", COMBINERS, ids=["fixed", "adaptive", "contextual"])
def test_every_probability_is_the_one_that_was_used(
    tiny: BaseModel, memory_of, short: list[Any], combiner: Combiner
) -> None:
    """Greedy search whose distributions are recorded, against the explained probabilities and neighbours."""
    settings = limited(LIMIT, beam=1)
    translator = Translator(tiny, memory_of(tiny), combiner=combiner, settings=settings)
    assert isinstance(translator.scorer, MemoryScorer)
    for text in [s.german for s in short]:
        recorder = Recorder(translator.scorer, tiny)
        beam_search(tiny, tiny.tokens.encode_sources([text]), settings, recorder)  # type: ignore[arg-type]
        explanation = translator.explain([text])[0]
        assert len(recorder.answers) == len(explanation.tokens)
        for token, used in zip(explanation.tokens, recorder.answers, strict=True):
            assert token.probability == pytest.approx(float(used[0, token.value].exp()), abs=CLOSE)
            for neighbour in token.neighbours:
                shown = sum(other.weight for other in token.neighbours if other.value == neighbour.value)
                assert shown <= float(used[0, neighbour.value].exp()) + CLOSE


def test_neighbours_are_shown_in_their_sentences(tiny: BaseModel, memory_of, short: list[Any]) -> None:
    memory = memory_of(tiny)
    translator = Translator(tiny, memory, combiner=FixedCombiner(4, 0.9, 1e-4), settings=limited(40))
    stored = {pair.source: pair for pair in memory.sentences()}
    for sentence in short[::2]:
        explanation = translator.explain([sentence.german])[0]
        spelt = tiny.tokens.decode(tiny.tokens.encode_targets([sentence.english])[0])
        assert explanation.translation == spelt
        for position, token in enumerate(explanation.tokens):
            nearest = token.neighbours[0]
            assert (nearest.pair.source, nearest.pair.target) == (sentence.german, sentence.english)
            assert (nearest.pair.origin, nearest.pair.memory) == ("test", str(memory.path))
            assert nearest.entry == stored[sentence.german].entries[position]
            assert nearest.agrees
            if spelt == sentence.english:  # the same token, so it stands at the same place
                assert (nearest.start, nearest.end) == (token.start, token.end)
            for neighbour in token.neighbours:
                marked = neighbour.pair.target[neighbour.start : neighbour.end]
                plain = tiny.tokens.decode([neighbour.value])
                assert not marked.isspace()
                assert plain in ("", marked) or not plain.isascii() or not neighbour.pair.target.isascii()


def test_words_cover_the_translation(any_model: BaseModel, memory_of, short: list[Any]) -> None:
    translator = Translator(any_model, memory_of(any_model), combiner=COMBINERS[0], settings=limited(LIMIT))
    for explanation in translator.explain([s.german for s in short]):
        written = [word for word in explanation.words if word.text]
        assert " ".join(word.text for word in written) == explanation.translation
        assert [explanation.translation[word.start : word.end] for word in written] == [word.text for word in written]
        assert sum(len(word.tokens) for word in explanation.words) == len(explanation.tokens)
        for word in written:
            inside = [token for token in word.tokens if token.start < token.end]
            assert all(word.start <= token.start and token.end <= word.end for token in inside)


def test_very_long_and_blank_texts(tiny: BaseModel, memory_of) -> None:
    translator = Translator(tiny, memory_of(tiny), combiner=COMBINERS[0], settings=limited(6, beam=1))
    blank, long = translator.explain(["  ", "Der Hund läuft. " * 80])
    assert (blank.translation, blank.scores, blank.words) == ("  ", (), ())
    assert len(long.scores) > 2
    assert long.translation == translator.translate([long.source])[0]
    for part, score in enumerate(long.scores):
        tokens = [token for token in long.tokens if token.part == part]
        assert score_of(tokens, tiny, translator.settings) == pytest.approx(score, abs=CLOSE)
    words = [word for word in long.words if word.text]
    assert all(long.translation[word.start : word.end] == word.text for word in words)


def test_an_explanation_of_several_sentences_has_those_of_each(tiny: BaseModel, memory_of) -> None:
    settings = limited(6, beam=2)
    translator = Translator(tiny, memory_of(tiny), combiner=COMBINERS[0], settings=settings, piece_tokens=16)
    text = "  Der Hund läuft.\n\nDie Datei wurde gespeichert, und niemand hat es bemerkt.  Rindfleischetikettierung"
    layout = translator.split([text])[0]
    assert len(layout.pieces) > 3
    # In batches of one, so that no number depends on which pieces share a batch.
    translator.batch_size = 1
    whole, *alone = translator.explain([text, *(piece.text for piece in layout.pieces)])
    assert whole.source == text
    assert whole.translation == layout.fill([one.translation for one in alone])[0]
    assert whole.scores == tuple(score for one in alone for score in one.scores)
    assert [word.text for word in whole.words] == [word.text for one in alone for word in one.words]
    assert {token.part for token in whole.tokens} == set(range(len(layout.pieces)))
    assert all(whole.translation[word.start : word.end] == word.text for word in whole.words)
    neighbours = [[token.neighbours for token in word.tokens] for word in whole.words]
    assert neighbours == [[token.neighbours for token in word.tokens] for one in alone for word in one.words]


def test_the_base_model_alone(tiny: BaseModel, short: list[Any]) -> None:
    settings = limited(LIMIT)
    for explanation in Translator(tiny, settings=settings).explain([s.german for s in short]):
        assert all(token.base_weight == 1 and token.neighbours == () for token in explanation.tokens)
        assert all(token.probability == token.base_probability for token in explanation.tokens)
        assert all(word.summary == "from the base model: no neighbour" for word in explanation.words)
        assert score_of(list(explanation.tokens), tiny, settings) == pytest.approx(explanation.scores[0], abs=CLOSE)


def test_a_forced_prefix_is_explained(tiny: BaseModel, memory_of) -> None:
    translator = Translator(tiny, memory_of(tiny), combiner=FixedCombiner(4, 1.0, 1.0), settings=limited(LIMIT))
    explanation = translator.explain(["Datei öffnen"], prefixes=["Zebra"])[0]
    assert explanation.translation.startswith("Zebra")
    assert math.isfinite(score_of(list(explanation.tokens), tiny, translator.settings))
    check_sums(explanation)


def test_an_explanation_is_json(tiny: BaseModel, memory_of, short: list[Any]) -> None:
    translator = Translator(tiny, memory_of(tiny), combiner=COMBINERS[1], settings=limited(LIMIT))
    explanation = translator.explain([short[0].german])[0]
    document = json.loads(json.dumps(explanation.to_json(), allow_nan=False))
    assert document["translation"] == explanation.translation
    first = document["words"][0]["tokens"][0]
    assert first["probability"] == explanation.tokens[0].probability
    assert first["neighbours"][0]["pair"]["target"] == explanation.tokens[0].neighbours[0].pair.target


def test_an_explanation_leaves_no_hook_and_counts_no_work(tiny: BaseModel, memory_of) -> None:
    translator = Translator(tiny, memory_of(tiny), combiner=COMBINERS[0], settings=limited(LIMIT))
    translator.explain(["Datei öffnen"])
    assert translator.work.sentences == 1
    assert not tiny.projection._forward_pre_hooks


@pytest.mark.parametrize(
    ("memory_share", "agreeing", "retrieved", "summary"),
    [
        (0.83, 6, 8, "from memory: 83 %, 6 of 8 neighbours"),
        (0.09, 2, 16, "from the base model: 91 %, 2 of 16 neighbours"),
        (0.0, 0, 8, "from the base model: 100 %, 0 of 8 neighbours"),
        (0.0, 0, 0, "from the base model: no neighbour"),
    ],
)
def test_summaries(memory_share: float, agreeing: int, retrieved: int, summary: str) -> None:
    assert describe(memory_share, agreeing, retrieved) == summary


def test_a_memory_in_ram_has_no_sentences_to_show(tiny: BaseModel, short: list[Any], tmp_path: Path) -> None:
    memory = write_memory(tiny, short[:2], tmp_path / "memory")
    translator = Translator(tiny, memory, combiner=COMBINERS[0], settings=limited(LIMIT))
    assert isinstance(translator.scorer, MemoryScorer)
    translator.scorer.memories = (None,)
    with pytest.raises(ValueError, match="no memory folder"):
        translator.explain(["Datei öffnen"])
