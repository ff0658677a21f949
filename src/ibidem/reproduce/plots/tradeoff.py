"""Quality against what it costs: a point for each system."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.reproduce.plots.figure import MARKERS, is_far_below, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FILLS = ("black", "0.7", "white")


class Point(NamedTuple):
    """A system: its label, the kind that chooses its marker, the k that chooses its shade, its cost and its BLEU."""

    label: str
    kind: str
    k: int
    cost: float
    bleu: float


def draw_tradeoff(points: Sequence[Point], axis: str, stem: Path, *, smoke: bool, log: bool = False) -> list[Path]:
    """BLEU over speed or storage; a system far below the others is told in words."""
    if not points:
        return []
    kinds = list(dict.fromkeys(point.kind for point in points))
    shades = sorted({point.k for point in points}, reverse=True)
    with new_figure(7.4, 4.2) as (figure, axes):
        for point in points:
            others = [other.bleu for other in points if other is not point]
            if is_far_below(point.bleu, others):
                cost = f"{point.cost:.{0 if point.cost >= 10 else 2}f}"
                note = f"{point.label}: {point.bleu:.2f} BLEU at {cost}, below this panel"
                axes.annotate(note, (0.02, 0.02), xycoords="axes fraction", fontsize=8)
                continue
            axes.plot(
                [point.cost],
                [point.bleu],
                marker=MARKERS[kinds.index(point.kind) % len(MARKERS)],
                markerfacecolor=_FILLS[shades.index(point.k) % len(_FILLS)],
                markeredgecolor="black",
                markersize=8,
                linestyle="none",
                label=point.label,
            )
        if log:
            from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

            axes.set_xscale("log")
            costs = [point.cost for point in points]
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if max(costs) < 20 * min(costs) else (1, 3)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(axis)
        axes.set_ylabel("BLEU")
        axes.margins(0.1)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
        return save_figure(figure, stem, smoke=smoke)
