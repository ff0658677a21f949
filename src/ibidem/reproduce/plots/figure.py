"""What all figures share: one look, and files that are the same for the same figures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
LINES = ("-", "--", "-.", (0, (1, 1)), ":", (0, (7, 2, 1, 2, 1, 2)))


@contextmanager
def new_figure(
    width: float = 6.4, height: float = 4.2, columns: int = 1, *, share_y: bool = False
) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes (an array of them where there are several columns)."""
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
    """The axes of a figure as a list, be it one or several."""
    return list(axes) if hasattr(axes, "__iter__") else [axes]


def is_far_below(value: float, others: Sequence[float]) -> bool:
    """Whether a value lies so far below the others that drawing it would leave them no room."""
    if not others:
        return False
    span = max(max(others) - min(others), 0.5)
    return min(others) - value > 2 * span


def save_figure(figure: Any, stem: Path, *, smoke: bool) -> list[Path]:
    """Write the figure as PNG and SVG; one of a quick run says so across itself."""
    if smoke:
        figure.text(0.5, 0.5, "SMOKE", fontsize=60, color="0.85", ha="center", va="center", rotation=30, zorder=0)
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]
    figure.savefig(files[0], dpi=150, metadata={"Software": None})
    figure.savefig(files[1], metadata={"Date": None, "Creator": None})
    return files
