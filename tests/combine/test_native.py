"""The native adaptive combiner against the one in torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.combine import AdaptiveCombiner, FixedCombiner, MetaK, Sources, StepContext
from ibidem.combine.combiners import NativeCombiner, to_native

pytestmark = pytest.mark.usefixtures("native_build")


def make(k: int, hidden: int, temperature: float, strength: float, seed: int) -> AdaptiveCombiner:
    torch.manual_seed(seed)
    network = MetaK(k, scale=7.0, hidden=hidden)
    for parameter in network.parameters():
        parameter.data.normal_(std=strength)
    return AdaptiveCombiner(network.eval().requires_grad_(False), temperature)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_weights_equal_those_in_torch(data: st.DataObject) -> None:
    k = data.draw(st.sampled_from([1, 2, 4, 8, 16, 64]))
    seed = data.draw(st.integers(0, 999))
    combiner = make(
        k,
        data.draw(st.sampled_from([1, 16, 32, 45])),
        data.draw(st.sampled_from([0.5, 10.0, 1000.0])),
        data.draw(st.sampled_from([0.01, 0.3, 3.0])),
        seed,
    )
    generator = torch.Generator().manual_seed(seed)
    rows = data.draw(st.integers(0, 9))
    distances = (torch.rand(rows, k, generator=generator) * 60).sort(1).values
    for wrong in data.draw(st.lists(st.sampled_from([torch.inf, torch.nan, 1e30]), max_size=4)):
        if rows:
            where = torch.randint(0, k, (rows,), generator=generator)
            distances[torch.arange(rows), where] = wrong
    values = torch.randint(0, data.draw(st.sampled_from([1, 3, 1000])), (rows, k), generator=generator)
    found, other = to_native(combiner).weigh(distances, values), combiner.weigh(distances, values)
    combiner.network.double()
    true = combiner.weigh(distances.double(), values)
    for mine, torchs, exact in zip(found, other, true, strict=True):
        # Strong weights magnify the rounding of float32, in torch as here.
        allowed = 1e-6 + 4 * float((torchs.double() - exact).abs().sum())
        torch.testing.assert_close(mine.double(), exact, rtol=0, atol=allowed)


def test_a_row_without_neighbours_is_the_base_models() -> None:
    combiner = to_native(make(4, 32, 10.0, 0.3, 1))
    weights = combiner.weigh(torch.tensor([[torch.inf, torch.nan, torch.inf, -torch.inf]]), torch.zeros(1, 4))
    assert weights.base.tolist() == [1.0]
    assert weights.neighbours.tolist() == [[0.0] * 4]


def test_what_has_no_native_form_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(FixedCombiner):
        """A combiner that native code does not have."""

    adaptive = make(4, 32, 10.0, 0.3, 1)
    other = Other(4, 0.5, 10.0)
    fast = to_native(adaptive)
    assert isinstance(fast, NativeCombiner)
    assert fast.k == 4
    assert to_native(fast) is fast
    assert to_native(other) is other
    monkeypatch.setattr("ibidem.combine.combiners.native", lambda: None)
    assert to_native(adaptive) is adaptive


def test_invalid_arguments_are_refused() -> None:
    combiner = to_native(make(4, 32, 10.0, 0.3, 1))
    with pytest.raises(ValueError, match=r"\[rows, 4\]"):
        combiner.weigh(torch.zeros(2, 8), torch.zeros(2, 8))
    with pytest.raises(ValueError, match=r"\[rows, 4\]"):
        combiner.weigh(torch.zeros(2, 4), torch.zeros(3, 4))


@pytest.mark.parametrize(("vocabulary", "banned"), [(900, []), (900, [0, 5]), (2, []), (3, [1]), (3, [0, 2])])
def test_log_probabilities_of_a_step(vocabulary: int, banned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one allowed token native code cannot return the two best."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = 9 * torch.randn(6, vocabulary, generator=generator)
    logits[2, :2] = 40.0
    tokens = torch.randint(vocabulary, (6, 8), generator=generator)
    left_out = torch.tensor(banned) if banned else None
    steps = [StepContext(logits, Sources(torch.ones(1, 4)), torch.zeros(6, dtype=torch.long), left_out) for _ in "12"]
    found = steps[0].log_probs_of(tokens), steps[0].top_log_probs
    assert ("log_probs" in steps[0].__dict__) == (vocabulary - len(banned) < 2)
    monkeypatch.setattr("ibidem.combine.contextual.native", lambda: None)
    torch.testing.assert_close(found, (steps[1].log_probs_of(tokens), steps[1].top_log_probs), atol=1e-5, rtol=1e-5)
