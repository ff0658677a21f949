"""Plot the time of a search over the size of the memory, from the output of `ibidem bench --size … --save`.

    ibidem bench -m memories/it --size 500000 --size 4000000 --size 20000000 --save growth.json
    python benchmarks/growth.py growth.json --out docs/results/figures/growth-cpu

It needs matplotlib: `pip install 'ibidem[reproduce]'`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ibidem.evaluate.bench import SearchTime, fit_growth
from ibidem.reproduce import LINES, MARKERS, new_figure, save_figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="path of the figure's files, without suffix")
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text(encoding="utf-8"))
    times = [
        SearchTime(**{**found, "microseconds": {int(size): time for size, time in found["microseconds"].items()}})
        for found in report["growth"]
    ]
    for path in draw(times, arguments.out):
        print(path)


def draw(times: list[SearchTime], stem: Path) -> list[Path]:
    """Draw a line for each batch size over the number of keys, with both axes logarithmic."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

    exponents = fit_growth(times)
    with new_figure(6.4, 4.2) as (figure, axes):
        for number, (size, exponent) in enumerate(exponents.items()):
            axes.plot(
                [found.keys for found in times],
                [found.microseconds[size] for found in times],
                linestyle=LINES[number % len(LINES)],
                marker=MARKERS[number % len(MARKERS)],
                markerfacecolor="white" if number % 2 else "black",
                color="black",
                label=f"batches of {size}: keys to the power of {exponent:.2f}",
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([found.keys for found in times], [f"{found.keys / 1e6:g}M" for found in times], minor=False)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("keys")
        axes.set_ylabel("microseconds a query")
        axes.legend(fontsize=8)
        return save_figure(figure, stem, smoke=False)


if __name__ == "__main__":
    main()
