"""The feature reduction methods on one domain: PCA, SVD, and every Compact Network of the paper's ablation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ibidem.reproduce import paper
from ibidem.reproduce.grid import Cell, Grid, lay_out_grid
from ibidem.reproduce.rows.translation import Translation
from ibidem.reproduce.tables.table import grid_table

if TYPE_CHECKING:
    from ibidem.learn import CompactSettings
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results

NMT, ADAPTIVE, STAR = "NMT", "adaptive kNN-MT", "[ST] CKMT+NCE+CL"
PCA, SVD = "+ feature-wise PCA", "+ weight-wise SVD"
_WORDS = {"NCE": "nce", "DR": "ranking", "WP": "prediction"}


def compactors(plan: Plan) -> dict[str, CompactSettings]:
    """The compactor of every line that has one; networks are named as in the paper, [DY] CKMT+NCE+CL and so on."""
    found = {PCA: replace(plan.star, method="pca"), SVD: replace(plan.star, method="svd")}
    for label in paper.COMPACT:
        pivot, _, words = label.partition(" CKMT+")
        if words:
            parts = words.split("+")
            found[label] = replace(
                plan.star,
                pivots={"[ST]": "static", "[DY]": "dynamic"}[pivot],
                objectives=tuple((_WORDS[part], 1.0) for part in parts if part != "CL"),
                clusters="CL" in parts,
            )
    return found


def build(plan: Plan) -> Grid:
    """Thirteen lines, with exact search and with the paper's index."""
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
            lines[label][_column(index)] = Cell(tuple(Translation(system, domain) for system in systems), printed)
    pairs = dict.fromkeys([*pairwise(lines), (ADAPTIVE, STAR), (PCA, STAR), (SVD, STAR)])
    return Grid(tuple(map(_column, plan.indexes)), lines, tuple(pairs))


def _column(index: str) -> str:
    return f"{index} search" if index == "exact" else f"{index} index"


def _lay_out(plan: Plan, results: Results) -> str:
    note = (
        "DY and ST: dynamic and static pivots; NCE, DR, WP: noise-contrastive estimation, distance ranking, word "
        "prediction; CL: triplets from clusters. The paper's numbers are with its index; our NCE is the in-batch "
        "softmax of the authors' code, since the printed formula cannot be trained."
    )
    return f"{lay_out_grid(build(plan), results)}\n\n{note}"


TABLE = grid_table("compact", "Feature reduction methods on the IT domain, k = 4 (BLEU)", build, _lay_out)
