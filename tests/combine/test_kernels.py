"""The Triton kernels against torch: compiled on CUDA, elsewhere run by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from ibidem.combine import Candidates, candidates_in_torch

from .test_combiners import make_combiner
from .test_mixture import check_candidates, dense_mixture, draw_logits

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("k", [1, 2, 8, 16])
@pytest.mark.parametrize("temperature", [0.5, 100.0])
def test_the_weights_of_meta_k(k: int, temperature: float) -> None:
    from ibidem.combine.kernels import weigh_meta_k

    combiner = make_combiner(k, seed=k, temperature=temperature)
    combiner.network.to(DEVICE)
    generator = torch.Generator().manual_seed(k)
    distances = (torch.rand(7, k, generator=generator) * 60).sort(dim=1).values.to(DEVICE)
    distances[1] = torch.inf
    distances[2, k // 2 :] = torch.inf
    distances[3] = 0.0
    distances[4, 0] = torch.nan
    distances[5] = 1e30
    values = torch.randint(5, (7, k), generator=generator).to(DEVICE)
    expected = combiner.weigh_in_torch(distances, values)
    found = weigh_meta_k(distances, values, combiner.network, temperature, 10.0)
    torch.testing.assert_close(found.neighbours, expected.neighbours, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.base, expected.base, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("vocabulary", "k", "count", "banned"),
    [(3, 8, 10, []), (60, 0, 10, [1, 2]), (60, 1, 4, []), (900, 8, 6, [0]), (512, 16, 1, [7]), (2049, 0, 2, [])],
)
def test_the_best_of_the_mixture(
    vocabulary: int, k: int, count: int, banned: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ibidem.combine import kernels

    logits, weights, values = draw_logits(vocabulary + k, 3, vocabulary, k)
    logits = logits.to(dtype)
    expected = dense_mixture(logits.float(), weights, values)
    expected[:, banned] = -torch.inf
    left_out = torch.tensor(banned, device=DEVICE) if banned else None
    weights = type(weights)(*(part.to(DEVICE) for part in weights))
    wanted = min(count, vocabulary)
    for piece in (256, 2048):
        monkeypatch.setattr(kernels, "PIECE", piece)
        found = kernels.best_of_mixture(logits.to(DEVICE), weights, values.to(DEVICE), wanted, left_out)
        check_candidates(Candidates(*(part.cpu() for part in found)), expected, count)
        assert int(found[1].max()) < vocabulary


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("rows", [5, 40, 320])
@pytest.mark.parametrize("k", [0, 8])
def test_a_vocabulary_of_full_size(rows: int, k: int) -> None:
    from ibidem.combine.kernels import best_of_mixture

    logits, weights, values = draw_logits(0, rows, 42_024, k)
    logits, values = logits.half().cuda(), values.cuda()
    weights = type(weights)(*(part.cuda() for part in weights))
    scores, tokens = best_of_mixture(logits, weights, values, 10, None)
    plain = candidates_in_torch(logits, weights, values, 10)
    torch.testing.assert_close(scores, plain.log_probs, atol=1e-4, rtol=1e-4)
    # float16 logits are often equal, and then either token will do.
    assert (tokens == plain.tokens).float().mean() > 0.95
