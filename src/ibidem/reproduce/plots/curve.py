"""BLEU over the pruning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce.plots.figure import GREYS, LINES, MARKERS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def draw_curve(
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    levels: Mapping[str, Mapping[str, float]],
    stem: Path,
    *,
    smoke: bool,
) -> list[Path]:
    """One line for each k and strategy; levels are drawn as horizontal lines. Nothing where there is no point."""
    if not any(points for lines in curves.values() for points in lines.values()):
        return []
    with new_figure(7.2, 4.6) as (figure, axes):
        for number, (column, lines) in enumerate(curves.items()):
            for style, (label, points) in enumerate(lines.items()):
                axes.plot(
                    [100 * rate for rate, _ in points],
                    [bleu for _, bleu in points],
                    linestyle=LINES[style],
                    marker=MARKERS[number],
                    markerfacecolor="white" if style else GREYS[0],
                    color=GREYS[0] if not style else GREYS[1],
                    label=f"{label}, {column}",
                )
        drawn: set[tuple[str, float]] = set()
        for column, found in levels.items():
            for label, value in found.items():
                if (label, value) in drawn:
                    continue
                drawn.add((label, value))
                name = label if label == "NMT" else f"{label}, {column}"
                axes.axhline(value, linestyle=LINES[2 if label == "NMT" else 3], color="0.5", linewidth=1)
                axes.annotate(
                    name, (1.0, value), xycoords=("axes fraction", "data"), fontsize=8, ha="right", va="bottom"
                )
        axes.set_xlabel("entries removed (%)")
        axes.set_ylabel("BLEU")
        axes.legend(fontsize=8, loc="lower left")
        return save_figure(figure, stem, smoke=smoke)
