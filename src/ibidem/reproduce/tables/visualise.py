"""t-SNE of a memory: sampled tokens before and after the compactor, and the whole by frequency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.reproduce.grid import NOT_RUN, markdown
from ibidem.reproduce.rows.picture import Picture
from ibidem.reproduce.tables.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Results
    from ibidem.reproduce.rows.row import Row


def build(plan: Plan) -> Picture:
    """The picture of CKMT* on the domain of the ablations."""
    return Picture(plan.ckmt(plan.domain, plan.seeds[0]), points=plan.points)


def _rows(plan: Plan) -> list[Row]:
    return [build(plan)]


def _lay_out(plan: Plan, results: Results) -> str:
    found = results.find(build(plan))
    if found is None:
        return NOT_RUN
    words = ", ".join(sorted(found["tokens"].values()))
    shares = [[name, f"{found[key]:.1%}"] for name, key in (("before", "purity_before"), ("after", "purity_after"))]
    table = markdown(["f_α", f"of {found['neighbours']} nearest neighbours of the same token"], shares)
    return (
        f"{table}\n\n{found['points']:,} entries of the tokens {words}. The share is measured among these entries, in "
        "the spaces themselves and not in the plane."
    )


def _draw(plan: Plan, results: Results, folder: Path) -> list[Path]:
    from ibidem.reproduce.plots.plane import draw_frequencies, draw_tokens

    row = build(plan)
    found = results.find(row)
    names = ("tokens", "before", "after", "whole", "frequencies")
    arrays = {name: array for name in names if found and (array := results.array(row, name)) is not None}
    if found is None or len(arrays) < len(names):
        return []
    words = {int(token): word for token, word in found["tokens"].items()}
    planes = {"model's own space": arrays["before"], "compact space": arrays["after"]}
    drawn = draw_tokens(planes, arrays["tokens"], words, folder / "tokens", smoke=plan.smoke)
    return drawn + draw_frequencies(arrays["whole"], arrays["frequencies"], folder / "frequencies", smoke=plan.smoke)


TABLE = Table("visualise", "t-SNE of the IT memory", _rows, _lay_out, draw=_draw)
