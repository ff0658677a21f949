"""Commit records of a journal: write and sync the record, then write and sync the committed end.

A writer that is killed in between leaves a record beyond the committed end, which was not acknowledged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ibidem.errors import MemoryFolderError
from ibidem.memory.ends import ENDS, Ends, read_ends, seal_ends
from ibidem.memory.files import commit_file, prepare_file, replace_file
from ibidem.memory.journal import Journal, list_journals

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ibidem.memory.journal import Change


def append_change(folder: Path, journal: Journal, change: Change) -> Journal:
    """Append a change to a journal and commit it; it is durable when this returns.

    Only the writer who holds the lock and has read all sound records of the journal may do so. Raises OSError where
    the change is not recorded, CommittedError where it is and the disk did not confirm it, and DamagedMemoryError,
    with nothing changed, where the journal is not what was read of it.
    """
    ends = commit_leftovers(folder, [journal])
    assert ends is not None
    longer = journal.append(change)
    try:
        beside, _ = prepare_file(folder / ENDS, seal_ends(ends.with_end(longer.number, longer.state)))
        commit_file(beside, folder / ENDS, f"the change to {folder} is recorded")
    except OSError:
        # The rename may have succeeded, and a record below the committed end must never be cut off.
        if read_ends(folder) == ends:
            longer.cut_back(journal.end)
        raise
    return replace(longer, committed=longer.end)


def commit_leftovers(folder: Path, journals: Iterable[Journal], *, required: bool = True) -> Ends | None:
    """Commit what was read of these journals, with the records that killed writers left beyond the committed ends.

    A record must be committed before another is appended, so that at most one record is uncommitted, and before it is
    sealed: a snapshot needs the journal again, and the ids in later journals count the pairs in this one. Returns the
    committed ends, None where the memory has none and its format requires none. Raises MemoryFolderError where the
    ends are not those that the journals were read with.
    """
    ends = before = read_ends(folder, required=required)
    if ends is None:
        return None
    for journal in journals:
        committed = ends.of(journal.number)
        if committed == journal.state:
            continue
        if committed.bytes != journal.committed:
            raise MemoryFolderError(f"{journal.path} was written by another process meanwhile: run this again")
        journal.sync()
        ends = ends.with_end(journal.number, journal.state)
    if ends != before:
        replace_file(folder / ENDS, seal_ends(ends))
    return ends


def settle_ends(folder: Path, first: int, *, required: bool) -> None:
    """Make sure that there are committed ends, and drop those of journals before `first`, which no manifest needs.

    A memory of an older format has none, and requires none: what its journals hold now is committed then.
    """
    ends = read_ends(folder, required=required)
    if ends is None:
        ends = Ends(first)
        for path in list_journals(folder, first):
            journal = Journal(path).read(None)[1]
            if journal.end:
                journal.sync()
                ends = ends.with_end(journal.number, journal.state)
    elif first <= ends.first:
        return
    else:
        ends = ends.since(first)
    replace_file(folder / ENDS, seal_ends(ends))
