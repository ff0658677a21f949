"""BLEU over the pruning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce.plots.figure import LINES, MARKERS, is_far_below, new_figure, panels, save_figure

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
    """A panel for each k, a line for each strategy; levels are horizontal lines, or words where they lie far below."""
    drawn = [bleu for lines in curves.values() for points in lines.values() for _, bleu in points]
    if not drawn:
        return []
    with new_figure(3.2 * len(curves), 3.8, columns=len(curves), share_y=True) as (figure, axes):
        for panel, (column, lines) in zip(panels(axes), curves.items(), strict=True):
            for style, (label, points) in enumerate(lines.items()):
                if len(points) == 1:  # nothing but the unpruned memory, which the others show too
                    continue
                panel.plot(
                    [100 * rate for rate, _ in points],
                    [bleu for _, bleu in points],
                    linestyle=LINES[style],
                    marker=MARKERS[style],
                    markerfacecolor="white" if style else "black",
                    color="black" if style != 1 else "0.4",
                    label=label,
                )
            for style, (label, value) in enumerate(levels[column].items(), start=len(lines)):
                if is_far_below(value, drawn):
                    note = f"{label}: {value:.2f}, below this panel"
                    panel.annotate(note, (0.03, 0.02), xycoords="axes fraction", fontsize=8)
                else:
                    panel.axhline(value, linestyle=LINES[style], color="0.5", linewidth=1.2, label=label)
            panel.set_title(column)
            panel.set_xlabel("entries removed (%)")
        panels(axes)[0].set_ylabel("BLEU")
        # A line may be in some panels only.
        labelled = [zip(*panel.get_legend_handles_labels(), strict=True) for panel in panels(axes)]
        shown = {name: handle for panel in labelled for handle, name in panel}
        columns = min(len(shown), 2 * len(curves))  # as many as the width has room for
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=columns, fontsize=8)
        return save_figure(figure, stem, smoke=smoke)
