"""Entries in a plane: by token, before and after the compactor, and by frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.reproduce.plots.figure import MARKERS, new_figure, panels, save_figure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray


def draw_tokens(
    planes: Mapping[str, NDArray[Any]], tokens: NDArray[Any], words: Mapping[int, str], stem: Path, *, smoke: bool
) -> list[Path]:
    """One panel for each plane [n, 2]; a token is a marker and a shade, and has its name in the legend."""
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
    """Entries [n, 2]; the darker, the rarer their token (as in the paper's introduction)."""
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
