"""The encoder and decoder of `FastMarian` in native code with int8 products: one call a batch, one call a step.

`FastMarianDecoding` with `Int8Linear` computes the same. It is the fallback without the native library, and the
reference in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ibidem.model.decoding import Step, mean_states
from ibidem.native import Activation, Layer, NativeDecoder, NativeEncoder, NativeLinear, NativeSteps, Norm, native
from ibidem.native import EncoderLayer as NativeEncoderLayer

if TYPE_CHECKING:
    from ibidem.model.fast_marian import DecoderLayer, EncoderLayer, FastMarian
    from ibidem.model.linear import Linear


_ACTIVATIONS: dict[type[Any], Activation] = {nn.ReLU: Activation.RELU, nn.SiLU: Activation.SWISH}


def supports_native(network: Any) -> bool:
    """Return whether the native library is available and supports a Marian or FSMT model.

    Args:
        network: A Marian or FSMT model of transformers; its weights must be on the CPU.
    """
    if native() is None or next(network.parameters()).device.type != "cpu":
        return False
    return all(type(layer.activation_fn) in _ACTIVATIONS for layer in network.model.decoder.layers)


class NativeEngine:
    """The native encoder and decoder of a `FastMarian` network with native linear layers.

    Args:
        network: A network with `NativeLinear` layers, whose weights are passed to the native library.

    Attributes:
        encoder: The native encoder; None where the library does not support the activation of the encoder layers.
        decoder: The native decoder.

    Raises:
        TypeError: The network has other linear layers.
    """

    def __init__(self, network: FastMarian) -> None:
        self._network = network
        self.encoder = _encoder(network)
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
        """Encode sources and start their decoding.

        Args:
            ids: [n, s] padded token ids.
            mask: [n, s] 1 at real tokens, 0 at padding.
            beam: The number of hypotheses for each source.
        """
        lengths = mask.sum(1)
        if self.encoder is None:
            encoded = self._network.encode(ids, mask)
            sources, means = self._network.attend_sources(encoded), mean_states(encoded, mask)
        else:
            sources, means = self.encoder(ids[mask.bool()], lengths)
        return NativeDecoding(NativeSteps(self.decoder, sources, lengths, beam), means)


class NativeDecoding:
    """A batch of translations that are being decoded by the native library; see `Decoding`.

    Args:
        steps: The state of the native decoder after the sources were encoded.
    """

    def __init__(self, steps: NativeSteps, source_means: Tensor) -> None:
        self._steps = steps
        self.source_means = source_means

    def step(self, tokens: Tensor) -> Step:
        """Feed one token to each row; see `Decoding.step`.

        Raises:
            ValueError: `tokens` is not [rows, 1]: the prompt of these models has one token.
        """
        if tokens.shape[1] != 1:
            raise ValueError("expected one token for each row, [rows, 1]")
        return Step(*self._steps.step(tokens[:, 0]))

    def reorder(self, rows: Tensor) -> None:
        """Select rows [new rows]: all hypotheses of the sentences that remain, one sentence after the other."""
        self._steps.reorder(rows)


def _encoder(network: FastMarian) -> NativeEncoder | None:
    """Return the native encoder of a network; None where the library does not support its activation."""
    activations = {_ACTIVATIONS.get(type(layer.feed.activation)) for layer in network.encoder}
    activation = activations.pop() if len(activations) == 1 else None
    if activation is None:
        return None
    embedding = network.embed_source
    return NativeEncoder(
        [_encoder_layer(layer) for layer in network.encoder],
        network.encoder_heads,
        [_native(layer.source_project) for layer in network.decoder],
        network.heads,
        embedding.tokens,
        embedding.scale,
        embedding.positions[embedding.first :],
        activation,
    )


def _encoder_layer(layer: EncoderLayer) -> NativeEncoderLayer:
    return NativeEncoderLayer(
        project=_native(layer.project),
        outer=_native(layer.outer),
        inner=_native(layer.feed.inner),
        feed_outer=_native(layer.feed.outer),
        norm=Norm(*layer.norm),
        feed_norm=Norm(*layer.feed.norm),
    )


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
        raise TypeError("NativeEngine needs a FastMarian network with NativeLinear layers")
    return linear
