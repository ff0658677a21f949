"""The native engine gives the states and logits of `FastMarian` with torch's int8 products."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ibidem.decode import BaseScorer, SearchSettings, beam_search
from ibidem.model import BaseModel, Decoding, load_model
from ibidem.model.decoding import mean_states
from ibidem.model.fast_marian import FastMarian, FastMarianDecoding
from ibidem.model.linear import Int8Linear
from ibidem.model.native_engine import NativeDecoding, NativeEngine
from ibidem.native import NativeLinear, NativeSteps, native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from ibidem.model.decoding import Step

    from .zoo import Texts

pytestmark = [
    pytest.mark.skipif(native() is None, reason="no native library here"),
    pytest.mark.filterwarnings("ignore:.*quantize:UserWarning"),
]

KINDS = ("marian", "marian-separate", "fsmt")


@pytest.fixture(scope="module")
def swish_of(model_of: Callable[[str], BaseModel]) -> Callable[[str], BaseModel]:
    """Tiny models with the activation of real translation models, which is not Marian's default."""

    @cache
    def load(kind: str) -> BaseModel:
        model = load_model(model_of(kind).name, device="cpu")
        for layer in (*model.network.model.encoder.layers, *model.network.model.decoder.layers):
            layer.activation_fn = torch.nn.ReLU() if kind == "fsmt" else torch.nn.SiLU()
        return model

    return load


def as_int8(model: BaseModel) -> BaseModel:
    return BaseModel(model.name, model.network, model.tokens, int8=True)


def make_fast_marian(model: BaseModel, linear: Any) -> FastMarian:
    return FastMarian(model.network, model.projection, getattr(model.network, "final_logits_bias", None), linear)


class Pair:
    """A native decoding and its reference, with the same encoder, so that only the decoders differ."""

    def __init__(self, model: BaseModel) -> None:
        self.fast_marian = make_fast_marian(model, Int8Linear)
        self.engine = NativeEngine(make_fast_marian(model, NativeLinear))

    def start_native(self, ids: Tensor, mask: Tensor, beam: int) -> NativeDecoding:
        steps = NativeSteps(self.engine.decoder, self.sources(ids, mask), mask.sum(1), beam)
        return NativeDecoding(steps, torch.empty(len(ids), self.fast_marian.width))

    def start_fast_marian(self, ids: Tensor, mask: Tensor, beam: int) -> FastMarianDecoding:
        return FastMarianDecoding(self.fast_marian, ids, mask, beam)

    def sources(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        encoded = self.fast_marian.encode(ids, mask)
        shape = (*encoded.shape[:2], 2, self.fast_marian.heads, encoded.shape[2] // self.fast_marian.heads)
        return [layer.source_project(encoded).view(shape).permute(2, 0, 3, 1, 4) for layer in self.fast_marian.decoder]


def walk(starts: Sequence[Callable[..., Decoding]], model: BaseModel, texts: list[str], beam: int, steps: int) -> Any:
    """Yield the steps of several decodings with the same random tokens and reordering; sentences are dropped."""
    ids, mask = model.pad(model.tokens.encode_sources(texts))
    decodings = [start(ids, mask, beam) for start in starts]
    generator = torch.Generator().manual_seed(5)
    count = len(texts)
    tokens = torch.full((count * beam, 1), model.tokens.start[0])
    for step in range(steps):
        yield [decoding.step(tokens) for decoding in decodings]
        parents = torch.randint(0, beam, (count, beam), generator=generator)
        kept = torch.arange(count)
        if step % 3 == 2 and count > 1:
            kept = kept[kept != int(torch.randint(0, count, (1,), generator=generator))]
            count -= 1
        rows = (kept[:, None] * beam + parents[kept]).view(-1)
        for decoding in decodings:
            decoding.reorder(rows)
        tokens = torch.randint(0, model.vocabulary_size, (count * beam, 1), generator=generator)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam", [1, 3])
def test_states_and_logits_equal_fast_marian(
    kind: str, beam: int, swish_of: Callable[[str], BaseModel], texts: Texts
) -> None:
    model = swish_of(kind)
    pair = Pair(model)
    errors = []
    for found, expected in walk([pair.start_native, pair.start_fast_marian], model, texts.german[:5], beam, 40):
        assert found.states.shape == expected.states.shape
        for mine, other in zip(found, expected, strict=True):
            errors.append((mine - other).norm(dim=1) / other.norm(dim=1))
    everything = torch.cat(errors)
    # A value between two int8 steps may round to either, which affects all later steps of its hypothesis.
    assert float(everything.median()) < 1e-6
    assert float((everything > 1e-4).double().mean()) < 0.2
    assert float(everything.max()) < 0.3


def test_decoding_does_not_depend_on_the_batch(swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = swish_of("marian")
    pair = Pair(model)
    ids, mask = model.pad(model.tokens.encode_sources(texts.german[:8]))
    lengths, sources = mask.sum(1), pair.sources(ids, mask)
    batched = NativeSteps(pair.engine.decoder, sources, lengths, 2)
    alone = [
        NativeSteps(pair.engine.decoder, [s[:, i : i + 1] for s in sources], lengths[i : i + 1], 2) for i in range(8)
    ]
    generator = torch.Generator().manual_seed(1)
    for _ in range(6):
        tokens = torch.randint(0, model.vocabulary_size, (16,), generator=generator)
        states, logits = batched.step(tokens)
        parts = [steps.step(tokens[2 * i : 2 * i + 2]) for i, steps in enumerate(alone)]
        assert torch.equal(states, torch.cat([part[0] for part in parts]))
        assert torch.equal(logits, torch.cat([part[1] for part in parts]))


def test_decoding_does_not_depend_on_threads(swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = swish_of("marian")
    pair = Pair(model)
    before = torch.get_num_threads()
    runs: list[list[Step]] = []
    encoded: list[Tensor] = []  # once for both, since torch's products may depend on the number of threads

    def start(ids: Tensor, mask: Tensor, beam: int) -> NativeDecoding:
        sources = encoded or pair.sources(ids, mask)
        encoded[:] = sources
        return NativeDecoding(NativeSteps(pair.engine.decoder, sources, mask.sum(1), beam), torch.empty(len(ids), 1))

    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            runs.append([step[0] for step in walk([start], model, texts.german[:40], 5, 6)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a.logits, b.logits) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_equals_fast_marian(kind: str, swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = swish_of(kind)
    pair = Pair(model)
    assert pair.engine.encoder is not None
    encoded = model.tokens.encode_sources(texts.german[:40])
    sources = [*(ids for ids in encoded if len(ids) <= 100), [5] * 70, [5]]
    ids, mask = model.pad(sources)
    found, means = pair.engine.encoder(ids[mask.bool()], mask.sum(1))
    wanted = mean_states(pair.fast_marian.encode(ids, mask), mask)
    assert float(((means - wanted).norm(dim=1) / wanted.norm(dim=1)).max()) < 0.1
    errors = []
    for mine, other in zip(found, pair.sources(ids, mask), strict=True):
        assert mine.shape == other.shape
        for row, length in enumerate(mask.sum(1).tolist()):
            apart = (mine - other)[:, row, :, :length].norm(dim=(1, 3)) / other[:, row, :, :length].norm(dim=(1, 3))
            errors.append(apart.flatten())
    everything = torch.cat(errors)
    assert float(everything.median()) < 1e-6
    assert float((everything > 1e-4).double().mean()) < 0.2
    assert float(everything.max()) < 0.3


def test_encoder_does_not_depend_on_the_batch_or_threads(swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = swish_of("marian")
    encoder = Pair(model).engine.encoder
    assert encoder is not None
    sources = model.tokens.encode_sources(texts.german[:30])
    ids, mask = model.pad(sources)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        batched, means = encoder(ids[mask.bool()], mask.sum(1))
    finally:
        torch.set_num_threads(before)
    for row, source in enumerate(sources):
        alone, mean = encoder(torch.tensor(source), torch.tensor([len(source)]))
        assert torch.equal(means[row : row + 1], mean)
        for whole, part in zip(batched, alone, strict=True):
            assert torch.equal(whole[:, row : row + 1, :, : len(source)], part)


def test_unsupported_encoder_activation_uses_torch(swish_of: Callable[[str], BaseModel]) -> None:
    model = swish_of("marian")
    layers = model.network.model.encoder.layers
    known = layers[-1].activation_fn
    layers[-1].activation_fn = torch.nn.GELU()
    try:
        engine = NativeEngine(make_fast_marian(model, NativeLinear))
        assert engine.encoder is None
        ids, mask = model.pad([[5, 6, 7], [8]])
        step = engine.start(ids, mask, 1).step(torch.full((2, 1), model.tokens.start[0]))
        assert bool(step.logits.isfinite().all())
    finally:
        layers[-1].activation_fn = known


def test_invalid_sources(swish_of: Callable[[str], BaseModel]) -> None:
    model = swish_of("marian")
    encoder = Pair(model).engine.encoder
    assert encoder is not None
    for wrong in (-1, model.vocabulary_size):
        with pytest.raises(ValueError, match="a token is outside of"):
            encoder(torch.tensor([5, wrong]), torch.tensor([2]))
    for tokens, lengths in (([5, 6], [3]), ([5, 6], [3, -1]), ([5] * 129, [129])):
        with pytest.raises(ValueError, match="are not sources of"):
            encoder(torch.tensor(tokens), torch.tensor(lengths))


def test_int8_models_decode_natively(swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = swish_of("marian")
    sources = model.tokens.encode_sources(texts.german[:3])
    assert isinstance(as_int8(model).start(sources, 2), NativeDecoding)
    assert isinstance(model.start(sources, 2), FastMarianDecoding)


@pytest.mark.usefixtures("no_native")
def test_torch_decodes_without_the_library(swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = as_int8(swish_of("marian"))
    assert isinstance(model.start(model.tokens.encode_sources(texts.german[:3]), 2), FastMarianDecoding)


def test_unsupported_decoder_activation_uses_torch(texts: Texts, swish_of: Callable[[str], BaseModel]) -> None:
    model = as_int8(swish_of("marian"))
    layers = model.network.model.decoder.layers
    known = layers[0].activation_fn
    layers[0].activation_fn = torch.nn.GELU()
    try:
        assert isinstance(model.start(model.tokens.encode_sources(texts.german[:1])), FastMarianDecoding)
    finally:
        layers[0].activation_fn = known


def test_invalid_arguments(swish_of: Callable[[str], BaseModel], texts: Texts) -> None:
    model = as_int8(swish_of("marian"))
    decoding = model.start(model.tokens.encode_sources(texts.german[:3]), 2)
    start = torch.full((6, 1), model.tokens.start[0])
    for wrong in (-1, model.vocabulary_size):
        with pytest.raises(ValueError, match="outside of the model's vocabulary"):
            decoding.step(torch.full((6, 1), wrong))
    with pytest.raises(ValueError, match="6 hypotheses"):
        decoding.step(start[:5])
    with pytest.raises(ValueError, match="one token for each row"):
        decoding.step(start.expand(-1, 2))
    for rows in ([0], [0, 2], [0, 6], [-1, 0], [0, 1, 1, 0]):
        with pytest.raises(ValueError, match="not all 2 hypotheses"):
            decoding.reorder(torch.tensor(rows))
    decoding.reorder(torch.tensor([5, 5, 0, 1]))
    for _ in range(model.network.config.max_position_embeddings):
        decoding.step(start[:4])
    with pytest.raises(ValueError, match="positions for 128"):
        decoding.step(start[:4])


def test_shipped_model_gives_the_same_translations(sentences: list[Any]) -> None:
    model = as_int8(load_model(device="cpu"))
    pair = Pair(model)
    sources = sorted(model.tokens.encode_sources(s.german for s in sentences[::16]), key=len)
    found = []
    for engine in (pair.start_native, pair.start_fast_marian):
        model.__dict__["_engine"] = engine
        found.append([best[0] for best in beam_search(model, sources, SearchSettings(beam=5), BaseScorer())])
    apart = [(a, b) for a, b in zip(*found, strict=True) if a.tokens != b.tokens]
    assert len(apart) <= 2
    assert all(abs(a.score - b.score) < 0.05 for a, b in apart)
