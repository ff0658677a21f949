"""The scale of a memory's keys, from which DBSCAN's eps is derived.

The least eps at which an entry is a core point is its core distance: that to the min_samples-th nearest key of its
family, itself being the first. With eps at a quantile q of all core distances, a share q of the entries are core
points, whatever model the keys come from; scaled keys give a scaled eps.

By default that is 0.9. At the median the number of clusters is greatest; below it too few entries are dense, above it
a family tends to one cluster, in which the meanings of its token are no longer apart, but fewer entries are noise,
and the compact space came out better (docs/results/compact.md). The authors take an eps that leaves hardly any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.learn.cluster.gathering import gather_points
from ibidem.progress import Progress, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ibidem.learn.cluster.families import Families
    from ibidem.learn.cluster.settings import ClusterSettings
    from ibidem.retrieve import Keys

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
# Families are drawn in proportion to their entries, so that a few large ones are read and not every one.
_DRAWS = 256
_ENTRIES_A_DRAW = 32
# Neighbours measured anew beyond those wanted, since rough distances may change places.
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
    """Find eps, and report the core distances that it was taken from; 0 where no family is large enough.

    Some families with at least `smallest` entries are drawn with the seed, and some entries of each; their nearest
    keys are sought among all that will be clustered with them.
    """
    distances, weights = measure_core_distances(keys, families, settings, device=device, progress=progress)
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


def measure_core_distances(
    keys: Keys, families: Families, settings: ClusterSettings, *, device: torch.device, progress: Progress = silent
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Core distances [s] of sampled entries, and how many entries each stands for [s], up to a factor."""
    sizes = np.minimum(families.sizes, settings.family_bound)
    eligible = np.flatnonzero(sizes >= max(settings.smallest, settings.min_samples))
    ends = np.cumsum(sizes[eligible])
    distances, weights = [np.empty(0)], [np.empty(0)]
    if len(eligible) == 0:
        return distances[0], weights[0]
    random = np.random.default_rng([settings.seed, len(families), int(ends[-1])])
    # Equal steps through the entries, laid end to end: large families are hit several times, none too often.
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
    """The distance from points[rows] to their min_samples-th nearest of points [n, d], themselves the first: [r]."""
    count = min(len(points), min_samples + _SPARE)
    centred = points - points.mean(0)
    squares = centred.square().sum(1)
    found = []
    for chosen in torch.split(rows, _QUERIES_AT_ONCE):
        scores = torch.addmm(squares, centred[chosen], centred.T, alpha=-2)
        nearest = scores.topk(count, largest=False, sorted=False).indices
        true = (points[chosen, None].double() - points[nearest].double()).square_().sum(2).sqrt_()
        found.append(true.kthvalue(min_samples, dim=1).values)
    return torch.cat(found).cpu().numpy()
