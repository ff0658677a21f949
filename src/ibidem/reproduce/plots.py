"""Figures as PNG and SVG, readable in black and white, with units on the axes; the same data give the same files."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
LINES = ("-", "--", "-.", (0, (1, 1)), ":", (0, (7, 2, 1, 2, 1, 2)), (0, (3, 1, 1, 1)))
_FILLS = ("black", "0.7", "white")


@contextmanager
def new_figure(
    width: float = 6.4, height: float = 4.2, columns: int = 1, *, share_y: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Open a figure and close it at the end.

    Args:
        width: Width in inches.
        height: Height in inches.
        columns: Number of panels side by side.
        share_y: Whether the panels share their vertical axis.

    Yields:
        The figure and its axes, an array of them where there are several columns.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("Figures need matplotlib: install it with `pip install 'ibidem[reproduce]'`.") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    # The salt makes the identifiers in an SVG the same each time.
    with matplotlib.rc_context({"svg.hashsalt": "ibidem", "font.size": 10, "svg.fonttype": "path"}):
        figure, axes = pyplot.subplots(1, columns, figsize=(width, height), layout="constrained", sharey=share_y)
        try:
            yield figure, axes
        finally:
            pyplot.close(figure)


def panels(axes: Any) -> list[Any]:
    """Return the axes of a figure as a list.

    Args:
        axes: One axes object or an array of them, as `new_figure` yields it.
    """
    return list(axes) if hasattr(axes, "__iter__") else [axes]


def is_far_below(value: float, others: Sequence[float]) -> bool:
    """Return whether a value lies so far below the others that drawing it would compress them.

    Args:
        value: Value to test.
        others: The other values of the panel.

    Returns:
        True where it lies more than twice the span of the others below their minimum.
    """
    if not others:
        return False
    span = max(max(others) - min(others), 0.5)
    return min(others) - value > 2 * span


def _save_png(figure: Any, path: Path) -> None:
    """Write a figure as PNG with a palette of 256 colours, a third of the size of one with all colours."""
    from PIL import Image

    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=100)
    with Image.open(pixels) as image:
        image.convert("RGB").quantize(256).save(path, format="PNG", optimize=True)


def save_figure(figure: Any, stem: Path, *, smoke: bool) -> list[Path]:
    """Write a figure as PNG and SVG; a quick run is marked across it.

    Args:
        figure: Figure of `new_figure`.
        stem: Path without its ending.
        smoke: Whether it is of a quick run.

    Returns:
        The two files.
    """
    if smoke:
        figure.text(0.5, 0.5, "SMOKE", fontsize=60, color="0.85", ha="center", va="center", rotation=30, zorder=0)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]
    _save_png(figure, files[0])
    figure.savefig(files[1], metadata={"Date": None, "Creator": None})
    return files


def draw_curve(
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    levels: Mapping[str, Mapping[str, float]],
    stem: Path,
    *,
    smoke: bool,
) -> list[Path]:
    """Draw BLEU over the pruning rate, a panel for each k and a line for each strategy.

    Args:
        curves: Points (rate, BLEU) by panel and strategy.
        levels: Scores by panel that are horizontal lines, or notes where they lie far below.
        stem: Path without its ending.
        smoke: Whether the figures are of a quick run.

    Returns:
        The PNG and the SVG; empty where there are no points.
    """
    drawn = [bleu for lines in curves.values() for points in lines.values() for _, bleu in points]
    if not drawn:
        return []
    with new_figure(3.2 * len(curves), 3.8, columns=len(curves), share_y=True) as (figure, axes):
        for panel, (column, lines) in zip(panels(axes), curves.items(), strict=True):
            for style, (label, points) in enumerate(lines.items()):
                if len(points) == 1:  # only the unpruned memory, which the other lines show too
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
        columns = min(len(shown), 2 * len(curves))  # what fits into the width
        figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=columns, fontsize=8)
        return save_figure(figure, stem, smoke=smoke)


def draw_costs(
    costs: NDArray[Any], clusters: NDArray[Any], kept: NDArray[np.bool_], bigram: str, stem: Path, *, smoke: bool
) -> list[Path]:
    """Draw the occurrences of one bigram by rising cost.

    Dots are kept, crosses are removed, and dashed lines separate clusters.

    Args:
        costs: Translation cost of each occurrence, [n], in nats a token.
        clusters: Cluster of each occurrence, [n].
        kept: Whether pruning keeps it, [n].
        bigram: Text of the bigram, for the axis.
        stem: Path without its ending.
        smoke: Whether the figures are of a quick run.

    Returns:
        The PNG and the SVG.
    """
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


def draw_tokens(
    planes: Mapping[str, NDArray[Any]], tokens: NDArray[Any], words: Mapping[int, str], stem: Path, *, smoke: bool
) -> list[Path]:
    """Draw points by token, in a panel for each plane.

    A token has a marker and a shade, and its name in the legend.

    Args:
        planes: Points of each panel [n, 2], by title.
        tokens: Token of each point, [n].
        words: Name of each token in the legend; other tokens are not drawn.
        stem: Path without its ending.
        smoke: Whether the figures are of a quick run.

    Returns:
        The PNG and the SVG.
    """
    with new_figure(9.6, 4.6, columns=len(planes)) as (figure, axes):
        for panel, (title, places) in zip(panels(axes), planes.items(), strict=True):
            for number, (token, word) in enumerate(words.items()):
                chosen = places[tokens == token]
                panel.scatter(
                    chosen[:, 0],
                    chosen[:, 1],
                    s=14,
                    marker=MARKERS[number % len(MARKERS)],
                    facecolors="none" if number % 2 else f"C{number}",
                    edgecolors=f"C{number}",
                    linewidths=0.7,
                    label=word,
                )
            panel.set_title(title)
            panel.set_xlabel("t-SNE, no unit")
        handles, labels = panels(axes)[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
        return save_figure(figure, stem, smoke=smoke)


def draw_frequencies(places: NDArray[Any], frequencies: NDArray[Any], stem: Path, *, smoke: bool) -> list[Path]:
    """Draw entries, darker where their token is rarer, as in the paper's introduction.

    Args:
        places: Points [n, 2].
        frequencies: Occurrences of the token of each point, [n], at least 1.
        stem: Path without its ending.
        smoke: Whether the figures are of a quick run.

    Returns:
        The PNG and the SVG.
    """
    with new_figure(6.4, 5.2) as (figure, axes):
        order = np.argsort(-frequencies, kind="stable")  # rare ones on top
        drawn = axes.scatter(
            places[order, 0],
            places[order, 1],
            c=np.log10(frequencies[order]),
            cmap="gray",
            vmax=np.log10(frequencies.max()) + 0.7,  # the most frequent stay visible on white
            s=8,
            linewidths=0,
        )
        bar = figure.colorbar(drawn)
        bar.set_label("occurrences of the token (log10)")
        axes.set_xlabel("t-SNE, no unit")
        axes.set_ylabel("t-SNE, no unit")
        return save_figure(figure, stem, smoke=smoke)


class Point(NamedTuple):
    """A system in a trade-off.

    Attributes:
        label: Name in the legend.
        kind: Systems of one kind have the same marker.
        k: Number of neighbours, for the shade; 0 without a memory.
        cost: Place on the horizontal axis: speed or storage.
        bleu: BLEU.
    """

    label: str
    kind: str
    k: int
    cost: float
    bleu: float


def draw_tradeoff(points: Sequence[Point], axis: str, stem: Path, *, smoke: bool, log: bool = False) -> list[Path]:
    """Draw BLEU over speed or storage; a system far below the others is named in a note.

    Args:
        points: The systems.
        axis: Title of the horizontal axis, with its unit.
        stem: Path without its ending.
        smoke: Whether the figures are of a quick run.
        log: Whether the horizontal axis is logarithmic.

    Returns:
        The PNG and the SVG; empty where there are no points.
    """
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
