"""Speed and storage of pruned compact memories against adaptive kNN-MT, on the large memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN, Cell, Grid, format_number, format_spread, lay_out_pairs, markdown
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.large import ADAPTIVE, BASE, PCKMT, Variant, speeds, timing, variants
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row

BATCHES = (8, 64)
COLUMN = "BLEU"


class Saving(NamedTuple):
    """How much less a system is behind the base model than adaptive kNN-MT is, as shares of that.

    The paper's latency is the difference in sentences (or tokens) a second; `time` is that in seconds a token.
    """

    sentences: float
    tokens: float
    time: float


def saving(base: Mapping[str, float], adaptive: Mapping[str, float], system: Mapping[str, float]) -> Saving | None:
    """The saving of a system; None where adaptive kNN-MT is not behind the base model, so that nothing can be saved."""

    def share(name: str) -> float | None:
        behind = base[name] - adaptive[name]
        return None if behind <= 0 else 1 - (base[name] - system[name]) / behind

    sentences, tokens = share("sentences_per_second"), share("tokens_per_second")
    overhead = [1 / speeds["tokens_per_second"] - 1 / base["tokens_per_second"] for speeds in (adaptive, system)]
    if sentences is None or tokens is None or overhead[0] <= 0:
        return None
    return Saving(sentences, tokens, 1 - overhead[1] / overhead[0])


def build(plan: Plan) -> Grid:
    """The quality of all systems; every one is compared with adaptive kNN-MT of the same k."""
    lines = {BASE: {COLUMN: Cell((Translation(plan.base(), plan.large_test),))}}
    pairs = []
    for variant in variants(plan):
        rows = tuple(Translation(variant.system(plan, seed), plan.large_test) for seed in plan.seeds)
        lines[variant.label] = {COLUMN: Cell(rows)}
        if variant.kind != ADAPTIVE:
            pairs.append((Variant(ADAPTIVE, variant.k).label, variant.label))
    return Grid((COLUMN,), lines, tuple(pairs))


def _timings(plan: Plan) -> list[Row]:
    return [timing(plan, batch) for batch in BATCHES]


def _lay_out(plan: Plan, results: Results) -> str:
    parts = [_lay_out_speed(plan, results, batch) for batch in BATCHES]
    grid = build(plan)
    return "\n\n".join(
        [
            *parts,
            "### Quality, exact search",
            markdown(
                ["system", COLUMN],
                [[label, format_spread(cells[COLUMN].spread(results))] for label, cells in grid.lines.items()],
            ),
            lay_out_pairs(grid, results),
            "Latency saved is against adaptive kNN-MT of the same k, over the base model: in the paper's definition, "
            "the difference in sentences (or tokens) a second, and in time a token. The paper's pruning rates are "
            "those at which its systems lose no BLEU; ours may, see the differences. Storage is that of the searched "
            "keys and their values. All systems take turns in one process; medians.",
        ]
    )


def _lay_out_speed(plan: Plan, results: Results, batch: int) -> str:
    found = speeds(plan, results, batch)
    lines = []
    for variant in (None, *variants(plan)):
        label = BASE if variant is None else variant.label
        kind, k = ("base", None) if variant is None else (variant.kind, variant.k)
        same_rate = variant is None or kind != PCKMT or variant.rate == paper.LATENCY_RATES[variant.k]
        printed = paper.LATENCY_SPEED.get((kind, k, batch), (None, None)) if same_rate else (None, None)
        here = found.get(label)
        ours = [NOT_RUN] * 4
        if here is not None:
            storage = here.get("storage", {}).get("keys_and_values")
            ours = [
                f"{here['sentences_per_second']:.1f}",
                f"{here['tokens_per_second']:.0f}",
                f"{here['milliseconds_per_token']:.2f}",
                "" if storage is None else f"{storage / 1e9:.2f} GB",
            ]
        saved = _saved(found, variant)
        lines.append([label, *ours[:2], *(format_number(number, 0) for number in printed), *ours[2:], saved])
    header = ["system", "sentences/s", "tokens/s", "paper", "paper", "ms/token", "storage", "latency saved"]
    return f"### Batches of {batch}\n\n{markdown(header, lines)}"


def _saved(found: Mapping[str, Mapping[str, float]], variant: Variant | None) -> str:
    if not found or variant is None or variant.kind == ADAPTIVE:
        return ""
    share = saving(found[BASE], found[Variant(ADAPTIVE, variant.k).label], found[variant.label])
    if share is None:
        return "none to save"
    return f"{share.sentences:.0%} sentences, {share.tokens:.0%} tokens, {share.time:.0%} time"


def _draw(plan: Plan, results: Results, folder: Path) -> list[Path]:
    from ibidem.reproduce.plots.tradeoff import Point, draw_tradeoff

    found, grid = speeds(plan, results, max(BATCHES)), build(plan)
    speed, size = [], []
    for variant in (None, *variants(plan)):
        label = BASE if variant is None else variant.label
        quality = grid.lines[label][COLUMN].spread(results)
        if label not in found or quality is None:
            continue
        here = found[label]
        if variant is None:
            speed.append(Point(label, label, 0, here["tokens_per_second"], quality.mean))
            continue
        most = variant.rate == max(other.rate for other in variants(plan) if other.k == variant.k)
        kind = f"{variant.kind}, most pruned" if variant.rate and most else variant.kind
        speed.append(Point(label, kind, variant.k, here["tokens_per_second"], quality.mean))
        size.append(Point(label, kind, variant.k, here["storage"]["keys_and_values"] / 1e9, quality.mean))
    drawn = draw_tradeoff(speed, f"tokens a second, batches of {max(BATCHES)}", folder / "speed", smoke=plan.smoke)
    return drawn + draw_tradeoff(size, "keys and values (GB)", folder / "storage", smoke=plan.smoke, log=True)


TABLE = grid_table(
    "latency",
    "Speed and storage on the large memory, exact search",
    build,
    _lay_out,
    more_rows=_timings,
    draw=_draw,
)
