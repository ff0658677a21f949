"""Decoded product codes, compared with those of faiss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ibidem.retrieve import ArrayKeys, ExactIndex, ListIndex, build_index, resolve
from ibidem.retrieve.gpu.quantization import PQ_CENTRES, apply_product_codes
from ibidem.retrieve.index_settings import ListSettings

faiss = pytest.importorskip("faiss")


def draw(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, dimension))
    own = generator.integers(40, size=count)
    return (centres[own] + 0.4 * generator.standard_normal((count, dimension))).astype(np.float16)


def test_a_decoded_part_is_one_of_256_differences_from_the_centroid() -> None:
    keys = torch.from_numpy(draw(3000, 8)).float()
    lists = torch.arange(3000) % 5
    lists[::100] = -1
    decoded = apply_product_codes(keys, torch.zeros(5, 8), lists, 4, seed=0)
    assert not decoded[lists < 0].any()
    for part in range(4):
        assert len(torch.unique(decoded[lists >= 0].view(-1, 4, 2)[:, part], dim=0)) <= PQ_CENTRES
    far = 100.0 * torch.arange(5.0)[:, None].expand(-1, 8)
    moved = apply_product_codes(keys + far[lists.clamp(min=0)], far, lists, 4, seed=0)
    torch.testing.assert_close((moved - far[lists.clamp(min=0)])[lists >= 0], decoded[lists >= 0], atol=1e-3, rtol=0)


def test_the_error_is_as_small_as_that_of_faiss() -> None:
    keys = torch.from_numpy(draw(6000, 32)).float()
    quantizer = faiss.ProductQuantizer(32, 8, 8)
    quantizer.train(keys.numpy())
    theirs = torch.from_numpy(quantizer.decode(quantizer.compute_codes(keys.numpy())))
    ours = apply_product_codes(keys, torch.zeros(1, 32), torch.zeros(6000, dtype=torch.long), 8, seed=0)
    assert (ours - keys).square().mean() <= 1.03 * (theirs - keys).square().mean()


def test_few_keys_are_decoded_exactly() -> None:
    keys = torch.from_numpy(draw(100, 8)).float()
    decoded = apply_product_codes(keys, torch.zeros(1, 8), torch.zeros(100, dtype=torch.long), 2, seed=0)
    torch.testing.assert_close(decoded, keys)


@pytest.mark.parametrize(
    ("dimension", "code_bytes"),
    [
        (128, 8),
        pytest.param(16, 16, marks=pytest.mark.slow),
        pytest.param(64, 8, marks=pytest.mark.slow),
        pytest.param(512, 64, marks=pytest.mark.slow),
        pytest.param(1024, 64, marks=pytest.mark.slow),
    ],
)
def test_the_paper_index_on_a_gpu_has_the_recall_of_faiss(dimension: int, code_bytes: int) -> None:
    """Compare at 1, 8 and 16 dimensions a byte; the tables have 1 (64 dimensions), 8 (512) and 16 (1024)."""
    keys, queries = draw(12_000, dimension), torch.from_numpy(draw(200, dimension, 1)).float()
    settings = resolve("paper", 12_000, dimension, device="cuda")
    assert isinstance(settings, ListSettings)
    assert settings.code_bytes == min(dimension, 64)
    assert settings.nprobe is not None
    ours = ListIndex(
        ArrayKeys(keys), "cpu", lists=settings.lists, nprobe=settings.nprobe, seed=1, code_bytes=code_bytes
    )
    factory = f"IVF{settings.lists},PQ{code_bytes};nprobe={settings.nprobe}"
    theirs = build_index(ArrayKeys(keys), "paper" if code_bytes == settings.code_bytes else factory, seed=1)
    exact = ExactIndex(ArrayKeys(keys)).search(queries, 16).entries
    recall = [
        torch.isin(
            index.search(queries, 16).entries + 40_000 * torch.arange(200)[:, None],
            exact + 40_000 * torch.arange(200)[:, None],
        )
        .float()
        .mean()
        .item()
        for index in (ours, theirs)
    ]
    assert abs(recall[0] - recall[1]) < 0.03
    distances = ours.search(queries, 16).distances, theirs.search(queries, 16).distances
    # Two codebooks of coarse codes differ in single distances, not in their mean.
    assert (distances[0] - distances[1]).abs().mean() < (0.02 if code_bytes == dimension else 0.04) * distances[
        1
    ].mean()
    assert (distances[0].mean() - distances[1].mean()).abs() < 0.02 * distances[1].mean()
