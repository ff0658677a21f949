"""The paper's tables and figures, each from declared rows that are measured once and stored.

>>> from ibidem.reproduce import TABLES, name_tables
>>> name_tables(["pruning", "compact"])  # the paper's order
['compact', 'pruning']
>>> name_tables(["all"]) == list(TABLES)
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ibidem.reproduce.tables import TABLES

if TYPE_CHECKING:
    from ibidem.reproduce.data import QUICK_LINES, Data, write_cut, write_own_data
    from ibidem.reproduce.plan import Plan, full_plan, quick_plan
    from ibidem.reproduce.plots import LINES, MARKERS, new_figure, save_figure
    from ibidem.reproduce.report import RowChoice, State, lay_out, name_tables, reproduce, survey_rows
    from ibidem.reproduce.results import Results, digest, pack_rows
    from ibidem.reproduce.workspace import RunSettings, Workspace

__all__ = [
    "LINES",
    "MARKERS",
    "QUICK_LINES",
    "TABLES",
    "Data",
    "Plan",
    "Results",
    "RowChoice",
    "RunSettings",
    "State",
    "Workspace",
    "digest",
    "full_plan",
    "lay_out",
    "name_tables",
    "new_figure",
    "pack_rows",
    "quick_plan",
    "reproduce",
    "save_figure",
    "survey_rows",
    "write_cut",
    "write_own_data",
]

# Everything but TABLES loads torch, which `ibidem --help` must not do.
_MODULES = {
    "data": ("Data", "QUICK_LINES", "write_cut", "write_own_data"),
    "plan": ("Plan", "full_plan", "quick_plan"),
    "plots": ("LINES", "MARKERS", "new_figure", "save_figure"),
    "report": ("RowChoice", "State", "lay_out", "name_tables", "reproduce", "survey_rows"),
    "results": ("Results", "digest", "pack_rows"),
    "workspace": ("RunSettings", "Workspace"),
}


def __getattr__(name: str) -> Any:
    """Load a name of the package from its module when it is first used."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"ibidem.reproduce.{module}"), name)
    raise AttributeError(f"module 'ibidem.reproduce' has no attribute '{name}'")
