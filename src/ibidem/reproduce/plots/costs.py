"""The costs of all occurrences of one bigram, and which of them pruning removes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.reproduce.plots.figure import new_figure, save_figure

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def draw_costs(
    costs: NDArray[Any], clusters: NDArray[Any], kept: NDArray[np.bool_], bigram: str, stem: Path, *, smoke: bool
) -> list[Path]:
    """Occurrences by rising cost: dots are kept, crosses removed, and dashed lines part the clusters."""
    order = np.lexsort((costs, clusters))
    by_cluster = {int(number): float(costs[clusters == number].min()) for number in np.unique(clusters)}
    order = np.array(sorted(order.tolist(), key=lambda i: (by_cluster[int(clusters[i])], float(costs[i]))))
    costs, clusters, kept = costs[order], clusters[order], kept[order]
    places = np.arange(len(costs))
    with new_figure(7.2, 3.6) as (figure, axes):
        axes.plot(places[kept], costs[kept], "o", color="black", markersize=4, label="kept")
        axes.plot(places[~kept], costs[~kept], "x", color="0.45", markersize=5, label="removed")
        for place in np.flatnonzero(np.diff(clusters)):
            axes.axvline(place + 0.5, linestyle="--", color="0.6", linewidth=0.8)
        axes.set_xlabel(f"occurrences of “{bigram}”, by cluster and cost")
        axes.set_ylabel("translation cost (nats a token)")
        axes.legend(fontsize=8, loc="upper left")
        return save_figure(figure, stem, smoke=smoke)
