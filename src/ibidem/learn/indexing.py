"""Building a memory's index and storing it with the memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ibidem.memory import Memory
from ibidem.progress import Progress, silent
from ibidem.retrieve import FaissIndex, Index, build_index

ARTEFACT = "index"


def index_memory(
    memory: Memory, setting: str = "auto", *, threads: int | None = None, progress: Progress = silent
) -> tuple[Memory, Index]:
    """Build the index of a setting; a faiss index is stored in the memory, exact search needs no file."""

    def report(label: str, done: int, total: int) -> None:
        progress(label, done / max(1, total), done)

    index = build_index(memory.keys, setting, seed=memory.manifest.seed, threads=threads, progress=report)
    with memory.edit() as edit, tempfile.TemporaryDirectory(dir=memory.path) as scratch:
        if isinstance(index, FaissIndex):
            file = Path(scratch) / "index.faiss"
            edit.put_artefact(ARTEFACT, "faiss", file, index.save(file))
        else:
            edit.remove_artefact(ARTEFACT)
        edit.set_stage("index", {"setting": setting, "description": index.description})
        return edit.commit(), index
