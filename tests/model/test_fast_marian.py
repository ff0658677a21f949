"""`FastMarian` with int8 products against float32; test_base.py compares float32 with transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from ibidem.errors import UsageError
from ibidem.model import BaseModel, load_model
from ibidem.model.fast_marian import _group_by_length
from ibidem.model.linear import supports_int8
from ibidem.model.native_engine import supports_native

if TYPE_CHECKING:
    from .zoo import Texts

pytestmark = pytest.mark.skipif(not supports_int8(), reason="no int8 products on this CPU")


@pytest.fixture(scope="module", params=["marian", "fsmt"])
def both(request: pytest.FixtureRequest, model_of) -> tuple[BaseModel, BaseModel]:
    plain = model_of(request.param)
    return plain, load_model(plain.name, device="cpu", dtype="int8")


def test_int8_steps_are_close_to_float32(both: tuple[BaseModel, BaseModel], texts: Texts) -> None:
    sources = both[0].tokens.encode_sources(texts.german[:6])
    tokens = torch.tensor(both[0].tokens.start).expand(6, -1)
    plain, coarse = (model.start(sources).step(tokens).logits for model in both)
    assert 0 < (plain - coarse).norm() < 0.1 * plain.norm()


def test_int8_result_does_not_depend_on_the_batch(both: tuple[BaseModel, BaseModel], texts: Texts) -> None:
    model = both[1]
    sources = model.tokens.encode_sources(texts.german[:6])
    start = torch.tensor(model.tokens.start)
    batched = model.start(sources, 2).step(start.expand(12, -1))
    for row, source in enumerate(sources):
        alone = model.start([source]).step(start.expand(1, -1))
        torch.testing.assert_close(alone.logits[0], batched.logits[2 * row], atol=1e-3, rtol=1e-3)


def test_force_decode_equals_decoding(both: tuple[BaseModel, BaseModel], texts: Texts) -> None:
    for model in both:
        sources, targets = (
            model.tokens.encode_sources(texts.german[:4]),
            model.tokens.encode_targets(texts.english[:4]),
        )
        states, log_probs = model.force_decode(sources, targets)
        assert states.values.tolist() == [token for ids in targets for token in ids]
        decoding = model.start(sources[1:2])
        fed = torch.tensor([model.tokens.start])
        first = len(targets[0])
        for position, token in enumerate(targets[1]):
            step = decoding.step(fed)
            torch.testing.assert_close(step.states[0], states.keys[first + position], atol=1e-3, rtol=1e-3)
            expected = step.logits.log_softmax(dim=1)[0, token]
            torch.testing.assert_close(expected, log_probs[first + position], atol=1e-3, rtol=1e-3)
            fed = torch.tensor([[token]])


def test_states_use_int8_only_with_the_native_library(both: tuple[BaseModel, BaseModel], texts: Texts) -> None:
    plain, rounded = both
    ids = plain.tokens.encode_sources(texts.german[:4]), plain.tokens.encode_targets(texts.english[:4])
    expected, found = plain.states(*ids), rounded.states(*ids)
    assert plain.arithmetic == "float32"
    assert rounded.arithmetic == ("int8" if supports_native(rounded.network) else "float32")
    assert torch.equal(found.values, expected.values)
    assert found.lengths == expected.lengths
    apart = float((found.keys - expected.keys).norm() / expected.keys.norm())
    assert (0 < apart < 0.1) == (rounded.arithmetic == "int8")
    torch.testing.assert_close(rounded.log_probs(found), plain.log_probs(expected), atol=0.2, rtol=0.05)


def test_int8_keeps_the_fingerprint(both: tuple[BaseModel, BaseModel]) -> None:
    assert both[0].fingerprint == both[1].fingerprint


def test_other_architectures_are_refused(model_of) -> None:
    with pytest.raises(UsageError, match=r"int8 requires a Marian or FSMT model.*--set model\.dtype=float32"):
        load_model(model_of("t5").name, device="cpu", dtype="int8")


@pytest.mark.parametrize("kind", ["marian", "fsmt"])
def test_sources_are_encoded_in_groups_of_similar_length(model_of, texts: Texts, kind: str) -> None:
    model = model_of(kind)
    assert model.fast_marian is not None
    short = sorted(model.tokens.encode_sources(texts.german), key=len)[:8]
    sources = [*short, [short[-1][0]] * 100 + [model.tokens.eos]]
    ids, mask = model.pad(sources)
    assert len(_group_by_length(sorted(map(len, sources)))) > 1
    batched = model.fast_marian.encode(ids, mask)
    for row, source in enumerate(sources):
        alone = model.fast_marian.encode(*model.pad([source]))[0]
        torch.testing.assert_close(batched[row, : len(source)], alone, atol=1e-5, rtol=1e-4)


def test_group_sizes() -> None:
    assert _group_by_length([2, 3, 5, 8]) == [4]  # together a few tokens
    assert _group_by_length([30, 31, 33, 40]) == [4]
    assert _group_by_length([5] * 20 + [200]) == [20, 1]
    assert _group_by_length([300]) == [1]
