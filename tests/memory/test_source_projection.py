"""Source vectors: the projection, its file, and the vectors that a memory returns for its pairs and entries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save

from ibidem.errors import DamagedMemoryError, MemoryFolderError
from ibidem.memory import SOURCE_PROJECTION_ARTEFACT, Memory, SourceProjection

from .samples import IDENTITY, append, one, record, rows, rows_of, sample

if TYPE_CHECKING:
    from pathlib import Path


def draw_means(count: int, dimension: int) -> np.ndarray:
    """Return states near a subspace of 20 dimensions, away from zero."""
    random = np.random.default_rng(1)
    axes = random.standard_normal((20, dimension))
    noise = 0.01 * random.standard_normal((count, dimension))
    return (5 + random.standard_normal((count, 20)) @ axes + noise).astype(np.float32)


@pytest.mark.parametrize("dimension", [24, 64, 200])
def test_vectors_keep_the_angles_of_centred_states(dimension: int) -> None:
    means = draw_means(400, dimension)
    projection = SourceProjection.fit(means)
    vectors = projection.vectors(means).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 127, rtol=0.03)
    centred = means - means.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors @ vectors.T / 127**2, centred @ centred.T, atol=0.05)


@pytest.mark.parametrize("dimension", [24, 64, 200])
def test_the_random_projection_is_fixed_and_orthogonal(dimension: int) -> None:
    one, two = SourceProjection.random(dimension), SourceProjection.random(dimension)
    np.testing.assert_array_equal(one.projection, two.projection)
    assert not one.mean.any()
    width = min(dimension, 64)
    products = one.projection.T @ one.projection
    np.testing.assert_allclose(products[:width, :width], np.eye(width), atol=1e-5)
    assert not products[width:].any()
    few = SourceProjection.fit(draw_means(100, dimension))
    np.testing.assert_array_equal(few.projection, one.projection)


def test_the_vector_of_a_zero_state_is_zero() -> None:
    assert not SourceProjection.random(8).vectors(np.zeros((2, 8), np.float32)).any()


def test_a_projection_is_read_back_from_a_file_with_other_tensors() -> None:
    projection = SourceProjection.fit(draw_means(300, 70))
    again = SourceProjection.read(save({**projection.tensors(), "projection": np.zeros(3, np.float32)}))
    np.testing.assert_array_equal(again.projection, projection.projection)
    np.testing.assert_array_equal(again.mean, projection.mean)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"source_mean": np.zeros(4, np.float32), "source_projection": np.zeros((5, 64), np.float32)},
        {"source_mean": np.zeros(4, np.float32), "source_projection": np.zeros((4, 63), np.float32)},
        {"source_mean": np.zeros(4, np.float32), "source_projection": np.full((4, 64), np.nan, np.float32)},
    ],
)
def test_files_without_a_valid_projection_are_refused(tensors: dict[str, np.ndarray]) -> None:
    with pytest.raises(DamagedMemoryError, match="projection of sources"):
        SourceProjection.read(save(tensors))


def test_a_memory_stores_the_projection_that_it_was_created_with(tmp_path: Path) -> None:
    projection = SourceProjection.fit(draw_means(300, IDENTITY.dimension))
    memory = Memory.create(tmp_path / "memory", IDENTITY, source_projection=projection)
    assert SOURCE_PROJECTION_ARTEFACT in memory.manifest.artefacts
    assert memory.verify() == []
    stored = Memory.open(memory.path).source_projection
    np.testing.assert_array_equal(stored.projection, projection.projection)
    plain = Memory.create(tmp_path / "plain", IDENTITY).source_projection
    np.testing.assert_array_equal(plain.projection, SourceProjection.random(IDENTITY.dimension).projection)


def test_vectors_follow_their_pairs_through_every_change(path: Path) -> None:
    """Segments, journal, removal, sealing and pruning; `rows` compares the vectors of all pairs."""
    append(path, 1, 2)
    everything = rows_of(sample(1), 0) | rows_of(sample(2), 3)
    assert rows(Memory.open(path)) == everything
    record(path, one(7, pairs=3), removed=(1, 4))
    left = {id: row for id, row in (everything | rows_of(one(7, pairs=3), 6)).items() if id not in (1, 4)}
    assert rows(Memory.open(path)) == left
    sealed = Memory.open(path).sealed()
    assert rows(sealed) == left
    assert sealed.source_vectors().tolist() == [row[-1] for row in left.values()]
    before = sealed.sentence_of_entries()
    kept = np.arange(sealed.entries) % 3 > 0
    with sealed.edit() as edit:
        edit.keep_entries(kept)
        pruned = edit.commit()
    np.testing.assert_array_equal(pruned.sentence_of_entries(), before[kept])
    np.testing.assert_array_equal(pruned.source_vectors(), sealed.source_vectors())
    assert pruned.verify() == []


def test_pairs_without_vectors_get_zeros_and_wrong_vectors_are_refused(path: Path) -> None:
    with Memory.open(path).edit() as edit:
        edit.append_segment(replace(sample(1), source_vectors=None))
        memory = edit.commit()
    assert memory.source_vectors().shape == (3, 64)
    assert not memory.source_vectors().any()
    for wrong in (np.zeros((2, 64), np.int8), np.zeros((3, 63), np.int8), np.zeros((3, 64), np.float32)):
        with pytest.raises(MemoryFolderError):
            replace(sample(1), source_vectors=wrong)
