"""The lean engine's decoder in native code: one call a step, int8 products, caches that are never copied.

It does what `LeanDecoding` does with `Int8Linear`, which stays the way to go where the native library is missing, and
the oracle of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ibidem.model.decoding import Step
from ibidem.native import native
from ibidem.native.decoder import Layer, NativeDecoder, NativeSteps, Norm
from ibidem.native.linear import Activation, NativeLinear

if TYPE_CHECKING:
    from ibidem.model.lean import DecoderLayer, LeanNetwork
    from ibidem.model.linear import Linear

_ACTIVATIONS: dict[type[Any], Activation] = {nn.ReLU: Activation.RELU, nn.SiLU: Activation.SWISH}


def supports_native(network: Any) -> bool:
    """Whether the native library is here, is faster, and knows what this Marian or FSMT model does."""
    library = native()
    if library is None or not library.multiplies_bytes or next(network.parameters()).device.type != "cpu":
        return False
    return all(type(layer.activation_fn) in _ACTIVATIONS for layer in network.model.decoder.layers)


class NativeEngine:
    """Starts decodings of a lean network whose linear layers are native."""

    def __init__(self, network: LeanNetwork) -> None:
        self._network = network
        embedding = network.embed_target
        self.decoder = NativeDecoder(
            [_layer(layer) for layer in network.decoder],
            _native(network.output),
            embedding.tokens,
            embedding.scale,
            embedding.positions[embedding.first :],
            network.heads,
            _ACTIVATIONS[type(network.decoder[0].feed.activation)],
        )

    @torch.inference_mode()
    def start(self, ids: Tensor, mask: Tensor, beam: int) -> NativeDecoding:
        """Encode sources [n, s], which are padded at their end where mask [n, s] is 0."""
        encoded = self._network.encode(ids, mask)
        count, length, width = encoded.shape
        shape = (count, length, 2, self._network.heads, width // self._network.heads)
        sources = [layer.source_project(encoded).view(shape).permute(2, 0, 3, 1, 4) for layer in self._network.decoder]
        return NativeDecoding(NativeSteps(self.decoder, sources, mask.sum(1), beam))


class NativeDecoding:
    """A batch of translations being written; see `Decoding`."""

    def __init__(self, steps: NativeSteps) -> None:
        self._steps = steps

    def step(self, tokens: Tensor) -> Step:
        """Feed one token to each row, [rows, 1]."""
        if tokens.shape[1] != 1:
            raise ValueError("the native engine takes one token a row")
        return Step(*self._steps.step(tokens[:, 0]))

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows, all hypotheses of the sentences that stay, one sentence after the other."""
        self._steps.reorder(rows)


def _layer(layer: DecoderLayer) -> Layer:
    return Layer(
        project=_native(layer.project),
        outer=_native(layer.outer),
        source_query=_native(layer.source_query),
        source_outer=_native(layer.source_outer),
        inner=_native(layer.feed.inner),
        feed_outer=_native(layer.feed.outer),
        norm=Norm(*layer.norm),
        source_norm=Norm(*layer.source_norm),
        feed_norm=Norm(*layer.feed.norm),
    )


def _native(linear: Linear) -> NativeLinear:
    if not isinstance(linear, NativeLinear):
        raise TypeError("the native engine needs a network of native layers")
    return linear
