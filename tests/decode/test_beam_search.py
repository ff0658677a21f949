"""The search against transformers' `generate()`, token for token, in float32; and that a check stops it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.decode import BaseScorer, BeamSearcher, SearchSettings, Translator, beam_search
from ibidem.errors import UsageError

from .conftest import ZOO
from .oracle import generate, limited

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.combine import StepContext
    from ibidem.decode import Retrieved
    from ibidem.model import BaseModel

LIMIT = 12
SETTINGS = [(1, 1.0), (2, 1.0), (4, 0.6), (4, 1.0), (4, 2.0), (5, 1.0)]
# Two scores that lie closer than this may come in either order, by the rounding of another batch size.
NEAR = 1e-4
LINES = ["Datei öffnen", "Der Hund läuft im Garten.", "Die Datei wurde gespeichert."]


@pytest.fixture(scope="session")
def sources(any_model: BaseModel, short: list[Any]) -> list[list[int]]:
    encoded = any_model.tokens.encode_sources(s.german for s in short)
    assert len({len(ids) for ids in encoded}) > 5
    return encoded


@pytest.mark.parametrize(("beam", "length_penalty"), SETTINGS)
def test_search_is_generate(any_model: BaseModel, sources: list[list[int]], beam: int, length_penalty: float) -> None:
    settings = limited(LIMIT, beam, length_penalty)
    found = beam_search(any_model, sources, settings, BaseScorer())
    expected = generate(any_model, sources, settings)
    assert [best[0].tokens for best in found] == [best[0][0] for best in expected]
    for best, own in zip(found, expected, strict=True):
        assert own[0][1] is None or best[0].score == pytest.approx(own[0][1], abs=NEAR)


def test_n_best_is_num_return_sequences(any_model: BaseModel, sources: list[list[int]]) -> None:
    settings = limited(LIMIT, beam=5, n_best=5)
    found = beam_search(any_model, sources, settings, BaseScorer())
    for best, own in zip(found, generate(any_model, sources, settings), strict=True):
        assert [hypothesis.tokens for hypothesis in best] == [tokens for tokens, _ in own]
        assert [h.score for h in best] == pytest.approx([score for _, score in own], abs=NEAR)
        assert [h.score for h in best] == sorted((h.score for h in best), reverse=True)


def test_the_tiny_models_distinguish_searches(model_of) -> None:
    """The tests above can fail: the tiny models end some sentences, not all, and beams matter to them."""
    ended = differ = 0
    for kind in ZOO.KINDS:
        model = model_of(kind)
        sources = model.tokens.encode_sources(["Datei öffnen", "Der Arzt kommt morgen.", "Alle Änderungen verwerfen?"])
        greedy = beam_search(model, sources, limited(LIMIT, 1), BaseScorer())
        wide = beam_search(model, sources, limited(LIMIT, 5), BaseScorer())
        ended += sum(len(best[0].tokens) < LIMIT - 1 for best in (*greedy, *wide))
        differ += sum(a[0].tokens != b[0].tokens for a, b in zip(greedy, wide, strict=True))
    assert 5 < ended < 2 * 3 * len(ZOO.KINDS) - 5
    assert differ > 5


@pytest.mark.parametrize("beam", [1, 4])
def test_one_by_one_is_a_batch_of_64(tiny: BaseModel, sentences: list[Any], beam: int) -> None:
    sources = tiny.tokens.encode_sources(s.german for s in sentences[:64])
    settings = limited(LIMIT, beam)
    batched = beam_search(tiny, sources, settings, BaseScorer())
    alone = [beam_search(tiny, [ids], settings, BaseScorer())[0] for ids in sources]
    apart = [(a[0], b[0]) for a, b in zip(batched, alone, strict=True) if a[0].tokens != b[0].tokens]
    assert all(abs(a.score - b.score) < NEAR for a, b in apart), apart
    assert len(apart) <= 2


def test_greedy_is_the_best_word_at_every_step(any_model: BaseModel, sources: list[list[int]]) -> None:
    """Against a loop of argmax over the model's own steps."""
    tokens = any_model.tokens
    found = beam_search(any_model, sources[:4], limited(LIMIT, 1), BaseScorer())
    for ids, best in zip(sources[:4], found, strict=True):
        decoding = any_model.start([ids])
        fed, written, score = torch.tensor([tokens.start]), [], 0.0
        while True:
            log_probs = decoding.step(fed).logits.log_softmax(1)[0]
            log_probs[any_model.banned] = -torch.inf
            last = len(written) + 1 == LIMIT
            word = tokens.eos if last and any_model.forces_eos else int(log_probs.argmax())
            score += 0.0 if last and any_model.forces_eos else float(log_probs[word])
            if word == tokens.eos:
                break
            written.append(word)
            if last:
                break
            fed = torch.tensor([[word]])
        assert best[0].tokens == written
        length = min(len(written) + 1, LIMIT) + len(tokens.start) - 1
        assert best[0].score == pytest.approx(score / length, abs=NEAR)


@pytest.mark.parametrize("kind", [kind for kind in ZOO.KINDS if kind != "fsmt"])
@pytest.mark.parametrize(("beam", "length_penalty"), [(1, 1.0), (4, 0.0)])
def test_a_prefix_is_forced_and_the_rest_is_as_in_generate(
    model_of, short: list[Any], kind: str, beam: int, length_penalty: float
) -> None:
    """generate() leaves a prompt out of the length: comparable in greedy search, or without a penalty.

    FSMT is left out: in generate() it has no causal mask, so a prompt of several words reads ahead there.
    """
    model = model_of(kind)
    sources = model.tokens.encode_sources(s.german for s in short)
    prefixes = [ids[: i % 5] for i, ids in enumerate(model.tokens.encode_targets(s.english for s in short))]
    settings = limited(LIMIT, beam, length_penalty)
    found = beam_search(model, sources, settings, BaseScorer(), prefixes)
    for ids, prefix, best in zip(sources, prefixes, found, strict=True):
        assert best[0].tokens[: len(prefix)] == prefix
        own = generate(model, [ids], settings, prefix=prefix)[0][0]
        assert best[0].tokens == own[0]


def test_after_a_prefix_every_word_is_the_likeliest(
    any_model: BaseModel, sources: list[list[int]], short: list[Any]
) -> None:
    """In greedy search, against teacher forcing with what was written."""
    tokens = any_model.tokens
    prefixes = [ids[:3] for ids in tokens.encode_targets(s.english for s in short)]
    found = beam_search(any_model, sources, limited(LIMIT, 1), BaseScorer(), prefixes)
    for ids, prefix, best in zip(sources, prefixes, found, strict=True):
        written = [*best[0].tokens, tokens.eos]
        logits = any_model.project(any_model.states([ids], [written]).keys)
        logits[:, any_model.banned] = -torch.inf
        assert written[:3] == prefix
        # The last word may be forced by the limit.
        assert written[3 : LIMIT + 2] == logits.argmax(1).tolist()[3 : LIMIT + 2]


@pytest.mark.parametrize("kind", ["marian", "fsmt", "nllb"])
def test_the_prefixes_of_a_batch_are_independent(model_of, short: list[Any], kind: str) -> None:
    model = model_of(kind)
    sources = model.tokens.encode_sources(s.german for s in short)
    prefixes = [ids[: 2 * (i % 3)] for i, ids in enumerate(model.tokens.encode_targets(s.english for s in short))]
    settings = limited(LIMIT)
    batched = beam_search(model, sources, settings, BaseScorer(), prefixes)
    free = beam_search(model, sources, settings, BaseScorer())
    for i, prefix in enumerate(prefixes):
        alone = beam_search(model, [sources[i]], settings, BaseScorer(), [prefix])[0][0]
        assert batched[i][0].tokens == alone.tokens
        if not prefix:
            assert batched[i][0].tokens == free[i][0].tokens


def test_a_prefix_fits_the_model_or_is_refused(tiny: BaseModel, sentences: list[Any]) -> None:
    source = tiny.tokens.encode_sources([sentences[0].german])
    words = tiny.tokens.encode_targets([sentences[0].english])[0][:-1]
    longest = tiny.tokens.max_target_length
    most = (words * longest)[: longest - 1]
    best = beam_search(tiny, source, SearchSettings(), BaseScorer(), [most])[0][0]
    assert best.tokens == most
    with pytest.raises(UsageError, match=f"at most {longest - 1} tokens"):
        beam_search(tiny, source, SearchSettings(), BaseScorer(), [[*most, words[0]]])


def test_every_sentence_has_its_own_limit(tiny: BaseModel, sentences: list[Any]) -> None:
    sources = tiny.tokens.encode_sources(s.german for s in sentences[:20])
    settings = SearchSettings(beam=2, max_length_ratio=0.5, max_length_extra=1)
    for ids, best in zip(sources, beam_search(tiny, sources, settings, BaseScorer()), strict=True):
        assert len(best[0].tokens) + 1 <= int(0.5 * len(ids)) + 1


@pytest.mark.parametrize("limit", [1, 2])
def test_very_short_limits(any_model: BaseModel, sources: list[list[int]], limit: int) -> None:
    settings = limited(limit, beam=4)
    found = beam_search(any_model, sources, settings, BaseScorer())
    assert [best[0].tokens for best in found] == [best[0][0] for best in generate(any_model, sources, settings)]


def test_no_sources_no_results(tiny: BaseModel) -> None:
    assert beam_search(tiny, [], SearchSettings(), BaseScorer()) == []


@pytest.mark.parametrize(("beam", "n_best"), [(0, 1), (4, 5), (4, 0), (-1, 1)])
def test_invalid_settings_are_refused(beam: int, n_best: int) -> None:
    with pytest.raises(UsageError, match="n-best between 1 and the beam"):
        SearchSettings(beam=beam, n_best=n_best)


@pytest.mark.parametrize("margin", [-0.1, math.nan])
def test_an_invalid_margin_is_refused(margin: float) -> None:
    with pytest.raises(UsageError, match="give 0 or more"):
        SearchSettings(retrieval_margin=margin)


@pytest.mark.parametrize("ratio", [-1.0, math.nan, math.inf])
def test_an_invalid_length_ratio_is_refused(ratio: float) -> None:
    with pytest.raises(UsageError, match="max_length_ratio"):
        SearchSettings(max_length_ratio=ratio)


class Recorder:
    """A scorer without neighbours that keeps the states it was given."""

    memories = (None,)
    supports_cuda_graph = False

    def __init__(self) -> None:
        self.states: list[torch.Tensor] = []

    def retrieve(self, states: torch.Tensor, group_size: int = 1, context: StepContext | None = None) -> Retrieved:
        self.states.append(states.clone())
        return BaseScorer().retrieve(states, group_size, context)


@pytest.mark.parametrize("margin", [math.inf, 1.0, 0.0, None])
def test_hypotheses_beyond_the_margin_skip_retrieval(tiny: BaseModel, short: list[Any], margin: float | None) -> None:
    """Without neighbours the translations stay the same; only the states of skipped hypotheses change."""
    sources = tiny.tokens.encode_sources(s.german for s in short)
    every, some = Recorder(), Recorder()
    settings = limited(LIMIT)
    expected = beam_search(tiny, sources, settings, every)
    found = beam_search(tiny, sources, replace(settings, retrieval_margin=margin), some)
    assert [best[0].tokens for best in found] == [best[0].tokens for best in expected]
    masked = torch.cat(some.states).isnan()
    assert (masked.all(1) == masked.any(1)).all()
    assert torch.equal(torch.cat(some.states)[~masked], torch.cat(every.states)[~masked])
    assert not masked[:: settings.beam].any()
    assert masked.any() == (margin != math.inf)
    if margin == 0.0:
        assert masked[:, 0].float().mean() > 0.5


class StoppedError(Exception):
    """Raised by a check."""


class Count:
    """A check that raises at its last call; never where `last` is negative."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.last:
            raise StoppedError


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one for each step that a decoder takes from now on."""
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
    layouts = translator.split(LINES)
    found = translator.search(layouts)
    steps.clear()
    with pytest.raises(StoppedError):
        translator.explain_found(layouts, found, check=Count(1))
    assert steps == []
    complete = Count(-1)
    translator.explain_found(layouts, found, check=complete)
    # Called for every batch, every step where steps are taken one by one, and every part.
    assert complete.calls == 1 + len(steps) + len(LINES)
