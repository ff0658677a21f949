"""A layer of the Compact Network in one Triton kernel: product, bias and activation.

Imported only where Triton is installed. Each product is three tf32 products, which is almost as exact as float32:
queries must be mapped to the same places as the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor, nn


class Launch(NamedTuple):
    """The launch of a kernel.

    Attributes:
        rows: Rows of a program's tile.
        outputs: Outputs of a program's tile.
        inputs: Inputs that are multiplied at once.
        warps: Warps of a program.
        stages: Stages of the software pipeline over the inputs.
    """

    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int


def launches(rows: int) -> list[Launch]:
    """Return the launches that suit a number of rows.

    Args:
        rows: The number of states.

    Returns:
        The launches; `apply_layer` uses the first, and a benchmark compares all.
    """
    if rows <= 64:
        return [Launch(16, 32, 64, 4, 4), Launch(16, 16, 64, 2, 4), Launch(16, 16, 128, 4, 3)]
    return [Launch(16, 32, 128, 4, 3), Launch(32, 32, 64, 4, 4), Launch(64, 32, 64, 4, 3)]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _layer(  # type: ignore[no-untyped-def]
    x,
    weight,
    bias,
    y,
    rows,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    activation: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    piece: tl.constexpr,
    stages: tl.constexpr,
):
    row = tl.program_id(0) * block + tl.arange(0, block)
    output = tl.program_id(1) * wide + tl.arange(0, wide)
    shown = row[:, None] < rows
    sums = tl.zeros((block, wide), tl.float32)
    for start in tl.range(0, inputs, piece, num_stages=stages):
        component = start + tl.arange(0, piece)
        in_range = component[None, :] < inputs
        part = tl.load(x + row[:, None] * inputs + component[None, :], mask=shown & in_range, other=0.0).to(tl.float32)
        factor = tl.load(
            weight + output[:, None] * inputs + component[None, :],
            mask=(output[:, None] < outputs) & in_range,
            other=0.0,
        )
        sums = tl.dot(part, tl.trans(factor), sums, input_precision="tf32x3")
    sums += tl.load(bias + output, mask=output < outputs, other=0.0)[None, :]
    if activation == "sigmoid":
        sums = 1.0 / (1.0 + tl.exp(-sums))
    if activation == "tanh":
        sums = 1.0 - 2.0 / (tl.exp(2.0 * sums) + 1.0)
    tl.store(y + row[:, None] * outputs + output[None, :], sums, mask=shown & (output[None, :] < outputs))


def apply_layer(x: Tensor, layer: nn.Linear, activation: str | None, launch: Launch | None = None) -> Tensor:
    """Apply a linear layer and an activation.

    Args:
        x: Input [n, d], of any float type.
        layer: The layer, with weights of float32.
        activation: "sigmoid", "tanh" or None.
        launch: The launch; the first of `launches` by default.

    Returns:
        Output [n, c] of float32.
    """
    rows, inputs = x.shape
    outputs = len(layer.weight)
    shape = launches(rows)[0] if launch is None else launch
    y = torch.empty(rows, outputs, device=x.device)
    _layer[(triton.cdiv(rows, shape.rows), triton.cdiv(outputs, shape.outputs))](
        x.contiguous(),
        layer.weight,
        layer.bias,
        y,
        rows,
        inputs=inputs,
        outputs=outputs,
        activation=activation,
        block=shape.rows,
        wide=shape.outputs,
        piece=min(shape.inputs, max(16, triton.next_power_of_2(inputs))),
        stages=shape.stages,
        num_warps=shape.warps,
    )
    return y
