"""Keys for the tests of this folder and of its subfolders."""

from __future__ import annotations

import numpy as np


def draw_skewed(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    """Draw float16 keys in 30 clusters, whose sizes fall geometrically."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((30, dimension))
    own = np.minimum(generator.geometric(0.1, count), 30) - 1
    return (centres[own] + 0.3 * generator.standard_normal((count, dimension))).astype(np.float16)
