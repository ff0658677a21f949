"""Quality against what it costs: a point for each system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce.plots.figure import MARKERS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILLS = ("black", "white", "0.6", "0.3")


def draw_tradeoff(
    points: Mapping[str, tuple[float, float]], axis: str, stem: Path, *, smoke: bool, log: bool = False
) -> list[Path]:
    """BLEU over speed or storage; kinds of systems differ by marker, what else differs is in the legend."""
    if not points:
        return []
    kinds = list(dict.fromkeys(label.split(",")[0] for label in points))
    with new_figure(7.2, 4.2) as (figure, axes):
        for number, (label, (cost, bleu)) in enumerate(points.items()):
            kind = kinds.index(label.split(",")[0])
            axes.plot(
                [cost],
                [bleu],
                marker=MARKERS[kind % len(MARKERS)],
                markerfacecolor=_FILLS[number % len(_FILLS)],
                markeredgecolor="black",
                markersize=8,
                linestyle="none",
                label=label,
            )
        if log:
            axes.set_xscale("log")
        axes.set_xlabel(axis)
        axes.set_ylabel("BLEU")
        axes.margins(0.08)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
        return save_figure(figure, stem, smoke=smoke)
