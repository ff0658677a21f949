"""What `ibidem reproduce` does: find missing rows, measure them, and write tables as Markdown, JSON and figures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ibidem.errors import UsageError
from ibidem.reproduce.data import find_changed
from ibidem.reproduce.grid import TEST_NOTE
from ibidem.reproduce.results import Results, digest
from ibidem.reproduce.runner import Report, choose_rows, find_obstacle, run_rows
from ibidem.reproduce.tables import TABLES, open_table
from ibidem.reproduce.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ibidem.reproduce.data import Data
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.results import Result
    from ibidem.reproduce.rows import Row
    from ibidem.reproduce.tables import Table
    from ibidem.reproduce.workspace import RunSettings

ALL = "all"
FIGURES = "figures"
SMOKE = (
    "**SMOKE**: a quick run to see that everything works, on few sentences with hardly any training. "
    "No figure here means anything."
)


@dataclass(frozen=True)
class RowChoice:
    """Choose the rows to run.

    Attributes:
        only: Parts of row names, or digests; all rows where it is empty.
        seeds: Seeds; all where it is empty.
        minutes: Time limit; none where it is None.
    """

    only: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    minutes: float | None = None


@dataclass(frozen=True)
class State:
    """Rows by their state.

    Attributes:
        obstacles: What each impossible row lacks, by digest.
        done: Rows with a result.
        ready: Rows without a result that can be run here.
        impossible: Rows that cannot be run here.
    """

    done: list[Row] = field(default_factory=list)
    ready: list[Row] = field(default_factory=list)
    obstacles: dict[str, str] = field(default_factory=dict)
    impossible: list[Row] = field(default_factory=list)


def name_tables(names: Sequence[str]) -> list[str]:
    """Return the named tables in the paper's order; "all" names every table.

    Args:
        names: Names of tables, or "all".

    Raises:
        UsageError: There is no table of a name.

    Examples:
        >>> name_tables(["pruning", "compact"])
        ['compact', 'pruning']
    """
    wanted = TABLES if ALL in names else names
    for name in wanted:
        if name not in TABLES:
            raise UsageError(f"There is no table '{name}': use {', '.join(TABLES)}, or {ALL}.")
    return [name for name in TABLES if name in wanted]


def survey_rows(
    names: Sequence[str], plan: Plan, results: Results, workspace: Workspace | None, choice: RowChoice
) -> State:
    """Find the state of the chosen rows of some tables.

    Args:
        names: Names of tables.
        plan: What the tables measure.
        results: Results so far.
        workspace: Workspace with the data; without one no row can be run.
        choice: Rows to look at.

    Raises:
        UsageError: A result was measured on another state of a text.
    """
    state = State()
    rows = [row for name in name_tables(names) for row in open_table(name).rows(plan)]
    for row in choose_rows(rows, choice.only, choice.seeds):
        result = results.find(row)
        if result is not None:
            changed = None if workspace is None else find_changed(result["texts"], workspace.data)
            if changed is not None:
                raise UsageError(
                    f"The result {digest(row)} ({row.name}) in {results.folder} was measured on another text of "
                    f"{changed} than the one in the data folder: name another folder with --results."
                )
            state.done.append(row)
            continue
        obstacle = "no data folder was given" if workspace is None else find_obstacle(workspace, row)
        if obstacle is None:
            state.ready.append(row)
        else:
            state.impossible.append(row)
            state.obstacles[digest(row)] = obstacle
    return state


def reproduce(
    names: Sequence[str], plan: Plan, setting: RunSettings, choice: RowChoice, log: Callable[[str], None]
) -> tuple[dict[str, str], Report]:
    """Measure the missing rows of some tables, then write the tables.

    Args:
        names: Names of tables.
        plan: What the tables measure.
        setting: Folders, model and device.
        choice: Rows to run; tables show all results.
        log: Receives a line for each finished task.

    Returns:
        The Markdown of each table, and the counts of measured and missing rows.

    Raises:
        UsageError: A table is unknown, no row matches the choice, or a result was measured on another state of a text.
        MismatchError: The results folder holds results of another model.
    """
    workspace = Workspace(setting)
    state = survey_rows(names, plan, Results(setting.results), workspace, choice)
    log(f"{len(state.done)} rows done, {len(state.ready)} to run, {len(state.impossible)} that cannot be run here")
    report = run_rows(setting, state.ready, minutes=choice.minutes, log=log) if state.ready else Report()
    return lay_out(names, plan, Results(setting.results), state.obstacles, workspace.data), report


def lay_out(
    names: Sequence[str], plan: Plan, results: Results, obstacles: Mapping[str, str], data: Data | None
) -> dict[str, str]:
    """Write tables from the stored results.

    Args:
        names: Names of tables, or "all".
        plan: What the tables measure.
        results: Results folder; the tables are written into it.
        obstacles: Why rows cannot be run here, by digest.
        data: Texts for what is printed only; None prints nothing more.

    Returns:
        The Markdown of each table, followed by what is printed only.
    """
    tables = {}
    for name in name_tables(names):
        table = open_table(name)
        written = write_table(table, plan, results, obstacles, results.folder)
        aside = "" if data is None else table.aside(plan, results, data)
        tables[name] = f"{written}\n{aside}" if aside else written
    return tables


def write_table(table: Table, plan: Plan, results: Results, obstacles: Mapping[str, str], folder: Path) -> str:
    """Write TABLE.md, TABLE.json and the figures of a table into a folder; figures need matplotlib.

    Args:
        table: Table to write.
        plan: What it measures.
        results: Stored results.
        obstacles: Why rows cannot be run, by digest.
        folder: Folder to write to.

    Returns:
        The Markdown.
    """
    if find_spec("matplotlib"):
        table.draw(plan, results, folder / FIGURES)
    text = render_table(table, plan, results, obstacles, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{table.name}.md").write_text(text, encoding="utf-8", newline="\n")
    found = {digest(row): results.find(row) for row in table.rows(plan)}
    whole = {
        "table": table.name,
        "title": table.title,
        "smoke": plan.smoke,
        "rows": len(found),
        "differences": table.differences(plan, results),
        "results": [result for result in found.values() if result is not None],
    }
    content = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / f"{table.name}.json").write_text(content, encoding="utf-8", newline="\n")
    return text


def render_table(table: Table, plan: Plan, results: Results, obstacles: Mapping[str, str], folder: Path) -> str:
    """Render a table as Markdown, with the figures that its folder holds.

    Args:
        table: Table to render.
        plan: What it measures.
        results: Stored results.
        obstacles: Why rows cannot be run here, by digest.
        folder: Folder of the table, whose figures are linked where they exist.
    """
    found = {digest(row): results.find(row) for row in table.rows(plan)}
    present = [result for result in found.values() if result is not None]
    missing = [key for key, result in found.items() if result is None]
    parts = [f"# {table.name}", *([SMOKE] if plan.smoke else []), table.title + ".", table.lay_out(plan, results)]
    for name in table.figures:
        if (folder / FIGURES / f"{name}.png").is_file():
            parts.append(f"![{name}]({FIGURES}/{name}.png)")
    parts.append(describe_runs(present, len(found), [obstacles[key] for key in missing if key in obstacles]))
    return "\n\n".join(parts) + "\n"


def describe_runs(present: Sequence[Result], rows: int, obstacles: Sequence[str]) -> str:
    """List what the figures of a table were measured with: model, seeds, signatures, machines, software and time.

    Args:
        present: Stored results of the table's rows.
        rows: Number of rows of the table.
        obstacles: Reason for each row that cannot be run here.

    Returns:
        A Markdown list.
    """
    lines = [f"{len(present)} of {rows} rows run."] if rows else []
    if obstacles:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in Counter(obstacles).most_common())
        lines.append(f"Cannot be run here: {reasons}.")
    if present:
        seconds = sum(result["seconds"] for result in present)
        facts = {
            "base model": _distinct(f"{r['model']['name']} ({r['model']['dimension']}-d keys)" for r in present),
            "seeds": _distinct(result["seed"] for result in present),
            "BLEU": _distinct(result.get("signatures", {}).get("BLEU") for result in present),
            "machine": _distinct(_describe_machine(result["machine"]) for result in present),
            "software": _distinct(_describe_software(result) for result in present),
            "commit": _distinct((result["commit"] or "unknown")[:12] for result in present),
            "run": f"{min(r['when'] for r in present)} to {max(r['when'] for r in present)}",
            "time": f"measuring {seconds / 60:.1f} minutes, stages {_sum_stages(present) / 60:.1f} minutes; "
            f"{_describe_jobs(present)}",
        }
        lines += [f"- {name}: {value}" for name, value in facts.items() if value]
    if any("scores" in result for result in present):
        lines.append("")
        lines.append(TEST_NOTE)
    return "\n".join(lines)


def _distinct(values: Iterable[object]) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values if value))


def _describe_machine(machine: Mapping[str, Any]) -> str:
    words = [machine.get("gpu"), machine.get("cpu"), f"{machine.get('cores')} cores"]
    return ", ".join(str(word) for word in words if word)


def _describe_software(result: Result) -> str:
    machine = result["machine"]
    libraries = [
        f"{name} {machine[name]}" for name in ("torch", "transformers", "faiss", "sacrebleu") if name in machine
    ]
    return ", ".join([f"ibidem {result['ibidem']}", *libraries])


def _sum_stages(present: Sequence[Result]) -> float:
    """Add the seconds of all stages; rows that share a stage have the same seconds of it."""
    stages = {(kind, notes["seconds"]) for result in present for kind, notes in result.get("stages", {}).items()}
    return float(sum(seconds for _, seconds in stages))


def _describe_jobs(present: Sequence[Result]) -> str:
    most = max(result["side_by_side"] for result in present)
    return "one at a time" if most == 1 else f"up to {most} side by side, so that no speed can be read off them"
