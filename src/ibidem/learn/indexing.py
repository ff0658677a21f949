"""Building a memory's index and storing it with the memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ibidem.learn.card import write_card
from ibidem.learn.digests import digest
from ibidem.memory import TEMPORARY, check_complete
from ibidem.progress import Progress, silent
from ibidem.retrieve import FaissIndex, Index, NativeIndex, accept_states, build_index

if TYPE_CHECKING:
    from ibidem.memory import Memory

ARTEFACT = "index"
_STAGES = {"train": "Training the index", "add": "Adding keys", "measure": "Measuring recall"}


def index_digest(setting: str) -> str:
    """What an index depends on: its setting alone, since whoever changes the keys removes it."""
    return digest(setting)


def index_memory(
    memory: Memory, setting: str = "auto", *, threads: int | None = None, progress: Progress = silent
) -> tuple[Memory, Index]:
    """Build the index of a setting; a faiss or native index is stored in the memory, exact search needs no file."""

    def report(stage: str, done: int, total: int) -> None:
        progress(_STAGES[stage], done / max(1, total), done, "keys")

    memory = memory.sealed()
    check_complete(memory)
    removals = len(memory.removed_entries)  # read now: pairs may be added and removed while the index is built
    index = build_index(
        memory.search_keys, setting, seed=memory.manifest.seed, threads=threads, progress=report, scratch=memory.path
    )
    # Under this name the next writer sweeps what a killed one left behind.
    with memory.edit() as edit, tempfile.TemporaryDirectory(dir=memory.path, prefix=TEMPORARY) as scratch:
        edit.set_merged(memory)
        if isinstance(index, FaissIndex | NativeIndex):
            kind = "faiss" if isinstance(index, FaissIndex) else "native"
            file = Path(scratch) / f"index.{kind}"
            edit.put_artefact(ARTEFACT, kind, file, index.save(file) | {"removals": removals})
        else:
            edit.remove_artefact(ARTEFACT)
        notes: dict[str, object] = {"setting": setting, "description": index.description}
        if isinstance(index, FaissIndex | NativeIndex) and index.recall is not None:
            notes["recall@16"] = round(index.recall, 4)
        edit.set_stage("index", {"digest": index_digest(setting), **notes})
        memory = edit.commit()
    write_card(memory)
    return memory, accept_states(index, memory, torch.device("cpu"))
