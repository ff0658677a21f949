"""Estimation of DBSCAN's eps from a memory's keys.

The core distance of an entry is the least eps at which it is a core point: its distance to the min_samples-th nearest
key of its family, itself being the first. An eps at the quantile q of all core distances makes a share q of the
entries core points, for the keys of any model; scaled keys give a scaled eps.

At the median the number of clusters is largest. A lower quantile leaves too few entries dense. A higher one tends to
one cluster a family, which no longer separates the meanings of its token, but leaves fewer entries noise; the default
is high, because the compact space comes out better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.learn.cluster.families import gather_points
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ibidem.learn.cluster.clustering import ClusterSettings
    from ibidem.learn.cluster.families import Families
    from ibidem.retrieve import Keys

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Families are drawn in proportion to their entries, so that a few large ones are read and not every one.
_DRAWS = 256
_ENTRIES_A_DRAW = 32
# Candidates measured exactly beyond those wanted, because the order of rough distances may be wrong.
_SPARE = 8
_QUERIES_AT_ONCE = 128


def derive_eps(
    keys: Keys,
    families: Families,
    settings: ClusterSettings,
    *,
    device: torch.device,
    progress: Progress = silent,
) -> tuple[float, dict[str, Any]]:
    """Derive eps as a quantile of the core distances of sampled entries.

    The seed draws families of at least `settings.smallest` entries, and entries of each. The nearest keys of an entry
    are searched among all keys that are clustered with it.

    Args:
        keys: The keys of the memory.
        families: The families to be clustered.
        settings: The clustering settings: min_samples, eps_quantile, family_bound, smallest and seed are used.
        device: Device of the computation.
        progress: Progress callback.

    Returns:
        eps, and a report of the core distances; eps is 0 if no family is large enough.
    """
    distances, weights = _sample_core_distances(keys, families, settings, device, progress)
    if len(distances) == 0:
        return 0.0, {"sampled": 0}
    quantiles = np.quantile(distances, [*QUANTILES, settings.eps_quantile], weights=weights, method="inverted_cdf")
    *shown, eps = (float(distance) for distance in quantiles)
    report = {
        "sampled": len(distances),
        "min_samples": settings.min_samples,
        "quantile": settings.eps_quantile,
        "core_distances": {str(share): distance for share, distance in zip(QUANTILES, shown, strict=True)},
    }
    return eps, report


def _sample_core_distances(
    keys: Keys, families: Families, settings: ClusterSettings, device: torch.device, progress: Progress
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Measure the core distances [s] of sampled entries; the weights [s] are the entries that each represents."""
    sizes = np.minimum(families.sizes, settings.family_bound)
    eligible = np.flatnonzero(sizes >= max(settings.smallest, settings.min_samples))
    ends = np.cumsum(sizes[eligible])
    distances, weights = [np.empty(0)], [np.empty(0)]
    if len(eligible) == 0:
        return distances[0], weights[0]
    random = np.random.default_rng([settings.seed, len(families), int(ends[-1])])
    # Equal steps through the entries of all families in order: the draws of a family are proportional to its size.
    hits = (np.arange(_DRAWS) + random.random()) * (ends[-1] / _DRAWS)
    drawn, times = np.unique(np.searchsorted(ends, hits, side="right"), return_counts=True)
    for number, (family, share) in enumerate(zip(eligible[drawn].tolist(), times.tolist(), strict=True)):
        members = families.sample(family, settings.family_bound, settings.seed)
        points = gather_points(keys, members, device)
        points = points[torch.isfinite(points).all(1)]
        if len(points) < settings.min_samples:
            continue
        wanted = min(len(points), share * _ENTRIES_A_DRAW)
        value = int(families.values[family])
        rows = np.random.default_rng([settings.seed, value, 1]).choice(len(points), wanted, replace=False)
        found = core_distances(points, torch.from_numpy(rows).to(device), settings.min_samples)
        distances.append(found)
        weights.append(np.full(len(found), share / wanted))
        progress("Measuring distances", (number + 1) / len(drawn), number + 1, "families")
    return np.concatenate(distances), np.concatenate(weights)


def core_distances(points: torch.Tensor, rows: torch.Tensor, min_samples: int) -> NDArray[np.float64]:
    """Compute the distance of some points to their min_samples-th nearest point, themselves being the first.

    Args:
        points: [n, d] float32, finite.
        rows: [r], the points whose core distances are wanted.
        min_samples: At most n.

    Returns:
        [r] float64.
    """
    count = min(len(points), min_samples + _SPARE)
    centred = points - points.mean(0)
    squares = centred.square().sum(1)
    found = []
    for chosen in torch.split(rows, _QUERIES_AT_ONCE):
        scores = torch.addmm(squares, centred[chosen], centred.T, alpha=-2)
        nearest = scores.topk(count, largest=False, sorted=False).indices
        exact = (points[chosen, None].double() - points[nearest].double()).square_().sum(2).sqrt_()
        found.append(exact.kthvalue(min_samples, dim=1).values)
    return torch.cat(found).cpu().numpy()
