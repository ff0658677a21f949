"""The int8 translation model in native code: linear layers, the encoder, and the decoder step, in one call each."""

from __future__ import annotations

import ctypes
import weakref
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_STEPS = 127
_TINY = torch.finfo(torch.float32).tiny


class Activation(IntEnum):
    """The function after a linear layer; as in native/model/activation.h."""

    NONE = 0
    RELU = 1
    SWISH = 2
    SIGMOID = 3
    TANH = 4


class NativeLinear:
    """A linear layer with int8 weights and activations: activation(x weight.T + bias).

    The result of a row does not depend on other rows: each has its own step and zero, and its largest magnitude is kept
    apart (see `QuantisedRows` of native/model/linear.h). Sums are exact, in int32. A row that is not finite gives NaN.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantise the weight.

        Args:
            weight: [outputs, inputs].
            bias: [outputs]; None for a layer without bias.
        """
        weight = dense(weight)
        self.outputs, self.inputs = weight.shape
        scales = (weight.abs().amax(1) / _STEPS).clamp_min(_TINY)
        quantised = (weight * scales.reciprocal()[:, None]).round_().clamp_(-_STEPS, _STEPS).to(torch.int8)
        added = None if bias is None else dense(bias)
        library = require()
        self.handle = library.linear_new(
            quantised.data_ptr(),
            scales.data_ptr(),
            None if added is None else added.data_ptr(),
            self.inputs,
            self.outputs,
        )
        if not self.handle:
            raise MemoryError("Out of memory for the weights of a linear layer.")
        self._apply = library.linear_apply
        weakref.finalize(self, library.linear_free, self.handle)

    def __call__(self, x: Tensor, activation: Activation = Activation.NONE) -> Tensor:
        """Apply the layer.

        Args:
            x: [..., inputs].
            activation: The function of the result.

        Returns:
            [..., outputs] float32.

        Raises:
            ValueError: The rows of x do not have `inputs` components.
        """
        if x.shape[-1] != self.inputs:
            raise ValueError(f"a row of {x.shape[-1]} numbers was given to a layer of {self.inputs} inputs")
        plain = dense(x)
        out = torch.empty(*x.shape[:-1], self.outputs, dtype=torch.float32)
        rows = plain.numel() // self.inputs
        done = self._apply(self.handle, plain.data_ptr(), rows, activation, out.data_ptr(), torch.get_num_threads())
        if not done:
            raise MemoryError(f"Out of memory to apply a linear layer to {rows} rows.")
        return out


class Norm(NamedTuple):
    """Layer normalisation.

    Attributes:
        weight: [width].
        bias: [width].
        eps: Added to the variance.
    """

    weight: Tensor
    bias: Tensor
    eps: float


class Layer(NamedTuple):
    """The weights of a decoder layer.

    Attributes:
        project: Computes the scaled query, the key and the value of a hypothesis at once, [3 width, width].
        outer: Output projection of self-attention.
        source_query: Scaled query of the attention to the source.
        source_outer: Output projection of the attention to the source.
        inner: First layer of the feed-forward network, before the activation.
        feed_outer: Second layer of the feed-forward network.
        norm: After self-attention.
        source_norm: After the attention to the source.
        feed_norm: After the feed-forward network.
    """

    project: NativeLinear
    outer: NativeLinear
    source_query: NativeLinear
    source_outer: NativeLinear
    inner: NativeLinear
    feed_outer: NativeLinear
    norm: Norm
    source_norm: Norm
    feed_norm: Norm


class _Norm(ctypes.Structure):
    """Norm of native/model/norm.h."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("eps", ctypes.c_float))


def _pack_norm(norm: Norm, kept: list[Tensor]) -> _Norm:
    """Pack a norm for the library; `kept` receives the tensors that it points to."""
    weight, bias = dense(norm.weight), dense(norm.bias)
    kept += [weight, bias]
    return _Norm(weight.data_ptr(), bias.data_ptr(), norm.eps)


class _DecoderLayer(ctypes.Structure):
    """LayerParts of native/model/decoder.h: the fields of `Layer`, in order."""

    _fields_ = tuple((name, _Norm if name.endswith("norm") else ctypes.c_void_p) for name in Layer._fields)


class _Decoder(ctypes.Structure):
    """DecoderParts of native/model/decoder.h."""

    _fields_ = (
        ("width", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("layer", ctypes.POINTER(_DecoderLayer)),
        ("output", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("token_count", ctypes.c_int64),
        ("token_scale", ctypes.c_float),
        ("activation", ctypes.c_int32),
    )


class NativeDecoder:
    """The weights of a post-norm decoder.

    Attributes:
        width: Components of a state.
        vocabulary: Components of the logits of a row.
        layers: The number of layers.
        most_steps: The number of positions.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        output: NativeLinear,
        tokens: Tensor,
        token_scale: float,
        positions: Tensor,
        heads: int,
        activation: Activation,
    ) -> None:
        """Take the weights.

        Args:
            layers: The layers, first to last.
            output: Computes logits from states.
            tokens: Embeddings [vocabulary, width].
            token_scale: Factor of the embeddings.
            positions: Embeddings of positions [most steps, width].
            heads: Of attention; a divisor of the width.
            activation: Of the feed-forward networks.
        """
        self.width, self.vocabulary = output.inputs, output.outputs
        self.layers = len(layers)
        self.most_steps = len(positions)
        self._tensors = [dense(tokens), dense(positions)]
        # The library points to these.
        self._kept = [*layers, output]
        self._layers = (_DecoderLayer * len(layers))(*(self._pack(layer) for layer in layers))
        self.parts = _Decoder(
            self.width,
            heads,
            len(layers),
            self._layers,
            output.handle,
            self._tensors[0].data_ptr(),
            self._tensors[1].data_ptr(),
            len(tokens),
            token_scale,
            activation,
        )

    def _pack(self, layer: Layer) -> _DecoderLayer:
        packed = (_pack_norm(part, self._tensors) if isinstance(part, Norm) else part.handle for part in layer)
        return _DecoderLayer(*packed)


class NativeSteps:
    """The decoder's state for a batch of sentences with `beam` hypotheses each."""

    def __init__(self, decoder: NativeDecoder, sources: Sequence[Tensor], lengths: Tensor, beam: int) -> None:
        """Begin with empty hypotheses.

        Args:
            decoder: The weights.
            sources: Keys and values of the sources for each layer [2, sentences, heads, length, size of a head].
            lengths: The number of valid positions of each source [sentences].
            beam: Hypotheses of a sentence.
        """
        self._decoder = decoder
        self._sources = [dense(source) for source in sources]
        self._rows = sources[0].shape[1] * beam
        self._beam = beam
        self._done = 0
        library = require()
        addresses = (ctypes.c_void_p * len(sources))(*(source.data_ptr() for source in self._sources))
        counts = dense(lengths, torch.int64)
        self._handle = library.decoding_new(
            ctypes.byref(decoder.parts), addresses, counts.data_ptr(), len(counts), sources[0].shape[3], beam
        )
        if not self._handle:
            raise MemoryError("Out of memory to begin these translations.")
        self._step, self._reorder = library.decoding_step, library.decoding_reorder
        weakref.finalize(self, library.decoding_free, self._handle)

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Feed one token to each hypothesis.

        Args:
            tokens: [rows].

        Returns:
            States [rows, width] and logits [rows, vocabulary], float32.

        Raises:
            ValueError: The shape is wrong, a token is outside of the vocabulary, or all positions are used.
        """
        decoder = self._decoder
        ids = dense(tokens, torch.int64)
        if ids.shape != (self._rows,):
            raise ValueError(f"tokens of shape {list(ids.shape)} were given to {self._rows} hypotheses")
        if self._done == decoder.most_steps:
            raise ValueError(f"the model has positions for {decoder.most_steps} tokens and no more")
        states = torch.empty(self._rows, decoder.width, dtype=torch.float32)
        logits = torch.empty(self._rows, decoder.vocabulary, dtype=torch.float32)
        done = self._step(self._handle, ids.data_ptr(), states.data_ptr(), logits.data_ptr(), torch.get_num_threads())
        _check(done, f"a token is outside of the model's vocabulary of {decoder.vocabulary}")
        self._done += 1
        return states, logits

    def reorder(self, rows: Tensor) -> None:
        """Continue with some hypotheses.

        Args:
            rows: All hypotheses of the remaining sentences [beam x remaining], sentence by sentence; a hypothesis may
                be repeated within its sentence.

        Raises:
            ValueError: The rows are not `beam` hypotheses of each remaining sentence.
        """
        ids = dense(rows, torch.int64)
        done = self._reorder(self._handle, ids.data_ptr(), len(ids))
        _check(done, f"these are not all {self._beam} hypotheses of sentences that are being translated")
        self._rows = len(ids)


def _check(status: int, wrong: str) -> None:
    """Raise for a status of the library: 0 is out of memory, -1 an invalid argument."""
    if status == 0:
        raise MemoryError("Out of memory to continue these translations.")
    if status < 0:
        raise ValueError(wrong)


class EncoderLayer(NamedTuple):
    """The weights of an encoder layer.

    Attributes:
        project: Computes the scaled query, the key and the value of a token at once, [3 width, width].
        outer: Output projection of self-attention.
        inner: First layer of the feed-forward network, before the activation.
        feed_outer: Second layer of the feed-forward network.
        norm: After self-attention.
        feed_norm: After the feed-forward network.
    """

    project: NativeLinear
    outer: NativeLinear
    inner: NativeLinear
    feed_outer: NativeLinear
    norm: Norm
    feed_norm: Norm


class _EncoderLayer(ctypes.Structure):
    """EncoderLayerParts of native/model/encoder.cpp: the fields of `EncoderLayer`, in order."""

    _fields_ = tuple((name, _Norm if name.endswith("norm") else ctypes.c_void_p) for name in EncoderLayer._fields)


class _Encoder(ctypes.Structure):
    """EncoderParts of native/model/encoder.cpp."""

    _fields_ = (
        ("width", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("layer", ctypes.POINTER(_EncoderLayer)),
        ("target_heads", ctypes.c_int64),
        ("target_layers", ctypes.c_int64),
        ("target", ctypes.POINTER(ctypes.c_void_p)),
        ("tokens", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("token_count", ctypes.c_int64),
        ("token_scale", ctypes.c_float),
        ("activation", ctypes.c_int32),
    )


class NativeEncoder:
    """The weights of a post-norm encoder, and of the projections to keys and values for each decoder layer."""

    def __init__(
        self,
        layers: Sequence[EncoderLayer],
        heads: int,
        target: Sequence[NativeLinear],
        target_heads: int,
        tokens: Tensor,
        token_scale: float,
        positions: Tensor,
        activation: Activation,
    ) -> None:
        """Take the weights.

        Args:
            layers: The layers, first to last.
            heads: Of attention; a divisor of the width.
            target: Projections to keys and values, one for each decoder layer.
            target_heads: Heads of the decoder.
            tokens: Embeddings [vocabulary, width].
            token_scale: Factor of the embeddings.
            positions: Embeddings of positions [most tokens, width].
            activation: Of the feed-forward networks.
        """
        self._width = tokens.shape[1]
        self._target_heads = target_heads
        self._most = len(positions)
        self._tensors = [dense(tokens), dense(positions)]
        # The library points to these.
        self._kept = [*layers, *target]
        self._layers = (_EncoderLayer * len(layers))(*(self._pack(layer) for layer in layers))
        self._target = (ctypes.c_void_p * len(target))(*(linear.handle for linear in target))
        self._parts = _Encoder(
            self._width,
            heads,
            len(layers),
            self._layers,
            target_heads,
            len(target),
            self._target,
            self._tensors[0].data_ptr(),
            self._tensors[1].data_ptr(),
            len(tokens),
            token_scale,
            activation,
        )

    def _pack(self, layer: EncoderLayer) -> _EncoderLayer:
        packed = (_pack_norm(part, self._tensors) if isinstance(part, Norm) else part.handle for part in layer)
        return _EncoderLayer(*packed)

    def __call__(self, tokens: Tensor, lengths: Tensor) -> tuple[list[Tensor], Tensor]:
        """Encode sources.

        Args:
            tokens: Those of all sources, concatenated.
            lengths: The length of each source [n].

        Returns:
            Keys and values for each decoder layer [2, n, heads, longest, size of a head], undefined beyond a source;
            and the mean encoder state of each source [n, width].

        Raises:
            ValueError: The lengths do not fit the tokens, a source is too long, or a token is outside of the
                vocabulary.
        """
        ids, counts = dense(tokens, torch.int64), dense(lengths, torch.int64)
        longest = int(counts.max()) if len(counts) else 0
        if len(counts) and (int(counts.min()) < 0 or int(counts.sum()) != len(ids) or longest > self._most):
            raise ValueError(
                f"{len(ids)} tokens are not sources of {counts.tolist()}, each of {self._most} tokens at most"
            )
        shape = (2, len(counts), self._target_heads, longest, self._width // self._target_heads)
        sources = [torch.empty(shape, dtype=torch.float32) for _ in self._target]
        means = torch.empty(len(counts), self._width, dtype=torch.float32)
        done = require().encode(
            ctypes.byref(self._parts),
            ids.data_ptr(),
            counts.data_ptr(),
            len(counts),
            longest,
            (ctypes.c_void_p * len(sources))(*(source.data_ptr() for source in sources)),
            means.data_ptr(),
            torch.get_num_threads(),
        )
        if done == 0:
            raise MemoryError(f"Out of memory to encode {len(ids)} tokens.")
        if done < 0:
            raise ValueError("a token is outside of the model's vocabulary")
        return sources, means
