"""Building the index that a setting asks for, in bounded memory and the same for the same seed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve.approximate import FaissIndex
from ibidem.retrieve.held import check_device
from ibidem.retrieve.ivf import NativeSettings, build_native
from ibidem.retrieve.keys import finite
from ibidem.retrieve.library import (
    EXAMPLE,
    layers,
    limit_threads,
    load_faiss,
    make_index,
    prepare_training,
    reason,
)
from ibidem.retrieve.lists import ListIndex
from ibidem.retrieve.recall import draw_probe, recall_at
from ibidem.retrieve.scan import ScanIndex, exact_index, holds_halves
from ibidem.retrieve.settings import ExactSettings, FaissSettings, ListSettings, resolve

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from numpy.typing import NDArray

    from ibidem.retrieve.keys import Keys
    from ibidem.retrieve.neighbours import Index

# (stage: 'train', 'add' or 'measure'; done; total)
Progress = Callable[[str, int, int], None]

TRAIN_PER_LIST = 64
TRAIN_AT_LEAST = 65_536
TRAIN_AT_MOST = 2**20
MOST_PROBES = 512
RECALL_SAMPLES = 256
CODED_RECALL = 0.99
LIST_RECALL = 0.99

_ADD_ELEMENTS = 2**22
_LIST_PROBES = 32
# Looking into more than one list in so many costs as much as looking into all.
_LEAST_SAVING = 4


def build_index(
    keys: Keys,
    setting: str,
    *,
    seed: int,
    threads: int | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> Index:
    """Build the index of a setting (see `resolve`) over all keys.

    threads: for building and searching on the CPU, given None all that torch has; device: where exact search runs;
    scratch: a folder for what does not fit into memory, given None the system's. What may miss a neighbour says how
    many it finds: recall@16 is measured against exact search, on a sample.
    The same keys, setting, seed, threads and faiss give the same index: graphs (HNSW, NSG) are built on one
    thread, since on more they depend on which came first.
    """
    settings = resolve(setting, keys.size, keys.dimension, device=device)
    if isinstance(settings, ExactSettings):
        for note in settings.notes:
            warnings.warn(note, stacklevel=2)
        place = check_device(device)
        return (
            coded_index(keys, place, seed)
            if settings.coded and holds_halves(keys, place, 2)
            else exact_index(keys, place)
        )
    if keys.size == 0:
        raise UsageError(f"The memory is empty, so there is nothing to build {setting!r} from. Use 'exact'.")
    if isinstance(settings, ListSettings):
        place = check_device(device)
        return list_index(keys, settings, place, seed) if holds_halves(keys, place, 4) else exact_index(keys, place)
    report = progress or (lambda _stage, _done, _total: None)
    if isinstance(settings, NativeSettings):
        return build_native(keys, settings, seed=seed, threads=threads, report=report, scratch=scratch)
    try:
        index = _fill(keys, settings, seed, threads, report)
    except RuntimeError as error:
        raise UsageError(
            f"faiss could not build {settings.factory!r} over {keys.size} keys of {keys.dimension} "
            f"dimensions: {reason(error)}. Choose 'auto', or a setting like {EXAMPLE!r}."
        ) from error
    return _tune(FaissIndex(index, settings, threads=threads), keys, seed, report)


def coded_index(keys: Keys, device: torch.device, seed: int) -> Index:
    """A scan of int8 codes, where it finds nearly all that the scan of the keys themselves finds; else that one."""
    index = ScanIndex(keys, device, coded=True)
    plain = index.without_codes()
    if keys.size == 0:
        return plain
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed, exact=plain)
    recall = recall_at(index, keys, probe)
    if recall >= CODED_RECALL:
        return index
    note = f"int8 codes of these keys find {recall:.3f} of the 16 nearest, below {CODED_RECALL}: the search is exact."
    warnings.warn(note, stacklevel=3)
    return plain


def list_index(keys: Keys, settings: ListSettings, device: torch.device, seed: int) -> Index:
    """Lists on a device, so many of them looked into as find nearly all that an exact scan finds; else that scan."""
    given = settings.nprobe
    exact = ScanIndex(keys, device)
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed, exact=exact)
    index = ListIndex(
        keys,
        device,
        lists=settings.lists,
        nprobe=given or _LIST_PROBES,
        seed=seed,
        code_bytes=settings.code_bytes,
    )
    recall = recall_at(index, keys, probe)
    while given is None and recall < LIST_RECALL and index.nprobe < index.lists // _LEAST_SAVING:
        index = index.probing(round(index.nprobe * 2**0.5))
        recall = recall_at(index, keys, probe)
    if given is not None or recall >= LIST_RECALL:
        return index.probing(index.nprobe, recall)
    note = (
        f"Looking into {index.nprobe} of {index.lists} lists finds {recall:.3f} of the 16 nearest, below {LIST_RECALL}:"
    )
    warnings.warn(f"{note} the search is exact.", stacklevel=3)
    return exact


def _fill(keys: Keys, settings: FaissSettings, seed: int, threads: int | None, report: Progress) -> Any:
    """Train an empty index on a sample and add all keys, block by block."""
    faiss = load_faiss()
    index = make_index(settings.factory, keys.size, keys.dimension)
    prepare_training(index, seed)
    # An IVF's own graph is over its few centroids, and `_train` sees to it.
    graph = any(isinstance(layer, faiss.IndexHNSW | faiss.IndexNSG) for layer in layers(index))
    own_graph = graph and not isinstance(index, faiss.IndexIVF)
    with limit_threads(1 if own_graph else threads):
        if not index.is_trained:
            sample = _draw_sample(keys, index, seed)
            report("train", 0, len(sample))
            _train(index, sample)
            report("train", len(sample), len(sample))
        rows = max(1, _ADD_ELEMENTS // keys.dimension)
        for block in keys.blocks(rows):
            index.add(finite(block, index.ntotal))
            report("add", index.ntotal, keys.size)
    if index.ntotal != keys.size:
        raise MemoryFolderError(
            f"The keys should be {keys.size}, but {index.ntotal} were read. Check the memory with `ibidem verify`."
        )
    return index


def _draw_sample(keys: Keys, index: Any, seed: int) -> NDArray[np.float32]:
    """Draw the keys to train on, [n, d] float32, in the order of their entries."""
    lists = max((layer.nlist for layer in layers(index) if hasattr(layer, "nlist")), default=1)
    wanted = min(max(TRAIN_PER_LIST * lists, TRAIN_AT_LEAST), max(TRAIN_AT_MOST, lists), keys.size)
    ids = np.sort(np.random.default_rng(seed).choice(keys.size, wanted, replace=False, shuffle=False))
    return finite(keys.gather(ids), None)


def _train(index: Any, sample: NDArray[np.float32]) -> None:
    """Train an index; where the lists of an IVF are found by a graph, build that on one thread."""
    faiss = load_faiss()
    graph = faiss.downcast_index(index.quantizer) if isinstance(index, faiss.IndexIVF) else None
    if isinstance(graph, faiss.IndexHNSW):
        clustering = faiss.Clustering(index.d, index.nlist, index.cp)
        clustering.train(sample, faiss.IndexFlatL2(index.d))
        centroids = faiss.vector_to_array(clustering.centroids).reshape(index.nlist, index.d)
        with limit_threads(1):
            graph.add(centroids)
    index.train(sample)


def _tune(index: FaissIndex, keys: Keys, seed: int, report: Progress) -> FaissIndex:
    """Measure recall, and double nprobe until the target is reached, or looking into more lists no longer helps."""
    target, nprobe = index.settings.target_recall, index.settings.nprobe
    report("measure", 0, 1)
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed)
    recall = recall_at(index, keys, probe)
    while target is not None and nprobe is not None and recall < target and nprobe < MOST_PROBES:
        wider = replace(index, settings=replace(index.settings, nprobe=2 * nprobe))
        found = recall_at(wider, keys, probe)
        if found <= recall:
            break
        index, recall, nprobe = wider, found, 2 * nprobe
    report("measure", 1, 1)
    notes = index.settings.notes
    if target is not None and recall < target:
        notes += (f"recall@16 is {recall:.3f}, below {target}: the setting 'exact' finds every neighbour.",)
    return replace(index, recall=recall, settings=replace(index.settings, notes=notes))
