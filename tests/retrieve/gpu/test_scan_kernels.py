"""The Triton kernels of the scan against their torch form: on CUDA, elsewhere by the interpreter of Triton."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ibidem.retrieve import ArrayKeys, ScanIndex
from ibidem.retrieve.gpu import scan
from ibidem.retrieve.gpu.quantization import encode_keys
from ibidem.retrieve.index import clean_queries
from ibidem.retrieve.keys import TILE

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(count: int, dimension: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(13, dimension, generator=generator) + 1
    members = torch.randint(13, (count,), generator=generator)
    return (centres[members] + 0.3 * torch.randn(count, dimension, generator=generator)).to(DEVICE)


def draw_tiles(count: int, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw float16 keys in whole tiles, and their squared lengths, inf for some places."""
    keys = draw(count, dimension).half()
    squares = keys.float().square().sum(1)
    squares[7::50] = torch.inf
    squares[-60:] = torch.inf
    keys[torch.isinf(squares)] = 0
    return keys, squares


def group_minima(minima: torch.Tensor) -> torch.Tensor:
    """Return the lowest of every eight columns."""
    short = -minima.shape[1] % 8
    return torch.nn.functional.pad(minima, (0, short), value=torch.inf).view(len(minima), -1, 8).amin(2)


@pytest.mark.parametrize(
    ("rows", "dimension", "tiles"), [(5, 16, 1), (5, 64, 11), (20, 128, 9), (40, 64, 8), (4, 192, 2)]
)
def test_minima_of_float16_keys(rows: int, dimension: int, tiles: int) -> None:
    from ibidem.retrieve.gpu.scan_kernels import float16_minima, launches

    keys, squares = draw_tiles(tiles * TILE, dimension)
    queries = draw(rows, dimension, 1)
    queries[1] = torch.nan
    queries[2] = 1e30
    queries[3] = 1e6
    clean, _ = clean_queries(queries)
    expected = scan.tile_minima(scan.round_queries(clean, torch.float16), keys, squares)
    for launch in launches(rows, dimension)[:2]:
        minima, groups = float16_minima(queries, keys, squares, TILE, launch)
        torch.testing.assert_close(minima, expected, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(groups, group_minima(minima), rtol=0, atol=0)


@pytest.mark.parametrize(("rows", "dimension", "tiles"), [(5, 64, 11), (20, 32, 3), (70, 128, 2)])
def test_minima_of_int8_codes(rows: int, dimension: int, tiles: int) -> None:
    from ibidem.retrieve.gpu.scan_kernels import int8_minima

    keys, squares = draw_tiles(tiles * TILE, dimension)
    codes = encode_keys(keys, squares)
    queries = draw(rows, dimension, 1)
    queries[1] = torch.nan
    clean, usable = clean_queries(queries)
    minima, groups = int8_minima(queries, codes, TILE)
    assert torch.equal(minima[usable], scan.code_minima(clean, codes)[usable])
    assert torch.equal(groups, group_minima(minima))


@pytest.mark.parametrize(("tiles", "width"), [(1, 1), (9, 3), (70, 16), (140, 9), (140, 64)])
def test_the_lowest_tiles_are_chosen(tiles: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from ibidem.retrieve.gpu import scan_kernels

    minima = torch.randn(3, tiles, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    minima[1] = torch.inf
    minima[2, 1:] = torch.inf
    starts = torch.arange(0, tiles + 8, 8, device=DEVICE).clamp(max=tiles).int()
    for at_once in (4, 8192):
        monkeypatch.setattr(scan_kernels, "_GROUPS_AT_ONCE", at_once)
        chosen = scan_kernels.choose_tiles(minima, group_minima(minima), starts, width, 8)
        expected = minima[0].topk(width, largest=False).indices
        assert sorted(chosen[0].tolist()) == sorted(expected.tolist())
        assert (chosen[1] == -1).all()
        assert sorted(chosen[2].tolist()) == [-1] * (width - 1) + [0]


def test_distances_and_the_nearest_of_chosen_tiles() -> None:
    from ibidem.retrieve.gpu import scan_kernels

    keys, squares = draw_tiles(6 * TILE, 128)
    keys[3 * TILE : 3 * TILE + 40] = keys[3 * TILE]
    squares[3 * TILE : 3 * TILE + 40] = keys[3 * TILE].float().square().sum()
    queries = draw(4, 128, 1)
    queries[0] = keys[3 * TILE].float()
    queries[2] = torch.inf
    tiles = torch.tensor([[3, 0, 5], [1, 2, -1], [0, 1, 2], [-1, -1, 4]], dtype=torch.int32, device=DEVICE)
    found = scan_kernels.measure_tiles(queries, keys, squares, tiles, TILE)
    clean, usable = clean_queries(queries)
    expected = scan.measure_tiles(clean, keys, squares, tiles.clamp(min=0).long())
    expected[(tiles < 0) | ~usable[:, None]] = torch.inf
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    places = tiles.clamp(min=0).long()[:, :, None] * TILE + torch.arange(TILE, device=DEVICE)
    for order in (None, torch.randperm(6 * TILE, generator=torch.Generator().manual_seed(1)).int().to(DEVICE)):
        entries = places if order is None else order[places].long()
        near, best = scan.pick_nearest(found.flatten(1), entries.flatten(1), 20)
        distances, picked = scan_kernels.pick_nearest(found, tiles, order, 20)
        assert torch.equal(distances, near)
        assert torch.equal(picked, best)


@pytest.mark.parametrize("k", [9, 56])
@pytest.mark.parametrize("coded", [False, True])
def test_kernels_and_torch_find_the_same(coded: bool, k: int) -> None:
    keys = draw(1500, 64).half().cpu().numpy()
    index = ScanIndex(ArrayKeys(keys), DEVICE, coded=coded)
    # The interpreter replaces the device; on a CPU resident keys are float32.
    index._keys = index._keys.half()
    queries = draw(6, 64, 3)
    queries[4] = torch.nan
    plain = index._find(queries, k, 12)
    index._starts = torch.arange(0, 12 + 8, 8, device=DEVICE).clamp(max=12).int()
    fused = index._find_fused(queries, k, 12)
    assert torch.equal(fused.entries, plain.entries)
    torch.testing.assert_close(fused.distances, plain.distances, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("rows", [5, 40, 320])
@pytest.mark.parametrize("coded", [False, True])
def test_a_memory_of_full_size(rows: int, coded: bool) -> None:
    generator = np.random.default_rng(0)
    keys = generator.standard_normal((4_300_000, 64), dtype=np.float32).astype(np.float16)
    index = ScanIndex(ArrayKeys(keys), "cuda", coded=coded)
    assert index._fused
    queries = torch.from_numpy(keys[generator.choice(len(keys), rows)]).cuda().float()
    queries += 0.1 * torch.randn(queries.shape, device="cuda")
    found = index.search(queries, 8)
    plain = ScanIndex(ArrayKeys(keys), "cuda")._find(queries, 8, 16)
    same = (found.entries[:, :, None] == plain.entries[:, None, :]).any(2).float().mean()
    assert same > (0.99 if coded else 0.999)
    torch.testing.assert_close(found.distances, plain.distances, rtol=1e-2 if coded else 1e-5, atol=1e-5)
