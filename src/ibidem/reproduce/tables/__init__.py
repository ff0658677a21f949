"""One module a table: which rows it has, and how they are laid out beside the paper's numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ibidem.errors import UsageError
from ibidem.reproduce import TABLES

if TYPE_CHECKING:
    from ibidem.reproduce.tables.table import Table


def open_table(name: str) -> Table:
    """The table of a name."""
    if name not in TABLES:
        raise UsageError(f"There is no table '{name}': use one of {', '.join(TABLES)}, or all.")
    table: Table = import_module(f"ibidem.reproduce.tables.{name.replace('-', '_')}").TABLE
    return table
