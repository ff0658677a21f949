"""A clustered sample for the tests of whole clusterings."""

from __future__ import annotations

import pytest

from ibidem.learn.cluster import Clustering, cluster_keys

from .samples import SETTINGS, SIZES, Sample, draw_families


@pytest.fixture(scope="module")
def sample() -> Sample:
    return draw_families(SIZES)


@pytest.fixture(scope="module")
def expected(sample: Sample) -> Clustering:
    return cluster_keys(*sample, SETTINGS)
