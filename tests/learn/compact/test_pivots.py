"""Centroids are the means of their clusters."""

from __future__ import annotations

import numpy as np
import pytest

from ibidem.learn.compact.clusters import Clusters
from ibidem.learn.compact.pivots import average_members

from .samples import clustered


@pytest.mark.parametrize("sum_bytes", [1 << 30, 4 * 40 * 7, 1])
def test_centroids_are_the_means_of_the_members(sum_bytes: int) -> None:
    """However few clusters have room for their sums at a time."""
    sample = clustered()
    clusters = Clusters.of(sample.values, sample.labels, held_out=0.2)
    numbers = clusters.numbers()
    means = average_members(sample.keys, numbers, len(clusters), sum_bytes=sum_bytes)
    assert means.dtype == np.float16
    assert means.shape == (48, 40)
    expected = [sample.array[numbers == number].astype(np.float64).mean(axis=0) for number in range(48)]
    np.testing.assert_allclose(means, expected, rtol=1e-3, atol=1e-3)
