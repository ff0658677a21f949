"""BLEU over the pruning rate on the large memory: cost clusters against random and against our own, for several k."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ibidem.learn import PruneSettings
from ibidem.reproduce.grid import NONE, Cell, Grid, format_difference, format_spread, markdown
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.system import System

NMT, ADAPTIVE, WHOLE = "NMT", "AKMT", "CKMT*"
OURS, RANDOM = "PCKMT*+Ours", "PCKMT*+RP"
AGREEING, COVERED = "PCKMT*+agreeing", "PCKMT*+covered"
STRATEGIES = {
    OURS: PruneSettings(),
    RANDOM: PruneSettings(strategy="random"),
    COVERED: PruneSettings(strategy="covered"),
    AGREEING: PruneSettings(groups="agreeing"),
}
# Not the paper's: measured at every other rate.
OWN = (AGREEING, COVERED)
# The rate up to which the paper loses nothing.
FREE_RATE = 0.3


def build(plan: Plan) -> Grid:
    """A column for each k; a line for the base model, the unpruned memories, and each strategy at each rate."""

    def cells(make: Callable[[int, int], System], seeds: Callable[[int], tuple[int, ...]]) -> dict[str, Cell]:
        return {name_k(k): _cell(plan, [make(seed, k) for seed in seeds(k)]) for k in plan.ks}

    def every(_: int) -> tuple[int, ...]:
        return plan.seeds

    domain = plan.large_test
    base = _cell(plan, [plan.base()])
    lines: dict[str, dict[str, Cell]] = {NMT: {name_k(k): base for k in plan.ks}}
    lines[ADAPTIVE] = cells(lambda seed, k: plan.on_large(plan.adaptive(domain, seed, k=k)), every)
    lines[WHOLE] = cells(lambda seed, k: plan.on_large(plan.ckmt(domain, seed, k=k)), every)
    pairs = [(ADAPTIVE, WHOLE)]
    for label, settings in STRATEGIES.items():
        for rate in rates_of(plan, label):
            seeds = partial(seeds_of, plan, label, rate)
            lines[name_point(label, rate)] = cells(partial(_pruned, plan, replace(settings, rate=rate)), seeds)
    for rate in plan.rates:
        ours, random = name_point(OURS, rate), name_point(RANDOM, rate)
        pairs += [(random, ours), (WHOLE, ours), (ADAPTIVE, ours)]
        for own in (name_point(label, rate) for label in OWN):
            pairs += [(WHOLE, own), (ours, own)] if own in lines else []
    return Grid(tuple(map(name_k, plan.ks)), lines, tuple(pairs))


def _pruned(plan: Plan, settings: PruneSettings, seed: int, k: int) -> System:
    return plan.on_large(plan.ckmt(plan.large_test, seed, prune=settings, k=k))


def rates_of(plan: Plan, label: str) -> tuple[float, ...]:
    """The rates of a strategy: every other one of what is not the paper's."""
    return plan.rates[::2] if label in OWN else plan.rates


def seeds_of(plan: Plan, label: str, rate: float, k: int) -> tuple[int, ...]:
    """All seeds where most is said of a point, one elsewhere: the shape of a curve needs no more."""
    middle = k == plan.ks[len(plan.ks) // 2]
    if label == COVERED:
        repeated = middle and rate == FREE_RATE
    elif label == AGREEING:
        repeated = rate == FREE_RATE
    else:
        repeated = rate == FREE_RATE or (middle and rate in plan.rates[::2])
    return plan.seeds if repeated else plan.seeds[:1]


def name_k(k: int) -> str:
    return f"k = {k}"


def name_point(label: str, rate: float) -> str:
    return f"{label} {rate * 100:g} %"


def curves(plan: Plan, results: Results) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """By column and strategy the points (rate, mean BLEU) that were run; the unpruned memory is rate 0."""
    grid = build(plan)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for column in grid.columns:
        whole = grid.lines[WHOLE][column].spread(results)
        for label in STRATEGIES:
            points = [] if whole is None else [(0.0, whole.mean)]
            for rate in rates_of(plan, label):
                spread = grid.lines[name_point(label, rate)][column].spread(results)
                if spread is not None:
                    points.append((rate, spread.mean))
            found.setdefault(column, {})[label] = points
    return found


def levels(plan: Plan, results: Results) -> dict[str, dict[str, float]]:
    """By column the mean BLEU of the base model and of the unpruned memory in the model's own space."""
    grid = build(plan)
    found: dict[str, dict[str, float]] = {}
    for column in grid.columns:
        spreads = {label: grid.lines[label][column].spread(results) for label in (NMT, ADAPTIVE)}
        found[column] = {label: spread.mean for label, spread in spreads.items() if spread is not None}
    return found


def _cell(plan: Plan, systems: list[System]) -> Cell:
    return Cell(tuple(Translation(system, plan.large_test) for system in systems))


def _lay_out(plan: Plan, results: Results) -> str:
    grid = build(plan)
    fixed = [
        [label, *(format_spread(grid.lines[label][column].spread(results)) for column in grid.columns)]
        for label in (NMT, ADAPTIVE, WHOLE)
    ]
    corpus = " + ".join(plan.large)
    note = (
        f"The memory is {corpus}. The paper prints this as a figure without numbers: on Subtitles, ours stays above "
        "the unpruned CKMT* up to 30 % and drops clearly from 70 %; random pruning drops from 50 %, below the base "
        "model from 80 %. Agreeing and covered are not the paper's: the one is cost clusters among entries whose "
        "surroundings agree with them, the other asks the tuned memory what it could do without. Points are of "
        f"all seeds at {FREE_RATE * 100:g} % (covered: of the middle k), and of the paper's two at every other rate of "
        "the middle k; elsewhere of one."
    )
    parts = [f"### {column}\n\n{_lay_out_column(plan, results, grid, column)}" for column in grid.columns]
    return "\n\n".join([markdown(["unpruned", *grid.columns], fixed), *parts, note])


def _lay_out_column(plan: Plan, results: Results, grid: Grid, column: str) -> str:
    """The curves of one k, and what each strategy loses, or wins over another."""
    header = ["rate", "Ours", "RP", "Ours − RP", "Ours − CKMT*"]
    for name in (label.removeprefix("PCKMT*+") for label in OWN):
        header += [name, f"{name} − CKMT*"]
    lines = []
    for rate in plan.rates:
        ours, random = name_point(OURS, rate), name_point(RANDOM, rate)
        line = [format_spread(grid.lines[label][column].spread(results)) for label in (ours, random)]
        line += [format_difference(grid.compare(results, other, ours, column)) for other in (random, WHOLE)]
        for label in OWN:
            line += _lay_out_own(grid, results, name_point(label, rate), column)
        lines.append([f"{rate * 100:g} %", *line])
    return markdown(header, lines)


def _lay_out_own(grid: Grid, results: Results, label: str, column: str) -> list[str]:
    if label not in grid.lines:
        return [NONE, NONE]
    difference = grid.compare(results, WHOLE, label, column)
    return [format_spread(grid.lines[label][column].spread(results)), format_difference(difference)]


def _draw(plan: Plan, results: Results, folder: Path) -> list[Path]:
    from ibidem.reproduce.plots.curve import draw_curve

    return draw_curve(curves(plan, results), levels(plan, results), folder / "pruning-curve", smoke=plan.smoke)


TABLE = grid_table(
    "pruning-curve", "BLEU over the pruning rate on the large memory, exact search", build, _lay_out, draw=_draw
)
