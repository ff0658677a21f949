"""Compactors compute what they say, in float32, whatever comes in."""

from __future__ import annotations

import pytest
import torch

from ibidem.compact import Compactor, LinearCompactor, NetworkCompactor
from ibidem.errors import UsageError


def make_network(activation: str = "tanh") -> NetworkCompactor:
    torch.manual_seed(2)
    return NetworkCompactor(10, 7, 3, activation).requires_grad_(False)


def make_linear(kind: str, mean: torch.Tensor | None) -> LinearCompactor:
    return LinearCompactor(kind, torch.randn(3, 10, generator=torch.Generator().manual_seed(3)), mean)


@pytest.mark.parametrize(
    ("activation", "formula"),
    [("sigmoid", lambda x: 1 / (1 + (-x).exp())), ("tanh", lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()))],
)
def test_the_network_is_two_layers_with_the_activation_between(activation: str, formula) -> None:
    network = make_network(activation)
    state = torch.randn(10)
    weights = {name: tensor.double() for name, tensor in network.state_dict().items()}
    hidden = formula(weights["inner.weight"] @ state.double() + weights["inner.bias"])
    expected = weights["outer.weight"] @ hidden + weights["outer.bias"]
    torch.testing.assert_close(network(state[None])[0].double(), expected, rtol=1e-5, atol=1e-6)
    assert network.summary() == {
        "kind": "network",
        "input_dimension": 10,
        "hidden": 7,
        "dimension": 3,
        "activation": activation,
    }


def test_linear_compactors() -> None:
    states, mean = torch.randn(5, 10), torch.randn(10)
    pca, svd = make_linear("pca", mean), make_linear("svd", None)
    torch.testing.assert_close(pca(states), torch.stack([pca.projection @ (x - mean) for x in states]))
    torch.testing.assert_close(svd(states), torch.stack([svd.projection @ x for x in states]))
    assert svd(torch.zeros(1, 10)).abs().max() == 0
    assert pca.summary() == {"kind": "pca", "input_dimension": 10, "dimension": 3}


@pytest.mark.parametrize("compactor", [make_network(), make_linear("pca", torch.ones(10)), make_linear("svd", None)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_any_precision_in_single_precision_out(compactor: Compactor, dtype: torch.dtype) -> None:
    states = torch.randn(4, 10).to(dtype)
    compact = compactor.to("cpu")(states)
    assert compact.dtype == torch.float32
    assert compact.shape == (4, compactor.dimension) == (4, 3)
    assert compactor.input_dimension == 10
    # Half precision is widened before anything is computed.
    assert torch.equal(compact, compactor(states.float()))


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(UsageError, match="sigmoid, tanh"):
        NetworkCompactor(4, 4, 2, "relu")
    with pytest.raises(UsageError, match="pca, svd"):
        LinearCompactor("ica", torch.zeros(2, 4))
