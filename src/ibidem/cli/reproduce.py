"""The command reproduce: the tables and figures of the paper."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ibidem.cli import options
from ibidem.cli.console import note
from ibidem.errors import UsageError
from ibidem.reproduce import TABLES

if TYPE_CHECKING:
    from ibidem.reproduce import Data, Plan, State


Tables = Annotated[list[str], typer.Argument(metavar="TABLE...", help=f"all, or any of {', '.join(TABLES)}.")]


def reproduce(
    tables: Tables,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder with DOMAIN/{train,dev,test}.{de,en}[.xz]; see docs/reproduce.md.",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    device: options.Device = "auto",
    results: Annotated[
        Path | None,
        typer.Option("--results", help="Folder of the results, which accumulate there (results).", show_default=False),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work", help="Folder for memories: large, and safe to delete (RESULTS/work).", show_default=False
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only rows whose name holds this, or whose digest it is.", show_default=False),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="Only rows of these seeds, such as 1,2 (1,2,3).", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0, help="Start no row that would take longer than this.", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Rows to run side by side, in processes.")] = 1,
    threads: options.Threads = None,
    listed: Annotated[bool, typer.Option("--list", help="List the rows with their state; run nothing.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run everything in minutes on a CPU as a test; the figures mean nothing.")
    ] = False,
) -> None:
    """Run the tables of the paper and print them with its numbers. Rows that have a result are not run again."""
    from ibidem.reproduce import (
        Results,
        RowChoice,
        RunSettings,
        Workspace,
        lay_out,
        name_tables,
        reproduce,
        survey_rows,
    )

    names = name_tables(tables)
    folder = _choose_folder(results, quick=quick)
    work_folder = work or folder / "work"
    choice = RowChoice(tuple(only or ()), _read_seeds(seeds), minutes)
    plan, texts = _prepare(data, work_folder, choice.seeds, quick=quick)
    setting = (
        None if texts is None else RunSettings(texts.folder, work_folder, folder, model, device, threads, jobs, quick)
    )
    if listed:
        _print_state(survey_rows(names, plan, Results(folder), None if setting is None else Workspace(setting), choice))
        return
    if setting is None:
        if not (folder / "rows").is_dir():
            raise UsageError(f"Give a folder of parallel text with --data, or --quick: {folder} holds no results yet.")
        print("\n".join(lay_out(names, plan, Results(folder), {}, None).values()), end="")
        return
    laid_out, report = reproduce(names, plan, setting, choice, note)
    print("\n".join(laid_out.values()), end="")
    note(f"{report.measured} rows measured, {report.lost} lost to failures, {report.left} left for another time")
    if report.failed:
        raise typer.Exit(1)


def _choose_folder(results: Path | None, *, quick: bool) -> Path:
    """Return the folder of results; raises UsageError for a quick run into docs/results."""
    if not quick:
        return results or Path("results")
    folder = results or Path("results", "smoke")
    parts = folder.resolve().parts
    if ("docs", "results") in pairwise(parts):
        raise UsageError(f"A quick run's figures mean nothing and do not belong in {folder}: name another folder.")
    return folder


def _prepare(data: Path | None, work: Path, seeds: tuple[int, ...], *, quick: bool) -> tuple[Plan, Data | None]:
    """Return the plan and its data: the given folder, or our own sentences for a quick run without one."""
    from ibidem.reproduce import QUICK_LINES, Data, full_plan, quick_plan, write_cut, write_own_data

    if quick:
        folder = work / "data"
        return quick_plan(), write_own_data(folder) if data is None else write_cut(Data(data), folder, QUICK_LINES)
    texts = None if data is None else Data(data)
    return full_plan(texts, seeds), texts


def _read_seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        seeds = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 1:
        raise UsageError(f"--seeds {text} is invalid: give whole numbers from 1, such as 1,2,3.")
    return seeds


def _print_state(state: State) -> None:
    """Print a line for each row: its digest, its state, its name."""
    from ibidem.reproduce import digest

    for word, rows in (("done", state.done), ("to run", state.ready), ("not here", state.impossible)):
        for row in rows:
            reason = state.obstacles.get(digest(row))
            print(f"{digest(row)}  {word:8}  {row.name}{f'  ({reason})' if reason else ''}")
