"""The index of a memory, ready to search on a device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from ibidem.errors import MemoryFolderError
from ibidem.native import native
from ibidem.retrieve.approximate import load_index
from ibidem.retrieve.building import build_index
from ibidem.retrieve.compacted import accept_states
from ibidem.retrieve.ivf import NAME, load_native
from ibidem.retrieve.keys import FirstKeys
from ibidem.retrieve.scan import exact_index
from ibidem.retrieve.sealed import BaseIndex, join
from ibidem.retrieve.settings import ExactSettings, is_for_gpu, resolve

if TYPE_CHECKING:
    import torch

    from ibidem.memory import Artefact, Memory
    from ibidem.retrieve.neighbours import Index

ARTEFACT = "index"


def open_index(memory: Memory, setting: str | None, device: torch.device) -> Index:
    """An index of all sealed entries of a memory that takes the model's states as queries, whatever space it searches.

    It is the memory's stored index and an exact one of what came after it; on CUDA exact search; else one built now,
    as `setting` or `auto` says.
    """
    parts = open_sealed(memory, setting, device).parts(memory, np.empty(0, np.int64), device)
    return accept_states(join(parts, memory.entries, memory.dimension), memory, device)


def open_sealed(memory: Memory, setting: str | None, device: torch.device) -> BaseIndex:
    """The memory's index, in the space of its keys; one that is built now covers all its sealed entries.

    An index is derived data: one that is damaged or does not fit is not used, and search goes on with one built now.
    """
    keys = memory.search_keys
    stored_setting = memory.manifest.stages.get("index", {}).get("setting")
    if setting is not None and setting != stored_setting:
        index = build_index(keys, setting, seed=memory.manifest.seed, device=device)
    elif device.type == "cuda" and stored_setting is not None and is_for_gpu(stored_setting):
        index = build_index(keys, stored_setting, seed=memory.manifest.seed, device=device)
    elif setting is None and device.type == "cuda":
        index = exact_index(keys, device)
    else:
        wanted = setting or stored_setting or "auto"
        if setting is None and native() is None and wanted.startswith(NAME):
            wanted = "auto"  # the memory comes from a machine that has the library
        try:
            if (stored := memory.artefact(ARTEFACT)) is not None:
                return _load_stored(memory, stored)
            if not isinstance(resolve(wanted, keys.size, memory.dimension, device=device), ExactSettings):
                note = (
                    f"{memory.path} has no index stored for the CPU, so one is built now and again at the next start;"
                )
                warnings.warn(f"{note} `ibidem index -m {memory.path}` stores one.", stacklevel=2)
        except MemoryFolderError as damage:
            said = str(damage).removesuffix(".")
            warnings.warn(f"{said}. It is not used; `ibidem index -m {memory.path}` stores a new one.", stacklevel=2)
        index = build_index(keys, wanted, seed=memory.manifest.seed, device=device)
    return BaseIndex(index, keys.size, len(memory.removed_entries))


def _load_stored(memory: Memory, stored: Artefact) -> BaseIndex:
    """The stored index, of whatever kind; refused where the memory cannot have had as many entries as it covers."""
    try:
        size, removals = int(stored.info["size"]), int(stored.info.get("removals", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {stored.path} is incomplete ({error!r})") from error
    ever = memory.entries + len(memory.removed_entries) - removals
    keys = FirstKeys(memory.search_keys, min(size, ever))
    if stored.info.get("kind") != NAME:
        return BaseIndex(load_index(stored.path, stored.info, keys), size, removals)
    index = load_native(stored.path, stored.info, keys)
    if native() is None:
        note = f"The index of {memory.path} is read without ibidem's native library, which is slow;"
        warnings.warn(f"{note} `ibidem index -m {memory.path}` builds one for this machine.", stacklevel=3)
    return BaseIndex(index, size, removals)
