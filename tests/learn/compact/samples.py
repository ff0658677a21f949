"""Keys that fall into clusters, and the small settings with which a test can train on them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from ibidem.learn.compact import CompactSettings
from ibidem.retrieve import ArrayKeys


class Clustered(NamedTuple):
    """Keys [n, d] float16 as a memory gives them, their values [n] and cluster labels [n] int32."""

    keys: ArrayKeys
    values: np.ndarray
    labels: np.ndarray

    @property
    def array(self) -> np.ndarray:
        return self.keys.gather(np.arange(self.keys.size))


def clustered(
    seed: int = 0, families: int = 24, senses: int = 2, members: int = 12, dimension: int = 40, world: int = 9
) -> Clustered:
    """Families of clusters that differ in a few directions; the directions of most variance do not separate them.

    `world` draws the clusters and the directions, `seed` their members; about one entry in ten is noise.
    """
    fixed, random = np.random.default_rng(world), np.random.default_rng(seed)
    told, count = 10, families * senses
    mixing = np.linalg.qr(fixed.normal(size=(dimension, dimension)))[0]
    centres, offset = fixed.normal(size=(count, told)) * 1.2, fixed.normal(size=dimension) * 2
    labels = np.repeat(np.arange(count, dtype=np.int32), members)
    latent = np.concatenate(
        [
            centres[labels] + 0.4 * random.normal(size=(len(labels), told)),
            3.0 * random.normal(size=(len(labels), dimension - told)),
        ],
        axis=1,
    )
    keys = (latent @ mixing + offset).astype(np.float16)
    values = (labels // senses).astype(np.int32)
    labels = np.where(random.random(len(labels)) < 0.1, -1, labels).astype(np.int32)
    order = random.permutation(len(labels))
    keys = keys[order]
    keys.flags.writeable = False
    return Clustered(ArrayKeys(keys), values[order], labels[order])


QUICK = CompactSettings(
    dimension=6,
    batch=32,
    learning_rate=3e-3,
    updates=60,
    validate_every=10,
    patience=100,
    held_out=0.2,
)


def quick(**changes: object) -> CompactSettings:
    """The quick settings with some of them changed."""
    return replace(QUICK, **changes)  # type: ignore[arg-type]


def purity(compact: np.ndarray, values: np.ndarray, k: int = 4) -> float:
    """The share of the k nearest others that have the same value, by all distances."""
    rows = torch.from_numpy(compact.astype(np.float64))
    distances = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    nearest = distances.topk(k, dim=1, largest=False).indices.numpy()
    return float((values[nearest] == values[:, None]).mean())
