"""Keys of one or a few families, fetched from where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ibidem.retrieve import Keys


def gather_points(keys: Keys, entries: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """The keys of these entries [n], rising: [n, d] float32."""
    found = np.ascontiguousarray(keys.gather(entries))
    return torch.from_numpy(found).to(device).to(torch.float32)


def gather_families(keys: Keys, members: Sequence[NDArray[np.int64]], device: torch.device) -> torch.Tensor:
    """The keys of several families' entries, each rising, fetched in one sweep: [f, n, d] float32.

    Families with fewer than n entries, the most there are, are filled up with NaN.
    """
    lengths = np.array([len(entries) for entries in members])
    every = np.concatenate(members)
    order = np.argsort(every, kind="stable")
    points = gather_points(keys, every[order], device)
    widest = int(lengths.max())
    places = np.concatenate([family * widest + np.arange(length) for family, length in enumerate(lengths)])
    padded = torch.full((len(members) * widest, keys.dimension), torch.nan, device=device)
    padded[torch.from_numpy(places[order]).to(device)] = points
    return padded.view(len(members), widest, keys.dimension)
