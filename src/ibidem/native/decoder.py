"""A whole decoding step in one call: a decoder's parts as the library takes them, and translations being written."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, NamedTuple

import torch

from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ibidem.native.linear import Activation, NativeLinear


class Norm(NamedTuple):
    """Layer normalisation: weight and bias [width]."""

    weight: Tensor
    bias: Tensor
    eps: float


class Layer(NamedTuple):
    """A decoder layer: `project` makes the scaled query, the key and the value of a hypothesis in one."""

    project: NativeLinear
    outer: NativeLinear
    source_query: NativeLinear
    source_outer: NativeLinear
    inner: NativeLinear
    feed_outer: NativeLinear
    norm: Norm
    source_norm: Norm
    feed_norm: Norm


class NormParts(ctypes.Structure):
    """Norm of native/norm.h."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("eps", ctypes.c_float))


def pack_norm(norm: Norm, kept: list[Tensor]) -> NormParts:
    """A norm as the library takes it; `kept` gets what must live as long."""
    weight, bias = dense(norm.weight), dense(norm.bias)
    kept += [weight, bias]
    return NormParts(weight.data_ptr(), bias.data_ptr(), norm.eps)


class _Layer(ctypes.Structure):
    """LayerParts of native/decoder.h: the fields of `Layer`, in order."""

    _fields_ = tuple((name, NormParts if name.endswith("norm") else ctypes.c_void_p) for name in Layer._fields)


class _Decoder(ctypes.Structure):
    """DecoderParts of native/decoder.h."""

    _fields_ = (
        ("width", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("layer", ctypes.POINTER(_Layer)),
        ("output", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("token_count", ctypes.c_int64),
        ("token_scale", ctypes.c_float),
        ("activation", ctypes.c_int32),
    )


class NativeDecoder:
    """The weights of a post-norm decoder, ready for steps.

    tokens: [vocabulary, width] and their scale; positions: [most steps, width], the first token's first.
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
        self.width, self.vocabulary = output.inputs, output.outputs
        self.layers = len(layers)
        self.most_steps = len(positions)
        self._tensors = [dense(tokens), dense(positions)]
        # Whatever the library points to must live as long as this.
        self._kept = [*layers, output]
        self._layers = (_Layer * len(layers))(*(self._pack(layer) for layer in layers))
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

    def _pack(self, layer: Layer) -> _Layer:
        packed = (pack_norm(part, self._tensors) if isinstance(part, Norm) else part.handle for part in layer)
        return _Layer(*packed)


class NativeSteps:
    """Translations being written, `beam` hypotheses a sentence.

    sources: of each layer keys and values [2, sentences, heads, length, size of a head]; lengths: [sentences], how
    many positions of each are real.
    """

    def __init__(self, decoder: NativeDecoder, sources: Sequence[Tensor], lengths: Tensor, beam: int) -> None:
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
            raise MemoryError("there is no room to begin these translations")
        self._step, self._reorder = library.decoding_step, library.decoding_reorder
        weakref.finalize(self, library.decoding_free, self._handle)

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Feed one token to each row, [rows]; gives states [rows, width] and logits [rows, vocabulary]."""
        decoder = self._decoder
        ids = dense(tokens, torch.int64)
        if ids.shape != (self._rows,):
            raise ValueError(f"tokens of shape {list(ids.shape)} were given to {self._rows} hypotheses")
        if self._done == decoder.most_steps:
            raise ValueError(f"the model has positions for {decoder.most_steps} tokens and no more")
        states = torch.empty(self._rows, decoder.width)
        logits = torch.empty(self._rows, decoder.vocabulary)
        done = self._step(self._handle, ids.data_ptr(), states.data_ptr(), logits.data_ptr(), torch.get_num_threads())
        _check(done, f"a token is none of the {decoder.vocabulary} that the model knows")
        self._done += 1
        return states, logits

    def reorder(self, rows: Tensor) -> None:
        """Keep these rows: all hypotheses of the sentences that stay, one sentence after the other."""
        ids = dense(rows, torch.int64)
        done = self._reorder(self._handle, ids.data_ptr(), len(ids))
        _check(done, f"these are not all {self._beam} hypotheses of sentences that are being translated")
        self._rows = len(ids)


def _check(answer: int, wrong: str) -> None:
    """1 is well, 0 is no room, -1 is a mistake of the caller."""
    if answer == 0:
        raise MemoryError("there is no room to go on with these translations")
    if answer < 0:
        raise ValueError(wrong)
