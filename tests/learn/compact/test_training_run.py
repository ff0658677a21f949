"""The first weights fit the scale of the keys, and captured updates equal eager ones."""

from __future__ import annotations

import pytest
import torch

from ibidem.compact import NetworkCompactor
from ibidem.learn.compact import parse_objectives
from ibidem.learn.compact.trainer import OUTPUT_SIZE, CudaGraphUpdate, EagerUpdate, initialise, start_run
from ibidem.learn.compact.triplets import TripletBatch

from .samples import quick


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_the_first_compact_keys_are_centred_and_scaled(activation: str, size: float) -> None:
    draw = torch.Generator().manual_seed(0)
    keys = size * (torch.randn(2000, 40, generator=draw) + 3)
    network = NetworkCompactor(40, 32, 8, activation)
    initialise(network, keys, torch.Generator().manual_seed(1))
    compact = network(keys).detach()
    assert float(compact.mean(dim=0).abs().max()) < 0.01
    assert float(compact.square().mean().sqrt()) == pytest.approx(OUTPUT_SIZE, rel=0.01)
    assert float(compact.std(dim=0).min()) > OUTPUT_SIZE / 4


def test_equal_keys_give_finite_weights() -> None:
    network = NetworkCompactor(4, 3, 2, "tanh")
    initialise(network, torch.ones(5, 4), torch.Generator().manual_seed(1))
    assert bool(torch.isfinite(network(torch.ones(5, 4))).all())


@pytest.mark.gpu
@pytest.mark.parametrize("objectives", ["nce", "nce+ranking", "nce+prediction"])
def test_a_captured_update_equals_an_eager_one(objectives: str) -> None:
    """Also after the learning rate has changed."""
    settings = quick(objectives=parse_objectives(objectives))
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(24, 3 * 16, 12, generator=generator).cuda()
    words = torch.randint(0, 40, (24, 2, 16), generator=generator).cuda()
    found = []
    for kind in (EagerUpdate, CudaGraphUpdate):
        run = start_run(keys[0].cpu(), 40, settings, torch.device("cuda"))
        apply = kind(run, settings.clip)
        for number in range(24):
            if number == 12:
                run.optimizer.param_groups[0]["lr"] *= 0.5
            apply(TripletBatch(keys[number, :16], keys[number, 16:], words[number]))
        found.append([parameter.detach().cpu() for parameter in run.network.parameters()])
    for eager, captured in zip(*found, strict=True):
        torch.testing.assert_close(captured, eager, rtol=1e-5, atol=1e-6)
