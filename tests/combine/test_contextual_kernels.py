"""The Triton kernels of the contextual combiner against torch: compiled on CUDA, elsewhere run by the interpreter."""

from __future__ import annotations

import pytest
import torch

from ibidem.combine import (
    ContextualCombiner,
    ContextualNetwork,
    DeviceSourceProjection,
    EntryTable,
    NeighbourContext,
    Sources,
    StepContext,
)

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = 7
ENTRIES = 40


def draw_neighbours(k: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Distances, tokens and entries, some of them absent, equal or without a number."""
    generator = torch.Generator().manual_seed(seed)
    distances = (torch.rand(ROWS, k, generator=generator) * 9).sort(dim=1).values
    distances[1] = torch.inf
    distances[2, k // 2 :] = torch.inf
    distances[3] = 0.0
    distances[4, 0] = torch.nan
    distances[5] = 1e30
    entries = torch.randint(ENTRIES, (ROWS, k), generator=generator)
    entries[~torch.isfinite(distances)] = -1
    values = torch.randint(5, (ROWS, k), generator=generator)
    return distances.to(DEVICE), values.to(DEVICE), entries.to(DEVICE)


@torch.no_grad()
@pytest.mark.parametrize(("k", "hidden", "neighbour_hidden"), [(1, 5, 3), (3, 16, 32), (8, 64, 32), (16, 33, 7)])
def test_the_weights_of_the_contextual_network(k: int, hidden: int, neighbour_hidden: int) -> None:
    from ibidem.combine.contextual import FAR, LEAST_LOG_PROB, LOG_UNIT, TEMPERATURE
    from ibidem.combine.contextual_kernels import weigh_contextual

    torch.manual_seed(k)
    network = ContextualNetwork(k, scale=3.0, hidden=hidden, neighbour_hidden=neighbour_hidden).to(DEVICE)
    for layer in (network.base, network.temperature, network.score):
        layer.weight.normal_()
    distances, values, _ = draw_neighbours(k, k)
    now, stored = -3 * torch.rand(2, ROWS, k) / torch.rand(2, ROWS, k).clamp_min(1e-3)
    top = (-2 * torch.rand(ROWS, 2)).sort(dim=1, descending=True).values
    top[0, 1] = -torch.inf
    context = NeighbourContext(*(part.to(DEVICE) for part in (now, stored, 2 * torch.rand(ROWS, k), top)))
    expected = ContextualCombiner(network).weigh_in_torch(distances, values, context)
    found = weigh_contextual(distances, values, context, network, FAR, LEAST_LOG_PROB, LOG_UNIT, TEMPERATURE)
    torch.testing.assert_close(found.neighbours, expected.neighbours, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.base, expected.base, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("vocabulary", "k", "size", "banned"), [(60, 8, 16, []), (5, 1, 3, [0, 1, 2, 3]), (700, 3, 64, [0, 699])]
)
def test_what_is_known_about_neighbours(
    vocabulary: int, k: int, size: int, banned: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ibidem.combine import kernels
    from ibidem.combine.contextual import VECTOR_LENGTH
    from ibidem.combine.contextual_kernels import know_neighbours

    monkeypatch.setattr(kernels, "PIECE", 256)
    generator = torch.Generator().manual_seed(vocabulary)
    logits = (torch.randn(ROWS, vocabulary, generator=generator) * 6).to(dtype).to(DEVICE)
    logits[0, :2] = 40.0  # equal and highest
    _, values, entries = draw_neighbours(k, vocabulary)
    sentences = torch.randint(9, (ENTRIES,), generator=generator, dtype=torch.int32)
    vectors = torch.randint(-127, 128, (9, size), generator=generator, dtype=torch.int8)
    projection = DeviceSourceProjection(
        torch.zeros(12, device=DEVICE), torch.randn(12, size, generator=generator).to(DEVICE)
    )
    log_probs = -torch.rand(ENTRIES, generator=generator).half()
    table = EntryTable(values.flatten(), *(part.to(DEVICE) for part in (log_probs, sentences, vectors)), projection)
    sources = Sources(torch.randn(4, 12, generator=generator).to(DEVICE))
    rows = torch.randint(4, (ROWS,), generator=generator).to(DEVICE)
    left_out = torch.tensor(banned, device=DEVICE) if banned else None
    expected = StepContext(logits, sources, rows, left_out).of_in_torch(table, entries, values)
    found = know_neighbours(
        *(logits, left_out, values, entries, log_probs.to(DEVICE), sentences.to(DEVICE), vectors.to(DEVICE)),
        *(sources.vectors(projection), rows, VECTOR_LENGTH),
    )
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=1e-5)
