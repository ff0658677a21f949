"""The Triton kernels of the inverted file against torch: on CUDA, elsewhere by the interpreter of Triton."""

from __future__ import annotations

import pytest
import torch

from ibidem.retrieve import ArrayKeys, ListIndex

from ..samples import draw_skewed

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("rows", "dimension", "nprobe"), [(5, 64, 3), (33, 32, 2), (17, 128, 1)])
def test_kernels_find_the_same(rows: int, dimension: int, nprobe: int) -> None:
    index = ListIndex(ArrayKeys(draw_skewed(1200, dimension)), DEVICE, lists=7, nprobe=nprobe, seed=0)
    index._keys = index._keys.half()  # on a CPU resident keys are float32
    queries = torch.from_numpy(draw_skewed(rows, dimension, 1)).float().to(DEVICE) + 0.01
    queries[2] = torch.nan
    plain = index._find(queries, 5, 9)
    fused = index._find_fused(queries, 5, 9)
    assert torch.equal(fused.entries, plain.entries)
    torch.testing.assert_close(fused.distances, plain.distances, rtol=1e-5, atol=1e-5)


def test_the_limit_is_close_above_the_score_of_the_last_list() -> None:
    from ibidem.retrieve.gpu.list_kernels import limit_scores

    scores = 10 * torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    scores[1, :20] = 1.5
    scores[2] = torch.inf
    scores[3] = -0.0
    there = torch.tensor([0, 1, 3])
    step = (scores.amax(1) - scores.amin(1))[there] / 2**16
    for nprobe in (1, 7, 50):
        last = scores.sort(dim=1).values[there, nprobe - 1]
        limits = limit_scores(scores, nprobe)
        assert (limits[there] >= last).all()  # never too low
        assert (limits[there] <= last + 1.01 * step).all()
        assert limits[2] == -torch.inf  # no list can be probed
