"""The tables of speed: the introduction's, and latency and storage on the large memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ibidem.reproduce import paper
from ibidem.reproduce.grid import NOT_RUN, Cell, Grid, format_number, format_spread, lay_out_pairs, markdown
from ibidem.reproduce.rows.translation import Timing, Translation
from ibidem.reproduce.tables import Table, grid_table
from ibidem.reproduce.tables.quality import (
    BASE,
    LARGE_ADAPTIVE,
    PCKMT,
    SETTINGS_NOTE,
    Variant,
    add_printed,
    large_speeds,
    large_timing,
    variants,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows import Row

INTRO_BATCH = 64
BATCHES = (8, 64)
COLUMN = "BLEU"


def intro_timing(plan: Plan) -> Timing:
    """Return the row that times the base model and adaptive kNN-MT in turn.

    Args:
        plan: Gives the domain, the first seed, and the numbers of batches and rounds.
    """
    systems = (plan.base(), plan.adaptive(plan.domain, plan.seeds[0]))
    return Timing(systems, plan.domain, INTRO_BATCH, plan.timed_batches, plan.rounds)


def intro_cells(plan: Plan) -> dict[str, Cell]:
    """Return the rows of quality of both systems.

    Args:
        plan: Gives the domain and seeds.
    """
    adaptive = [plan.adaptive(plan.domain, seed) for seed in plan.seeds]
    return {
        "base": Cell((Translation(plan.base(), plan.domain),), paper.INTRO_SPEED["base"][1]),
        "adaptive": Cell(
            tuple(Translation(system, plan.domain) for system in adaptive), paper.INTRO_SPEED["adaptive"][1]
        ),
    }


def _intro_rows(plan: Plan) -> list[Row]:
    return [intro_timing(plan), *(row for cell in intro_cells(plan).values() for row in cell.rows)]


def _lay_out_intro(plan: Plan, results: Results) -> str:
    found = results.find(intro_timing(plan))
    lines = []
    for number, (label, cell) in enumerate(intro_cells(plan).items()):
        speed = NOT_RUN if found is None else f"{found['speeds'][number]['tokens_per_second']:.0f}"
        tokens, bleu = paper.INTRO_SPEED[label]
        name = "MT" if label == "base" else "AK-MT (k = 4)"
        lines.append([name, speed, format_number(tokens), format_spread(cell.spread(results)), format_number(bleu)])
    note = (
        f"Batches of {INTRO_BATCH} sentences, exact search, both systems in turn in one process, the median of "
        f"{plan.rounds} rounds; the paper gives no batch size and measured on a P100. Its later tables print 38.35 and "
        "47.20 BLEU for the same systems."
    )
    return f"{markdown(['system', 'tokens/s', 'paper', 'BLEU', 'paper'], lines)}\n\n{note}"


class Saving(NamedTuple):
    """The share of adaptive kNN-MT's loss of speed that a system avoids.

    The paper's latency is the loss in sentences (or tokens) a second; `time` is the loss in seconds a token.

    Attributes:
        sentences: Share of the loss in sentences a second.
        tokens: Share of the loss in tokens a second.
        time: Share of the loss in seconds a token.
    """

    sentences: float
    tokens: float
    time: float


def saving(base: Mapping[str, float], adaptive: Mapping[str, float], system: Mapping[str, float]) -> Saving | None:
    """Return the saving of a system; None where adaptive kNN-MT is not slower than the base model.

    Args:
        base: Speed of the base model: "sentences_per_second" and "tokens_per_second".
        adaptive: Speed of adaptive kNN-MT with the same k.
        system: Speed of the system.

    Examples:
        >>> speeds = [{"sentences_per_second": n, "tokens_per_second": 10 * n} for n in (100, 50, 75)]
        >>> saving(*speeds).tokens
        0.5
    """

    def share(name: str) -> float | None:
        behind = base[name] - adaptive[name]
        return None if behind <= 0 else 1 - (base[name] - system[name]) / behind

    sentences, tokens = share("sentences_per_second"), share("tokens_per_second")
    overhead = [1 / speed["tokens_per_second"] - 1 / base["tokens_per_second"] for speed in (adaptive, system)]
    if sentences is None or tokens is None or overhead[0] <= 0:
        return None
    return Saving(sentences, tokens, 1 - overhead[1] / overhead[0])


def build_latency(plan: Plan) -> Grid:
    """Return the quality of all systems; each is compared with adaptive kNN-MT of the same k.

    Args:
        plan: Gives the large memory, the ks and the seeds.
    """
    lines = {BASE: {COLUMN: Cell((Translation(plan.base(), plan.large_test),))}}
    pairs = []
    for variant in add_printed(variants(plan)):
        rows = tuple(Translation(variant.system(plan, seed), plan.large_test) for seed in plan.seeds)
        lines[variant.label] = {COLUMN: Cell(rows)}
        if variant.kind != LARGE_ADAPTIVE:
            pairs.append((Variant(LARGE_ADAPTIVE, variant.k).label, variant.label))
    return Grid((COLUMN,), lines, tuple(pairs))


def _latency_timings(plan: Plan) -> list[Row]:
    return [large_timing(plan, batch) for batch in BATCHES]


def _lay_out_latency(plan: Plan, results: Results) -> str:
    parts = [_lay_out_speed(plan, results, batch) for batch in BATCHES]
    grid = build_latency(plan)
    return "\n\n".join(
        [
            *parts,
            "### Quality, exact search",
            markdown(
                ["system", COLUMN],
                [[label, format_spread(cells[COLUMN].spread(results))] for label, cells in grid.lines.items()],
            ),
            lay_out_pairs(grid, results),
            _lay_out_storage(plan, results),
            "Latency saved is against adaptive kNN-MT of the same k, over the base model: in the paper's definition, "
            "the difference in sentences (or tokens) a second, and in time a token. The paper's pruning rates are "
            "those at which its systems lose no BLEU; ours lose some, see the differences. Our speeds and storage are "
            "those of PCKMT* with our settings; the paper's stand beside them, since they depend on the number of "
            f"entries, not on which were removed. All systems take turns in one process; medians. {SETTINGS_NOTE}",
        ]
    )


def _lay_out_storage(plan: Plan, results: Results) -> str:
    found = large_speeds(plan, results, max(BATCHES))
    lines = []
    for variant in variants(plan):
        storage = found.get(variant.label, {}).get("storage", {}).get("keys_and_values")
        same_rate = variant.kind != PCKMT or variant.rate == paper.LATENCY_RATES[variant.k]
        printed = paper.LATENCY_STORAGE.get((variant.kind, variant.k), (None, None)) if same_rate else (None, None)
        ours = NOT_RUN if storage is None else f"{storage / 1e9:.2f} GB"
        original, quantised = ("" if size is None else f"{size} GB" for size in printed)
        lines.append([variant.label, ours, original, NOT_RUN, quantised])
    table = markdown(["system", "keys and values", "paper, original", "quantised", "paper, quantised"], lines)
    note = (
        "Our model's keys have 512 dimensions, the paper's 1024, and its datastore is that of Subtitles. Search is "
        "exact here, so there are no product codes: quantised storage was not measured on the large memory."
    )
    return f"### Storage\n\n{table}\n\n{note}"


def _lay_out_speed(plan: Plan, results: Results, batch: int) -> str:
    found = large_speeds(plan, results, batch)
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
        saved = _format_saving(found, variant)
        lines.append([label, *ours[:2], *(format_number(number, 0) for number in printed), *ours[2:], saved])
    header = ["system", "sentences/s", "tokens/s", "paper", "paper", "ms/token", "storage", "latency saved"]
    return f"### Batches of {batch}\n\n{markdown(header, lines)}"


def _format_saving(found: Mapping[str, Mapping[str, float]], variant: Variant | None) -> str:
    if not found or variant is None or variant.kind == LARGE_ADAPTIVE:
        return ""
    share = saving(found[BASE], found[Variant(LARGE_ADAPTIVE, variant.k).label], found[variant.label])
    if share is None:
        return "none to save"
    return f"{share.sentences:.0%} sentences, {share.tokens:.0%} tokens, {share.time:.0%} time"


def _draw_latency(plan: Plan, results: Results, folder: Path) -> list[Path]:
    from ibidem.reproduce.plots import Point, draw_tradeoff

    found, grid = large_speeds(plan, results, max(BATCHES)), build_latency(plan)
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


BY_NAME = {
    "intro-speed": Table(
        "intro-speed",
        "Speed and quality of the base model and of adaptive kNN-MT on IT",
        _intro_rows,
        _lay_out_intro,
    ),
    "latency": grid_table(
        "latency",
        "Speed and storage on the large memory, exact search",
        build_latency,
        _lay_out_latency,
        more_rows=_latency_timings,
        figures=("speed", "storage"),
        draw=_draw_latency,
    ),
}
