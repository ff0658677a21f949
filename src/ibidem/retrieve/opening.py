"""The index of a memory, ready to search on a device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ibidem.errors import MemoryFolderError
from ibidem.native import native
from ibidem.retrieve.approximate import load_index
from ibidem.retrieve.building import build_index
from ibidem.retrieve.compacted import accept_states
from ibidem.retrieve.ivf import NAME, load_native
from ibidem.retrieve.scan import exact_index
from ibidem.retrieve.settings import ExactSettings, resolve

if TYPE_CHECKING:
    import torch

    from ibidem.memory import Artefact, Memory
    from ibidem.retrieve.neighbours import Index

ARTEFACT = "index"


def open_index(memory: Memory, setting: str | None, device: torch.device) -> Index:
    """The memory's stored index; on CUDA exact search; else one built now, as `setting` or `auto` says.

    It takes the model's states as queries, whatever space the memory's keys are in. An index is derived data: one
    that is damaged or does not fit is not used, and search goes on with one built now.
    """
    return accept_states(_open(memory, setting, device), memory, device)


def _open(memory: Memory, setting: str | None, device: torch.device) -> Index:
    stored_setting = memory.manifest.stages.get("index", {}).get("setting")
    if setting is not None and setting != stored_setting:
        return build_index(memory.search_keys, setting, seed=memory.manifest.seed, device=device)
    if setting is None and device.type == "cuda":
        return exact_index(memory.search_keys, device)
    wanted = setting or stored_setting or "auto"
    if setting is None and native() is None and wanted.startswith(NAME):
        wanted = "auto"  # the memory comes from a machine that has the library
    try:
        stored = memory.artefact(ARTEFACT)
        if stored is not None:
            return _load(memory, stored)
        if not isinstance(resolve(wanted, memory.entries, memory.dimension, device=device), ExactSettings):
            note = f"{memory.path} has no index stored for the CPU, so one is built now and again at the next start;"
            warnings.warn(f"{note} `ibidem index -m {memory.path}` stores one.", stacklevel=2)
    except MemoryFolderError as damage:
        warnings.warn(f"{damage}. It is not used; `ibidem index -m {memory.path}` stores a new one.", stacklevel=2)
    return build_index(memory.search_keys, wanted, seed=memory.manifest.seed, device=device)


def _load(memory: Memory, stored: Artefact) -> Index:
    """The stored index, of whatever kind it is."""
    if stored.info.get("kind") != NAME:
        return load_index(stored.path, stored.info, memory.search_keys)
    index = load_native(stored.path, stored.info, memory.search_keys)
    if native() is None:
        note = f"The index of {memory.path} is read without ibidem's native library, which is slow;"
        warnings.warn(f"{note} `ibidem index -m {memory.path}` builds one for this machine.", stacklevel=3)
    return index
