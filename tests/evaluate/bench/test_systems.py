"""The published mixture equals ours, and CTranslate2 translates with the base model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ibidem.combine import Weights, best_candidates
from ibidem.decode import Translator
from ibidem.errors import UsageError
from ibidem.evaluate.bench import ctranslate2_search, ctranslate2_system, dense_candidates, paper_system
from ibidem.evaluate.bench.systems import has_ctranslate2


def test_a_missing_ctranslate2_is_reported(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.evaluate.bench.systems.has_ctranslate2", lambda: False)
    with pytest.raises(UsageError, match="pip install ctranslate2"):
        ctranslate2_system(tiny)


def test_other_models_than_marian_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibidem.evaluate.bench.systems.has_ctranslate2", lambda: True)
    other = SimpleNamespace(network=torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="not Linear"):
        ctranslate2_system(other)  # type: ignore[arg-type]


@pytest.mark.skipif(not has_ctranslate2(), reason="CTranslate2 is not installed")
def test_ctranslate2_translates_and_keeps_the_model(tiny) -> None:
    texts = ["eins zwei drei", "vier"]
    before = Translator(tiny).translate(texts)
    sources = tiny.tokens.encode_sources(texts)
    assert ctranslate2_system(tiny).translate(sources, 2) >= len(texts)
    assert Translator(tiny).translate(texts) == before


@pytest.mark.skipif(not has_ctranslate2(), reason="CTranslate2 is not installed")
def test_a_shortlist_restricts_the_target_tokens(tiny) -> None:
    sources = tiny.tokens.encode_sources(["eins zwei drei", "vier"])
    whole = ctranslate2_search(tiny)(sources, 2)
    every = {token: list(range(tiny.network.config.vocab_size)) for source in sources for token in source}
    assert ctranslate2_search(tiny, every)(sources, 2) == whole
    used = {token for tokens in whole for token in tokens}
    few = {tiny.tokens.eos: [tiny.tokens.eos, *sorted(used)[:2]]}
    found = ctranslate2_search(tiny, few)(sources, 2)
    assert {token for tokens in found for token in tokens} <= set(few[tiny.tokens.eos])


def test_the_published_mixture_equals_ours() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 40, generator=generator)
    values = torch.randint(10, (6, 8), generator=generator)
    shares = torch.rand(6, 9, generator=generator)
    shares /= shares.sum(dim=1, keepdim=True)
    weights = Weights(shares[:, 0], shares[:, 1:])
    banned = torch.tensor([3])
    ours = best_candidates(logits.clone(), weights, values, 8, banned)
    theirs = dense_candidates(logits.clone(), weights, values, 8, banned)
    assert torch.equal(ours.tokens, theirs.tokens)
    torch.testing.assert_close(ours.log_probs, theirs.log_probs)


@pytest.mark.parametrize(("artefacts", "expected"), [({"combiner_adaptive": 1}, "adaptive"), ({}, "distance-decay")])
def test_the_papers_system_uses_a_combiner_of_the_paper(
    artefacts: dict[str, object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contextual combiner is better and preferred elsewhere, and is not the paper's."""
    loaded: list[object] = []

    def load(*_: object, combiner: str, index: str) -> None:
        loaded.append((combiner, index))

    monkeypatch.setattr("ibidem.evaluate.bench.systems.load_memory_scorer", load)
    monkeypatch.setattr("ibidem.evaluate.bench.systems.memory_system", lambda *_: None)
    memory = SimpleNamespace(artefact={"combiner_contextual": 1, **artefacts}.get)
    paper_system(memory, SimpleNamespace())  # type: ignore[arg-type]
    assert loaded == [(expected, "paper")]
