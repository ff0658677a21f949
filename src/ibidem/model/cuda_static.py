"""The decoder of `FastMarian` with constant shapes, so that a CUDA graph can replay a recorded step.

The caches have the size of the longest translation from the start, and the step counter is on the device. Positions
that are not written yet are masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ibidem.model.decoding import mean_states
from ibidem.model.fast_marian import Sources, additive_mask

if TYPE_CHECKING:
    from ibidem.model.fast_marian import FastMarian


class StaticShape(NamedTuple):
    """The sizes of the buffers of a `CudaStaticDecoding`.

    Attributes:
        batch: Sentences.
        beam: Hypotheses for each sentence.
        source: Source tokens of each sentence.
        steps: Decoding steps.
    """

    batch: int
    beam: int
    source: int
    steps: int


class CudaStaticDecoding:
    """A decoding in buffers of fixed size: `load` sources, then call `step` and `reorder` in turn.

    Attributes:
        number: [1] the number of the current step, on the device.
        source_means: [batch, d] the mean encoder state of each source, float32.
    """

    def __init__(self, network: FastMarian, shape: StaticShape) -> None:
        """Allocate the buffers.

        Args:
            network: The weights.
            shape: The sizes of the buffers.
        """
        batch, beam, source, steps = shape
        self._network = network
        self._shape = shape
        like = network.states_like
        size = network.width // network.heads
        self._sources = Sources(
            [like.new_zeros(2, batch, network.heads, source, size) for _ in network.decoder],
            like.new_zeros(batch, 1, 1, source),
        )
        self._caches = [like.new_zeros(2, batch, network.heads, steps * beam, size) for _ in network.decoder]
        self._history = like.new_full((batch, beam, steps * beam), -torch.inf)
        slots = torch.arange(steps * beam, device=like.device)
        self._slot_steps = slots.div(beam, rounding_mode="floor")
        self._self_mask = slots % beam == torch.arange(beam, device=like.device)[:, None]
        self._places = slots[:beam]
        self.number = torch.zeros(1, dtype=torch.long, device=like.device)
        self.source_means = torch.zeros(batch, network.width, device=like.device)

    @torch.inference_mode()
    def load(self, ids: Tensor, mask: Tensor) -> None:
        """Encode sources and start their decoding; unused rows of the batch get an empty source.

        Args:
            ids: [n, s] padded token ids; n and s are at most `shape.batch` and `shape.source`.
            mask: [n, s] 1 at real tokens, 0 at padding.
        """
        batch, _, longest, _ = self._shape
        count, length = ids.shape
        encoded = self._network.encode(ids, mask)
        for kept, new in zip(self._sources.keys_and_values, self._network.attend_sources(encoded), strict=True):
            kept.zero_()
            kept[:, :count, :, :length] = new
        self.source_means.zero_()
        self.source_means[:count] = mean_states(encoded, mask)
        shown = torch.zeros(batch, longest, dtype=torch.bool, device=ids.device)
        shown[:, 0] = True
        shown[:count, :length] = mask.bool()
        self._sources.mask.copy_(additive_mask(shown[:, None, None], encoded.dtype))
        self._history.fill_(-torch.inf)
        self.number.zero_()

    def step(self, tokens: Tensor) -> Tensor:
        """Feed one token to each row.

        Args:
            tokens: [rows] token ids, rows = batch * beam.

        Returns:
            [rows, d] states, the inputs of the output projection.
        """
        now = (self._slot_steps == self.number) & self._self_mask
        self._history.masked_fill_(now, 0.0)
        x = self._network.embed_at(tokens, self.number)
        return self._network.decode(x, self._shape.beam, self._store, self._history[:, None], self._sources)

    def project(self, states: Tensor) -> Tensor:
        """Compute the logits of states.

        Args:
            states: [rows, d] states of `step`.

        Returns:
            [rows, V] logits in the dtype of the states; a float32 copy of them all would cost memory bandwidth.
        """
        return self._network.output(states)

    def reorder(self, parents: Tensor) -> None:
        """Continue each hypothesis from another one of its sentence, and advance to the next step.

        Args:
            parents: [batch, beam] the hypothesis, from 0 to beam - 1, that each one continues.
        """
        chosen = parents[:, :, None].expand(-1, -1, self._history.shape[2])
        self._history.copy_(self._history.gather(1, chosen))
        self.number += 1

    def _store(self, layer: int, made: Tensor) -> Tensor:
        cache = self._caches[layer]
        cache.index_copy_(3, self._places + self.number * self._shape.beam, made)
        return cache
