"""Keys in families, some of them clustered, some scattered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ibidem.learn.cluster import ClusterSettings
from ibidem.retrieve import ArrayKeys

SIZES = {3: 150, 5: 4, 6: 40, 9: 1, 11: 700, 12: 60, 20: 300, 21: 5}
SETTINGS = ClusterSettings(eps=2.6, family_bound=250)


class Sample(NamedTuple):
    """Keys and the value of each."""

    keys: ArrayKeys
    values: np.ndarray


def draw_families(sizes: dict[int, int], *, dimension: int = 12, seed: int = 0, scale: float = 1.0) -> Sample:
    """Families of these sizes, by value, shuffled together: three blobs each and a fifth of the entries scattered."""
    generator = np.random.default_rng(seed)
    keys, values = [], []
    for value, size in sizes.items():
        centres = 6 * generator.standard_normal((3, dimension))
        points = centres[generator.integers(3, size=size)] + 0.5 * generator.standard_normal((size, dimension))
        points[: size // 5] = 12 * generator.standard_normal((size // 5, dimension))
        keys.append(points)
        values += [value] * size
    order = generator.permutation(len(values))
    stacked = np.concatenate(keys) if keys else np.empty((0, dimension))
    return Sample(ArrayKeys((scale * stacked[order]).astype(np.float32)), np.array(values, np.int32)[order])
