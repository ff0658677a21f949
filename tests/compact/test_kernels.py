"""The Compact Network by Triton kernels against torch: compiled on CUDA, elsewhere run by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from ibidem.compact import NetworkCompactor

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("rows", "inputs", "hidden", "outputs"), [(1, 16, 10, 3), (5, 200, 40, 64), (70, 96, 33, 16)])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_network_by_kernels(
    rows: int, inputs: int, hidden: int, outputs: int, activation: str, dtype: torch.dtype
) -> None:
    from ibidem.compact.kernels import apply_layer, launches

    torch.manual_seed(rows)
    network = NetworkCompactor(inputs, hidden, outputs, activation).to(DEVICE).requires_grad_(False)
    states = torch.randn(rows, inputs).to(DEVICE, dtype)
    inner, outer = (layer.double() for layer in NetworkCompactor(inputs, hidden, outputs, activation).children())
    inner.load_state_dict(network.inner.state_dict())
    outer.load_state_dict(network.outer.state_dict())
    act = torch.sigmoid if activation == "sigmoid" else torch.tanh
    expected = outer(act(inner(states.cpu().double())))
    for launch in launches(rows)[:2]:
        found = apply_layer(apply_layer(states, network.inner, activation, launch), network.outer, None, launch)
        torch.testing.assert_close(found.cpu().double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("rows", [5, 40, 320])
def test_the_papers_shape(rows: int) -> None:
    torch.manual_seed(0)
    network = NetworkCompactor(1024, 256, 64, "sigmoid").cuda().requires_grad_(False)
    states = torch.randn(rows, 1024, device="cuda").half()
    with torch.enable_grad():  # torch's own products
        expected = network.double()(states.double())
        network.float()
    with torch.no_grad():
        found = network(states)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
