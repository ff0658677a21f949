"""Marian and FSMT networks with fewer operations around the matrix products than in transformers.

The results equal those of transformers. One product gives queries, keys and values. The keys and values of the source
are computed once for a sentence and not for each of its hypotheses. Reordering copies no cache: all hypotheses of a
sentence write into one cache, and a mask selects the history of each hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from ibidem.model.decoding import Step, mean_states
from ibidem.model.linear import PlainLinear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.model.linear import Linear


# (layer number, keys and values [2, n, heads, beam, size] of a step) -> those of all steps [2, n, heads, slots, size]
Store = Callable[[int, Tensor], Tensor]

ARCHITECTURES = ("MarianMTModel", "MarianNetwork", "FSMTForConditionalGeneration")

_CACHE_STEPS = 32
# Encoding fewer tokens than this takes no less time.
_FEW_TOKENS = 64


def supports_fast_marian(network: Any) -> bool:
    """Return whether `FastMarian` supports the architecture of a transformers model.

    Args:
        network: A transformers model.
    """
    return type(network).__name__ in ARCHITECTURES


class Norm(NamedTuple):
    """Layer normalisation of the last dimension.

    Attributes:
        weight: [d] the factors.
        bias: [d] the summands.
        eps: The summand of the variance.
    """

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class FeedForward(NamedTuple):
    """The feed-forward block of a layer, with its residual connection and normalisation.

    Attributes:
        inner: The first linear layer, from d to the width of the block.
        activation: The activation between the layers.
        outer: The second linear layer, back to d.
        norm: The normalisation after the residual connection.
    """

    inner: Linear
    activation: Callable[[Tensor], Tensor]
    outer: Linear
    norm: Norm

    def __call__(self, x: Tensor) -> Tensor:
        return self.norm(x + self.outer(self.activation(self.inner(x))))


class EncoderLayer(NamedTuple):
    """An encoder layer: self-attention and feed-forward block.

    Attributes:
        project: Queries, keys and values of the self-attention in one product.
        outer: The output layer of the self-attention.
        norm: The normalisation after the self-attention.
        feed: The feed-forward block.
    """

    project: Linear
    outer: Linear
    norm: Norm
    feed: FeedForward


class DecoderLayer(NamedTuple):
    """A decoder layer: self-attention, cross-attention and feed-forward block.

    Attributes:
        project: Queries, keys and values of the self-attention in one product.
        outer: The output layer of the self-attention.
        norm: The normalisation after the self-attention.
        source_query: The queries of the cross-attention.
        source_project: Keys and values of the cross-attention in one product.
        source_outer: The output layer of the cross-attention.
        source_norm: The normalisation after the cross-attention.
        feed: The feed-forward block.
    """

    project: Linear
    outer: Linear
    norm: Norm
    source_query: Linear
    source_project: Linear
    source_outer: Linear
    source_norm: Norm
    feed: FeedForward


class Embedding(NamedTuple):
    """Scaled token embeddings plus position embeddings.

    Attributes:
        tokens: [V, d] token embeddings.
        scale: The factor of the token embeddings.
        positions: [p, d] position embeddings.
        first: The row of `positions` for the first token.
    """

    tokens: Tensor
    scale: float
    positions: Tensor
    first: int

    def __call__(self, ids: Tensor, start: int) -> Tensor:
        """Embed tokens at consecutive positions.

        Args:
            ids: [n, t] token ids.
            start: The position of the first column, from 0.

        Returns:
            [n, t, d].
        """
        begin = self.first + start
        return self.tokens[ids] * self.scale + self.positions[begin : begin + ids.shape[1]]


class Sources(NamedTuple):
    """The inputs of the cross-attention.

    Attributes:
        keys_and_values: [2, n, heads, s, head size] for each decoder layer.
        mask: [n, 1, 1, s] 0 at real tokens and -inf at padding.
    """

    keys_and_values: list[Tensor]
    mask: Tensor


class FastMarian:
    """The weights of a Marian or FSMT model, arranged for fast decoding.

    Attributes:
        encoder: The encoder layers.
        encoder_heads: The number of attention heads of an encoder layer.
        decoder: The decoder layers.
        heads: The number of attention heads of a decoder layer.
        width: d, the dimension of the decoder states.
        output: The output projection with its bias, from d to the vocabulary.
        embed_source: The embedding of source tokens.
        embed_target: The embedding of target tokens.
    """

    def __init__(
        self,
        network: Any,
        projection: Any,
        bias: Tensor | None,
        linear: Callable[[Tensor, Tensor | None], Linear] = PlainLinear,
    ) -> None:
        """Arrange the weights of a network.

        Args:
            network: A transformers model that `supports_fast_marian` accepts.
            projection: Its output layer.
            bias: [1, V] the bias of the logits outside the output layer, or None.
            linear: The class of the linear layers, called with weight [outputs, inputs] and bias [outputs] or None.
        """
        encoder, decoder = network.model.encoder, network.model.decoder
        self.heads = network.config.decoder_attention_heads
        self.width = network.config.d_model
        self.encoder_heads = network.config.encoder_attention_heads
        self.embed_source, self.embed_target = _embedding(encoder), _embedding(decoder)
        self.encoder = [_encoder_layer(layer, linear) for layer in encoder.layers]
        self.decoder = [_decoder_layer(layer, linear) for layer in decoder.layers]
        both = [item for item in (projection.bias, None if bias is None else bias.reshape(-1)) if item is not None]
        self.output = linear(projection.weight, sum(both[1:], both[0]) if both else None)

    @property
    def states_like(self) -> Tensor:
        """A tensor with the dtype and the device of the states."""
        return self.embed_target.tokens

    @torch.inference_mode()
    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Encode sources.

        On a CPU, sources of similar lengths are encoded together; one long source would pad all others to its length.

        Args:
            ids: [n, s] token ids, padded at their ends.
            mask: [n, s] 1 at real tokens, 0 at padding.

        Returns:
            [n, s, d] encoder states.
        """
        if ids.is_cuda:
            return self._encode(ids, mask)
        lengths, order = mask.sum(dim=1).sort()
        groups = torch.split(order, _group_by_length(lengths.tolist()))
        if len(groups) == 1:
            return self._encode(ids, mask)
        encoded = self.states_like.new_zeros(*ids.shape, self.width)
        for rows in groups:
            longest = int(mask[rows[-1]].sum())
            encoded[rows, :longest] = self._encode(ids[rows, :longest], mask[rows, :longest])
        return encoded

    def _encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embed_source(ids, 0)
        count, length, width = x.shape
        hidden = None if bool(mask.all()) else additive_mask(mask.bool()[:, None, None], x.dtype)
        for layer in self.encoder:
            q, k, v = layer.project(x).view(count, length, 3, self.encoder_heads, -1).permute(2, 0, 3, 1, 4)
            found = scaled_dot_product_attention(q, k, v, hidden, scale=1.0)
            x = layer.norm(x + layer.outer(found.transpose(1, 2).reshape(count, length, width)))
            x = layer.feed(x)
        return x

    def embed(self, tokens: Tensor, position: int) -> Tensor:
        """Embed one target token in each row.

        Args:
            tokens: [rows, 1] token ids.
            position: Their position in the target, from 0.

        Returns:
            [rows, d].
        """
        return self.embed_target(tokens, position)[:, 0]

    def embed_at(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Embed one target token in each row, at a position that is on the device.

        Args:
            tokens: [rows] token ids.
            position: [1] their position in the target, from 0.

        Returns:
            [rows, d].
        """
        embedding = self.embed_target
        return embedding.tokens[tokens] * embedding.scale + embedding.positions[position + embedding.first]

    def attend_sources(self, encoded: Tensor) -> list[Tensor]:
        """Compute the keys and values of the cross-attention.

        Args:
            encoded: [n, s, d] encoder states.

        Returns:
            [2, n, heads, s, head size] for each decoder layer.
        """
        count, length, width = encoded.shape
        shape = (count, length, 2, self.heads, width // self.heads)
        return [layer.source_project(encoded).view(shape).permute(2, 0, 3, 1, 4) for layer in self.decoder]

    def decode(self, x: Tensor, beam: int, store: Store, history: Tensor, sources: Sources) -> Tensor:
        """Compute the decoder states of one step.

        Args:
            x: [rows, d] embedded tokens; rows = sentences * beam.
            beam: The number of hypotheses for each sentence.
            store: The function that writes the keys and values of this step into the cache of a layer.
            history: [n, 1, beam, slots] 0 at the cache slots of a hypothesis' own history, -inf elsewhere.
            sources: The inputs of the cross-attention.

        Returns:
            [rows, d] states, the inputs of the output projection.
        """
        rows, width = x.shape
        shape = (rows // beam, beam, 3, self.heads, width // self.heads)
        for number, (layer, source) in enumerate(zip(self.decoder, sources.keys_and_values, strict=True)):
            made = layer.project(x).view(shape).permute(2, 0, 3, 1, 4)
            kept = store(number, made[1:])
            found = _attend(made[0], kept[0], kept[1], history)
            x = layer.norm(x + layer.outer(found.transpose(1, 2).reshape(rows, width)))
            query = layer.source_query(x).view(*shape[:2], *shape[3:]).transpose(1, 2)
            found = _attend(query, source[0], source[1], sources.mask)
            x = layer.source_norm(x + layer.source_outer(found.transpose(1, 2).reshape(rows, width)))
            x = layer.feed(x)
        return x


class FastMarianDecoding:
    """A batch of translations that are being decoded, `beam` hypotheses for each sentence; see `Decoding`."""

    def __init__(self, network: FastMarian, ids: Tensor, mask: Tensor, beam: int) -> None:
        """Encode sources and start their decoding.

        Args:
            network: The weights.
            ids: [n, s] padded token ids.
            mask: [n, s] 1 at real tokens, 0 at padding.
            beam: The number of hypotheses for each sentence.
        """
        self._network = network
        self._beam = beam
        encoded = network.encode(ids, mask)
        self.source_means = mean_states(encoded, mask)
        count, _, width = encoded.shape
        self._sources = Sources(
            [both.contiguous() for both in network.attend_sources(encoded)],
            additive_mask(mask.bool()[:, None, None], encoded.dtype),
        )
        self._steps = 0
        # Keys and values of each layer: [2, sentences, heads, steps x beam, head size].
        shape = (2, count, network.heads, _CACHE_STEPS * beam, width // network.heads)
        self._caches = [encoded.new_empty(shape) for _ in network.decoder]
        # [sentences, beam, steps x beam]: 0 at the slots of a hypothesis' own history, else -inf.
        self._history = encoded.new_empty(count, beam, 0)
        self._self_mask = additive_mask(torch.eye(beam, dtype=torch.bool, device=encoded.device), encoded.dtype)

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Step:
        """Feed one token to each row; see `Decoding.step`.

        Raises:
            ValueError: `tokens` is not [rows, 1]: the prompt of these models has one token.
        """
        if tokens.shape[1] != 1:
            raise ValueError("expected one token for each row, [rows, 1]")
        self._grow_caches()
        now = self._self_mask.expand(len(self._history), -1, -1)
        self._history = torch.cat([self._history, now], dim=2)
        x = self._network.embed(tokens, self._steps)
        x = self._network.decode(x, self._beam, self._store, self._history[:, None], self._sources)
        self._steps += 1
        return Step(x.float(), self._network.output(x).float())

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """Select rows [new rows]: all hypotheses of the sentences that remain, one sentence after the other."""
        parents = rows.view(-1, self._beam) % self._beam
        history = self._history
        if len(parents) < len(history):
            stay = rows[:: self._beam].div(self._beam, rounding_mode="floor")
            self._sources = Sources([both[:, stay] for both in self._sources.keys_and_values], self._sources.mask[stay])
            self._caches = [cache[:, stay] for cache in self._caches]
            history = history[stay]
        self._history = history.gather(1, parents[:, :, None].expand(-1, -1, history.shape[2]))

    def _store(self, layer: int, made: Tensor) -> Tensor:
        """Write the keys and values of this step into the cache, and return all of the layer so far."""
        end = (self._steps + 1) * self._beam
        cache = self._caches[layer]
        cache[:, :, :, end - self._beam : end] = made
        return cache[:, :, :, :end]

    def _grow_caches(self) -> None:
        used, size = self._steps * self._beam, self._caches[0].shape[3]
        if used < size:
            return
        for number, cache in enumerate(self._caches):
            larger = cache.new_empty(*cache.shape[:3], 2 * size, cache.shape[4])
            larger[:, :, :, :used] = cache
            self._caches[number] = larger


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Compute attention [n, heads, q, size] with scaled queries; mask [n, 1, 1 or q, k] is added to the scores."""
    return ((query @ keys.transpose(2, 3)) + mask).softmax(dim=3) @ values


def _group_by_length(lengths: Sequence[int]) -> list[int]:
    """Return sizes of groups of ascending lengths; padding is at most a third of a group, or the group is small."""
    sizes, real = [0], 0
    for length in lengths:
        if length * (sizes[-1] + 1) > max(1.5 * (real + length), _FEW_TOKENS):
            sizes.append(0)
            real = 0
        sizes[-1] += 1
        real += length
    return sizes


def additive_mask(shown: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a boolean mask to one that is added to scores: 0 at True, -inf at False.

    Args:
        shown: A boolean mask of any shape.
        dtype: The dtype of the scores.
    """
    return torch.zeros(shown.shape, dtype=dtype, device=shown.device).masked_fill_(~shown, -torch.inf)


def _join(parts: Sequence[Any], scales: Sequence[float], linear: Callable[[Tensor, Tensor | None], Linear]) -> Linear:
    """Join linear layers of the same input to one layer."""
    weight = torch.cat([part.weight * scale for part, scale in zip(parts, scales, strict=True)])
    return linear(weight, torch.cat([part.bias * scale for part, scale in zip(parts, scales, strict=True)]))


def _attention(attention: Any, linear: Callable[[Tensor, Tensor | None], Linear]) -> tuple[Linear, Linear]:
    """Return the joined layer of scaled query, key and value, and the output layer of an attention block."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    outer = attention.out_proj
    return _join(parts, (attention.scaling, 1.0, 1.0), linear), linear(outer.weight, outer.bias)


def _norm(norm: Any) -> Norm:
    return Norm(norm.weight.detach(), norm.bias.detach(), norm.eps)


def _feed_forward(layer: Any, linear: Callable[[Tensor, Tensor | None], Linear]) -> FeedForward:
    inner, outer = (linear(part.weight, part.bias) for part in (layer.fc1, layer.fc2))
    return FeedForward(inner, layer.activation_fn, outer, _norm(layer.final_layer_norm))


def _encoder_layer(layer: Any, linear: Callable[[Tensor, Tensor | None], Linear]) -> EncoderLayer:
    return EncoderLayer(
        *_attention(layer.self_attn, linear), _norm(layer.self_attn_layer_norm), _feed_forward(layer, linear)
    )


def _decoder_layer(layer: Any, linear: Callable[[Tensor, Tensor | None], Linear]) -> DecoderLayer:
    across = layer.encoder_attn
    return DecoderLayer(
        *_attention(layer.self_attn, linear),
        _norm(layer.self_attn_layer_norm),
        _join((across.q_proj,), (across.scaling,), linear),
        _join((across.k_proj, across.v_proj), (1.0, 1.0), linear),
        linear(across.out_proj.weight, across.out_proj.bias),
        _norm(layer.encoder_attn_layer_norm),
        _feed_forward(layer, linear),
    )


def _embedding(half: Any) -> Embedding:
    """Return the embedding of an encoder or decoder; FSMT's positions begin after the one of its padding."""
    positions = half.embed_positions
    padding = getattr(positions, "padding_idx", None)
    first = 0 if padding is None else padding + 1
    return Embedding(half.embed_tokens.weight.detach(), half.embed_scale, positions.weight.detach(), first)
