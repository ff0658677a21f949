"""Keys with the traits of decoder states: clusters, near-duplicates, duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ibidem.retrieve import ArrayKeys

if TYPE_CHECKING:
    from collections.abc import Callable


def draw_clustered(count: int, dimension: int, seed: int) -> np.ndarray:
    """Draw clustered float16 keys, a tenth of them near-duplicates and a tenth duplicates."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((max(1, count // 50), dimension))
    keys = centres[generator.integers(len(centres), size=count)]
    keys = keys + 0.3 * generator.standard_normal((count, dimension))
    tenth = count // 10
    keys[:tenth] = keys[tenth : 2 * tenth] + 0.003 * generator.standard_normal((tenth, dimension))
    keys[2 * tenth : 3 * tenth] = keys[3 * tenth : 4 * tenth]
    return generator.permutation(keys).astype(np.float16)


@pytest.fixture(scope="session")
def draw_keys() -> Callable[..., np.ndarray]:
    """Return the function that draws keys."""
    return draw_clustered


@pytest.fixture(scope="session")
def clustered() -> ArrayKeys:
    """Return 6000 keys of 32 dimensions."""
    return ArrayKeys(draw_clustered(6000, 32, seed=5))


@pytest.fixture(scope="session")
def small() -> np.ndarray:
    """Return 900 clustered float16 keys of 16 dimensions, without duplicates."""
    random = np.random.default_rng(2)
    centres = random.standard_normal((20, 16))
    return (centres[random.integers(20, size=900)] + 0.3 * random.standard_normal((900, 16))).astype(np.float16)
