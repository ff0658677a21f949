"""The weights that training starts from, in the units of the keys at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from ibidem.compact import NetworkCompactor

# Compact keys of 64 components start with a length of 2: dot products of a few units, distances of a few.
OUTPUT_SIZE = 0.25
_HIDDEN_SIZE = 1.0
_TINY = 1e-6


@torch.no_grad()
def initialise(network: NetworkCompactor, sample: Tensor, generator: torch.Generator) -> None:
    """Draw normal weights, each layer scaled and shifted so that a sample of keys [n, d] comes out centred.

    The authors' Xavier weights of gain 0.01 and 0.1 fit no scale in particular: a sigmoid then gives the same output
    for all keys, and training has to find its way out of that first.
    """
    states = sample.to(network.inner.weight.dtype)
    _fit(network.inner, states, _HIDDEN_SIZE, generator)
    _fit(network.outer, network.activate(states), OUTPUT_SIZE, generator)


def _fit(layer: nn.Linear, inputs: Tensor, size: float, generator: torch.Generator) -> None:
    """Make a layer's outputs of these inputs [n, in] have the mean 0 and the root mean square `size`."""
    mean = inputs.mean(dim=0)
    layer.weight.normal_(generator=generator)
    outputs = (inputs - mean) @ layer.weight.T
    layer.weight.mul_(size / outputs.square().mean().sqrt().clamp_min(_TINY))
    layer.bias.copy_(-(layer.weight @ mean))
