"""Compactors against their formulas, and their application to all keys of a memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from ibidem.compact import Compactor, LinearCompactor, NetworkCompactor, compact_keys
from ibidem.errors import MemoryFolderError, MismatchError, UsageError
from ibidem.retrieve import ArrayKeys


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


def random_keys(size: int = 50) -> np.ndarray:
    keys = np.random.default_rng(0).normal(size=(size, 10)).astype(np.float16)
    keys.flags.writeable = False
    return keys


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_blocks_join_to_the_whole(rows: int) -> None:
    keys, network, seen = random_keys(), make_network(), []

    def watch(_label: str, share: float | None, done: int, unit: str) -> None:
        seen.append((share, done, unit))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blocks = list(compact_keys(network, ArrayKeys(keys), rows=rows, progress=watch))
    assert [len(block) for block in blocks] == [len(keys[i : i + rows]) for i in range(0, 50, rows)]
    assert all(block.dtype == np.float16 for block in blocks)
    whole = network(torch.tensor(keys)).numpy()
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-3, atol=1e-6)
    assert seen[-1] == (1.0, 50, "keys")


def test_keys_of_another_model_are_refused_before_any_is_read() -> None:
    with pytest.raises(MismatchError, match=r"takes keys of 10 dimensions and the memory's have 9.*train one"):
        compact_keys(make_network(), ArrayKeys(np.zeros((3, 9), np.float16)))


def test_a_compact_key_beyond_float16_is_refused() -> None:
    keys = np.ones((5, 4), np.float16)
    keys[3] = 100
    fits = LinearCompactor("svd", torch.full((2, 4), 65000 / 400))
    assert np.isfinite(np.concatenate(list(compact_keys(fits, ArrayKeys(keys))))).all()
    beyond = LinearCompactor("svd", torch.full((2, 4), 66000 / 400))
    blocks = compact_keys(beyond, ArrayKeys(keys), rows=2)
    next(blocks)
    with pytest.raises(UsageError, match=r"entry 3 reaches 6.6e\+04.*another objective or activation, or scale"):
        next(blocks)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("compactor", [LinearCompactor("pca", torch.ones(2, 10), torch.ones(10)), make_network()])
def test_a_key_that_is_not_finite_is_named(wrong: float, compactor: Compactor) -> None:
    """Also where the activation maps an infinite component to a finite one."""
    keys = random_keys().copy()
    keys[41, 3] = wrong
    with pytest.raises(MemoryFolderError, match=r"entry 41.*ibidem verify"):
        list(compact_keys(compactor, ArrayKeys(keys)))
