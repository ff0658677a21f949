"""`ibidem reproduce`: measure what is missing of some tables, then lay them out with what is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.reproduce import TABLES
from ibidem.reproduce.bench import Workspace
from ibidem.reproduce.data import find_changed
from ibidem.reproduce.declaration import digest
from ibidem.reproduce.report import write_table
from ibidem.reproduce.results import Results
from ibidem.reproduce.running import Report, choose_rows, find_obstacle, run_rows
from ibidem.reproduce.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ibidem.reproduce.bench import Setting
    from ibidem.reproduce.data import Data
    from ibidem.reproduce.plan import Plan
    from ibidem.reproduce.rows.row import Row

ALL = "all"


@dataclass(frozen=True)
class Choice:
    """Which rows of the tables are to be run: by name or digest, by seed, and within how many minutes."""

    only: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    minutes: float | None = None


@dataclass(frozen=True)
class State:
    """The rows of some tables: with a result, ready to be run, and not to be run here, with the reason by digest."""

    done: list[Row] = field(default_factory=list)
    ready: list[Row] = field(default_factory=list)
    obstacles: dict[str, str] = field(default_factory=dict)
    hindered: list[Row] = field(default_factory=list)


def name_tables(names: Sequence[str]) -> list[str]:
    """The tables meant by some names, in the order of the paper."""
    wanted = TABLES if ALL in names else names
    for name in wanted:
        if name not in TABLES:
            raise UsageError(f"There is no table '{name}': use {', '.join(TABLES)}, or {ALL}.")
    return [name for name in TABLES if name in wanted]


def survey(names: Sequence[str], plan: Plan, results: Results, bench: Workspace | None, choice: Choice) -> State:
    """Where the chosen rows of some tables stand; raises UsageError where results belong to other texts.

    Without a bench, since there is no data, nothing can be run.
    """
    state = State()
    rows = [row for name in name_tables(names) for row in open_table(name).rows(plan)]
    for row in choose_rows(rows, choice.only, choice.seeds):
        result = results.find(row)
        if result is not None:
            changed = None if bench is None else find_changed(result["texts"], bench.data)
            if changed is not None:
                raise UsageError(
                    f"The result {digest(row)} ({row.name}) in {results.folder} was measured on another text of "
                    f"{changed} than lies in the data folder: name another folder with --results."
                )
            state.done.append(row)
            continue
        obstacle = "no data folder was given" if bench is None else find_obstacle(bench, row)
        if obstacle is None:
            state.ready.append(row)
        else:
            state.hindered.append(row)
            state.obstacles[digest(row)] = obstacle
    return state


def reproduce(
    names: Sequence[str], plan: Plan, setting: Setting, choice: Choice, say: Callable[[str], None]
) -> tuple[dict[str, str], Report]:
    """Run the rows that are missing, then write every table; the Markdown of each, and what became of the rows."""
    bench = Workspace(setting)
    state = survey(names, plan, Results(setting.results), bench, choice)
    say(f"{len(state.done)} rows done, {len(state.ready)} to run, {len(state.hindered)} that cannot be run here")
    report = run_rows(setting, state.ready, minutes=choice.minutes, say=say) if state.ready else Report()
    return lay_out(names, plan, Results(setting.results), state.obstacles, bench.data), report


def lay_out(
    names: Sequence[str], plan: Plan, results: Results, obstacles: Mapping[str, str], data: Data | None
) -> dict[str, str]:
    """Write every table with the results that are there; the Markdown of each, and what is to be printed with it."""
    tables = {}
    for name in name_tables(names):
        table = open_table(name)
        written = write_table(table, plan, results, obstacles, results.folder)
        aside = "" if data is None else table.aside(plan, results, data)
        tables[name] = f"{written}\n{aside}" if aside else written
    return tables
