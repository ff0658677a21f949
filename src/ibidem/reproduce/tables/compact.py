"""The tables of compact spaces: feature reduction methods, and dimensions of the Compact Network."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import (
    Cell,
    Grid,
    format_number,
    format_spread,
    lay_out_grid,
    lay_out_pairs,
    markdown,
    spread_of,
)
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables import grid_table

if TYPE_CHECKING:
    from ibidem.learn import CompactSettings
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Result, Results

NMT, ADAPTIVE, DYNAMIC, STAR = "NMT", "adaptive kNN-MT", "[DY] CKMT+NCE", "[ST] CKMT+NCE+CL"
PCA, SVD = "+ feature-wise PCA", "+ weight-wise SVD"
COLUMN = "BLEU"
_OBJECTIVES = {"NCE": "nce", "DR": "ranking", "WP": "prediction"}
INDEX_NOTE = (
    "The paper's index is IVF1024,PQ64 with nprobe 32. On a GPU (see the machine of the rows) it is not faiss's but "
    "emulated: the probed lists are searched exactly for the vectors that the product codes stand for."
)


def compactors(plan: Plan) -> dict[str, CompactSettings]:
    """Return the compactor of every line that has one; networks have the paper's names, such as [DY] CKMT+NCE+CL.

    Args:
        plan: Gives the compactor that the others are variants of.
    """
    found = {PCA: replace(plan.star, method="pca"), SVD: replace(plan.star, method="svd")}
    for label in paper.COMPACT:
        pivot, _, words = label.partition(" CKMT+")
        if words:
            parts = words.split("+")
            found[label] = replace(
                plan.star,
                pivots={"[ST]": "static", "[DY]": "dynamic"}[pivot],
                objectives=tuple((_OBJECTIVES[part], 1.0) for part in parts if part != "CL"),
                clusters="CL" in parts,
            )
    return found


def build_methods(plan: Plan) -> Grid:
    """Return the thirteen lines of the ablation, with exact search and with the paper's index.

    Args:
        plan: Gives the domain, seeds and indexes.
    """
    settings, domain = compactors(plan), plan.domain
    lines: dict[str, dict[str, Cell]] = {}
    for label, printed in paper.COMPACT.items():
        lines[label] = {}
        for index in plan.indexes:
            if label == NMT:
                systems = [plan.base()]
            elif label == ADAPTIVE:
                systems = [plan.adaptive(domain, seed, index=index) for seed in plan.seeds]
            else:
                systems = [plan.ckmt(domain, seed, compact=settings[label], index=index) for seed in plan.seeds]
            lines[label][_name_search(index)] = Cell(tuple(Translation(system, domain) for system in systems), printed)
    claimed = [(ADAPTIVE, STAR), (PCA, STAR), (SVD, STAR), (ADAPTIVE, SVD)]
    claimed += [(DYNAMIC, f"{DYNAMIC}+{part}") for part in ("WP", "CL")]
    claimed += [(DYNAMIC, "[DY] CKMT+DR"), (STAR, f"{STAR}+WP")]
    pairs = dict.fromkeys([*pairwise(lines), *claimed])
    return Grid(tuple(map(_name_search, plan.indexes)), lines, tuple(pairs))


def _name_search(index: str) -> str:
    return f"{index} search" if index == "exact" else f"{index} index"


def _lay_out_methods(plan: Plan, results: Results) -> str:
    note = (
        "DY and ST: dynamic and static pivots; NCE, DR, WP: noise-contrastive estimation, distance ranking, word "
        "prediction; CL: triplets from clusters. The paper's numbers are with its index; our NCE is the in-batch "
        f"softmax of the authors' code, since the printed formula cannot be trained. {INDEX_NOTE}"
    )
    return f"{lay_out_grid(build_methods(plan), results)}\n\n{note}"


def build_dimensions(plan: Plan) -> Grid:
    """Return a line for each dimension and one for the model's own space, on the dev set.

    Args:
        plan: Gives the domain, seeds and dimensions.
    """
    lines = {}
    for dimension in plan.dimensions:
        compact = replace(plan.star, dimension=dimension)
        systems = [plan.ckmt(plan.domain, seed, compact=compact) for seed in plan.seeds]
        rows = tuple(Translation(system, plan.domain, "dev") for system in systems)
        lines[f"CKMT* {dimension}"] = {COLUMN: Cell(rows, paper.DIMENSIONS.get(dimension, (None, None))[1])}
    rows = tuple(Translation(plan.adaptive(plan.domain, seed), plan.domain, "dev") for seed in plan.seeds)
    best = "CKMT* 64"
    pairs = tuple((ADAPTIVE, label) for label in lines)
    pairs += tuple((label, best) for label in lines if best in lines and label != best)
    lines[ADAPTIVE] = {COLUMN: Cell(rows, paper.DIMENSIONS[None][1])}
    return Grid((COLUMN,), lines, pairs)


def metak_loss(result: Result) -> float | None:
    """Return the Meta-k Network's loss on held-out sentences of the dev set.

    Args:
        result: Result of a row that translates.

    Returns:
        Nats a token; None where the row has no tuned memory.
    """
    loss = result.get("stages", {}).get("tuned", {}).get("loss_adaptive_validation")
    return None if loss is None else float(loss)


def _lay_out_dimensions(plan: Plan, results: Results) -> str:
    grid = build_dimensions(plan)
    losses = {f"CKMT* {d}" if d else ADAPTIVE: loss for d, (loss, _) in paper.DIMENSIONS.items()}
    lines = []
    for label, cells in grid.lines.items():
        cell = cells[COLUMN]
        loss = format_spread(spread_of(cell.values(results, metak_loss)))
        bleu = format_spread(cell.spread(results))
        lines.append([label, loss, format_number(losses.get(label)), bleu, format_number(cell.paper)])
    table = markdown(["system", "Meta-k loss", "paper", COLUMN, "paper"], lines)
    note = (
        "On the dev set, on which the combiner was tuned, as in the paper. Our loss is that of a fifth of its "
        "sentences, which the Meta-k Network was not trained on."
    )
    return f"{table}\n\n{lay_out_pairs(grid, results)}\n\n{note}"


BY_NAME = {
    "compact": grid_table(
        "compact", "Feature reduction methods on the IT domain, k = 4 (BLEU)", build_methods, _lay_out_methods
    ),
    "dimensions": grid_table(
        "dimensions",
        "Dimension of the compact space; IT dev set, k = 4, exact search",
        build_dimensions,
        _lay_out_dimensions,
    ),
}
