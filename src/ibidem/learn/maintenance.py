"""Keeping a living memory quick: when its journal is sealed, and when what was added is merged with the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.errors import LockedMemoryError
from ibidem.learn.indexing import index_memory
from ibidem.progress import Progress, silent
from ibidem.retrieve import EXACT_BELOW

if TYPE_CHECKING:
    import torch

    from ibidem.memory import Memory

# The tail's keys are copied for every pair that is added: more of them would be noticed.
SEAL_BYTES = 4 << 20
SEAL_REMOVED = 1000
# Added entries are scanned whole at every step, beside an index that looks into a part of the others.
MERGE_SHARE = 50


def seal_due(memory: Memory) -> bool:
    """Whether the journal holds so much that it should be sealed."""
    return memory.tail.bytes > SEAL_BYTES or len(memory.tail.removed) > SEAL_REMOVED


def merge_due(memory: Memory) -> bool:
    """Whether so many entries were added since the index was built that it should be built anew over all of them."""
    merged = memory.merged_entries
    return memory.entries - merged > max(EXACT_BELOW, merged // MERGE_SHARE)


def maintain(memory: Memory, device: torch.device, progress: Progress = silent) -> Memory:
    """Seal the journal above 4 MiB or 1,000 removed pairs; merge what was added above 20,000 entries or a fiftieth.

    Merging builds the index anew, with its own setting, without the lock; pairs may be added and removed meanwhile.
    From then on a tuned combiner weighs the merged entries as if it had been tuned for them; `ibidem tune` does that.
    What cannot be done now, since another writer is at work, is left for the next call: nothing depends on it.
    """
    try:
        return _maintain(memory.refresh(), device, progress)
    except LockedMemoryError:
        return memory.refresh()


def _maintain(memory: Memory, device: torch.device, progress: Progress) -> Memory:
    if seal_due(memory):
        progress("Sealing the journal", None, memory.tail.entries, "entries")
        memory = memory.sealed()
    if not merge_due(memory):
        return memory
    setting = memory.manifest.stages.get("index", {}).get("setting")
    if setting is None and device.type == "cuda":  # which is searched exactly, and needs no index
        with memory.edit() as edit:
            edit.set_merged(edit.memory)
            return edit.commit()
    return index_memory(memory, setting or "auto", progress=progress)[0]
