"""LoRA: low-rank adapters of the linear layers, trained in place of all weights and then merged into them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ibidem.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

DOWN, UP = "lora_down", "lora_up"


class _Adapter(NamedTuple):
    """A layer with an adapter, and the hook that adds the adapter's product to the output of the layer."""

    layer: nn.Linear
    hook: RemovableHandle


class Adapters:
    """Low-rank adapters of all linear layers of a network, except its output projection.

    A layer with weights W [outputs, inputs] computes (W + scale * U D) x, where D [rank, inputs] is drawn at random and
    U [outputs, rank] begins with zeros (Hu et al., LoRA, ICLR 2022): before the training the network computes what it
    did. All other weights are frozen.

    Args:
        network: A transformers model, whose layers receive the adapters.
        rank: The rank of the adapters.
        scale: The factor of their products, alpha / rank in the paper.
        seed: The seed of D.

    Raises:
        ModelError: The network has no linear layer besides its output projection.
    """

    def __init__(self, network: nn.Module, rank: int, scale: float, seed: int) -> None:
        self._scale = scale
        self._adapters: list[_Adapter] = []
        network.requires_grad_(False)
        draw = torch.Generator().manual_seed(seed)
        for layer in adapted_layers(network):
            weight = layer.weight
            # The distribution of `nn.Linear`, drawn on the CPU, so that it is the same on every device.
            bound = 1 / math.sqrt(layer.in_features)
            down = torch.empty(rank, layer.in_features).uniform_(-bound, bound, generator=draw)
            layer.register_parameter(DOWN, nn.Parameter(down.to(weight)))
            layer.register_parameter(UP, nn.Parameter(weight.new_zeros(layer.out_features, rank)))
            self._adapters.append(_Adapter(layer, layer.register_forward_hook(_add_product(scale))))
        if not self._adapters:
            raise ModelError(
                "The model has no linear layers that could receive adapters: train all weights with --set lora_rank=0."
            )

    @torch.no_grad()
    def merge(self) -> None:
        """Add the products of the adapters to the weights, and remove the adapters."""
        for layer, hook in self._adapters:
            hook.remove()
            layer.weight.addmm_(layer.get_parameter(UP), layer.get_parameter(DOWN), alpha=self._scale)
            delattr(layer, UP)
            delattr(layer, DOWN)
        self._adapters = []


def adapted_layers(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a network that receive adapters: all but the output projection.

    Args:
        network: A transformers model.
    """
    find_projection: Callable[[], nn.Module | None] | None = getattr(network, "get_output_embeddings", None)
    projection = None if find_projection is None else find_projection()
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear) and layer is not projection]


def _add_product(scale: float) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    """Return a hook that adds scale * U D x to the output of a layer."""

    def add(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output + scale * linear(linear(inputs[0], layer.get_parameter(DOWN)), layer.get_parameter(UP))

    return add
