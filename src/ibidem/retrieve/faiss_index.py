"""Approximate search by a faiss index: built, tuned, saved beside the memory and loaded again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ibidem.errors import MemoryFolderError, UsageError
from ibidem.retrieve.faiss_library import (
    EXAMPLE,
    layers,
    limit_threads,
    load_faiss,
    make_index,
    prepare_training,
    reason,
    search_parameters,
)
from ibidem.retrieve.index import (
    REBUILD,
    Neighbours,
    blank_unusable,
    check_search,
    check_shape,
    clean_queries,
    write_file,
)
from ibidem.retrieve.index_settings import FaissSettings
from ibidem.retrieve.keys import check_complete, draw_sample, finite
from ibidem.retrieve.recall import draw_probe, recall_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from ibidem.retrieve.keys import Keys

# (stage: 'train', 'add' or 'measure'; done; total)
Progress = Callable[[str, int, int], None]

TRAIN_PER_LIST = 64
TRAIN_AT_LEAST = 65_536
TRAIN_AT_MOST = 2**20
MOST_NPROBE = 512
RECALL_SAMPLES = 256

_ADD_ELEMENTS = 2**22


@dataclass(frozen=True)
class FaissIndex:
    """A faiss index and its search parameters.

    Distances are those of faiss: to the decoded keys, so approximate where the codes are.

    Attributes:
        index: the faiss index.
        settings: how it was built and is searched.
        recall: recall@16, None if it was not measured.
        threads: the most threads of a search; None for as many as torch uses.
        selector: a faiss selector of the entries that may be found; None for all.
    """

    index: Any
    settings: FaissSettings
    recall: float | None = None
    threads: int | None = None
    selector: Any = None

    @property
    def supports_cuda_graph(self) -> bool:
        """False: faiss searches on the CPU."""
        return False

    @property
    def size(self) -> int:
        """The number of keys."""
        return int(self.index.ntotal)

    @property
    def dimension(self) -> int:
        """The number of components of a key."""
        return int(self.index.d)

    @property
    def description(self) -> str:
        """One line for memory cards and logs."""
        parts = [f"faiss {self.settings.factory}", f"{self.size} keys of {self.dimension} dimensions"]
        for name in ("nprobe", "ef_search", "k_factor"):
            value = getattr(self.settings, name)
            parts += [] if value is None else [f"{name} {value:g}"]
        parts += [] if self.recall is None else [f"recall@16 {self.recall:.3f}"]
        return ", ".join(parts)

    def search(self, queries: Tensor, k: int) -> Neighbours:
        """Find about the k nearest keys of each query [q, d]; see `Index.search`."""
        check_search(queries, k, self.dimension)
        clean, usable = clean_queries(queries.cpu())
        settings = self.settings
        parameters = search_parameters(
            self.index, settings.nprobe, settings.ef_search, settings.k_factor, self.selector
        )
        distances = np.full((len(clean), k), np.inf, dtype=np.float32)
        entries = np.full((len(clean), k), -1, dtype=np.int64)
        # Some faiss indexes (fast scan, refine) fail for k above the number of keys.
        width = min(k, self.size)
        if width and len(clean):
            with limit_threads(self.threads):
                found = self.index.search(np.ascontiguousarray(clean.numpy()), width, params=parameters)
            distances[:, :width], entries[:, :width] = found
        squares = torch.from_numpy(distances).clamp_(min=0).masked_fill_(torch.from_numpy(entries < 0), torch.inf)
        neighbours = blank_unusable(squares, torch.from_numpy(entries), usable)
        return Neighbours(neighbours.distances.to(queries.device), neighbours.entries.to(queries.device))

    def without(self, entries: NDArray[np.int64]) -> FaissIndex | None:
        """Return an index that does not find these entries; None where this kind of faiss index has no selector."""
        visible = np.ones(self.size, np.uint8)
        visible[entries] = 0
        selector = load_faiss().IDSelectorBitmap(np.packbits(visible, bitorder="little"))
        filtered = replace(self, selector=selector)
        try:
            filtered.search(torch.zeros(1, self.dimension), 1)
        except RuntimeError:
            return None
        return filtered

    def save(self, path: str | Path) -> dict[str, Any]:
        """Write the index to a file, atomically.

        Args:
            path: the file to write or replace.

        Returns:
            The description that `load_faiss_index` needs, for JSON.

        Raises:
            MemoryFolderError: The file cannot be written.
        """
        faiss = load_faiss()

        def write(target: Path) -> None:
            try:
                faiss.write_index(self.index, str(target))
            except RuntimeError as error:
                raise OSError(reason(error)) from error

        write_file(Path(path), write)
        return {
            "kind": "faiss",
            "factory": self.settings.factory,
            "nprobe": self.settings.nprobe,
            "ef_search": self.settings.ef_search,
            "k_factor": self.settings.k_factor,
            "notes": list(self.settings.notes),
            "size": self.size,
            "dimension": self.dimension,
            "recall": self.recall,
            "faiss": faiss.__version__,
        }


def load_faiss_index(
    path: str | Path, info: Mapping[str, Any], keys: Keys, *, threads: int | None = None
) -> FaissIndex:
    """Read an index that `FaissIndex.save` wrote.

    Args:
        path: the file.
        info: the description that `save` returned.
        keys: the keys that the index must have been built from.
        threads: the most threads of a search; None for as many as torch uses.

    Returns:
        The index.

    Raises:
        MemoryFolderError: The file or its description is damaged, or belongs to other keys.
    """
    faiss = load_faiss()
    try:
        settings = FaissSettings(
            factory=str(info["factory"]),
            nprobe=_optional(info["nprobe"], int),
            ef_search=_optional(info["ef_search"], int),
            k_factor=_optional(info["k_factor"], float),
            notes=tuple(str(note) for note in info["notes"]),
        )
        recall = _optional(info["recall"], float, least=0)
        size, dimension = int(info["size"]), int(info["dimension"])
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFolderError(f"The description of the index {path} is incomplete ({error!r}). {REBUILD}.") from error
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise MemoryFolderError(f"The index {path} cannot be read: {reason(error)}. {REBUILD}.") from error
    check_shape(f"description of the index {path}", size, dimension, keys)
    check_shape(f"file of the index {path}", index.ntotal, index.d, keys)
    return FaissIndex(index, settings, recall, threads)


def build_faiss(keys: Keys, settings: FaissSettings, *, seed: int, threads: int | None, report: Progress) -> FaissIndex:
    """Build a faiss index over all keys in bounded memory, and raise nprobe until it reaches its target recall.

    Args:
        keys: the keys, at least one.
        settings: the index to build.
        seed: of training and of the measurement.
        threads: the most threads; None for as many as torch uses. Graphs (HNSW, NSG) are built on one thread, since
            on more they depend on the order in which threads finish.
        report: called with the stage, the keys done and the keys in total.

    Returns:
        The index, the same for the same keys, settings, seed, threads and faiss version.

    Raises:
        UsageError: faiss cannot build this index.
        MemoryFolderError: A key is not finite or missing.
    """
    try:
        index = _fill(keys, settings, seed, threads, report)
    except RuntimeError as error:
        raise UsageError(
            f"faiss could not build {settings.factory!r} over {keys.size} keys of {keys.dimension} "
            f"dimensions: {reason(error)}. Choose 'auto', or a setting like {EXAMPLE!r}."
        ) from error
    return _tune(FaissIndex(index, settings, threads=threads), keys, seed, report)


def _fill(keys: Keys, settings: FaissSettings, seed: int, threads: int | None, report: Progress) -> Any:
    """Train an empty index on a sample and add all keys, block by block."""
    faiss = load_faiss()
    index = make_index(settings.factory, keys.size, keys.dimension)
    prepare_training(index, seed)
    # The graph of an IVF holds only its centroids, and `_train` builds it.
    graph = any(isinstance(layer, faiss.IndexHNSW | faiss.IndexNSG) for layer in layers(index))
    own_graph = graph and not isinstance(index, faiss.IndexIVF)
    with limit_threads(1 if own_graph else threads):
        if not index.is_trained:
            lists = max((layer.nlist for layer in layers(index) if hasattr(layer, "nlist")), default=1)
            wanted = min(max(TRAIN_PER_LIST * lists, TRAIN_AT_LEAST), max(TRAIN_AT_MOST, lists), keys.size)
            sample = finite(draw_sample(keys, wanted, seed), None)
            report("train", 0, len(sample))
            _train(index, sample)
            report("train", len(sample), len(sample))
        rows = max(1, _ADD_ELEMENTS // keys.dimension)
        for block in keys.blocks(rows):
            index.add(finite(block, index.ntotal))
            report("add", index.ntotal, keys.size)
    check_complete(keys, index.ntotal)
    return index


def _train(index: Any, sample: NDArray[np.float32]) -> None:
    """Train an index; if a graph finds the lists of an IVF, build it on one thread."""
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
    """Measure recall, and double nprobe until the target is reached or recall stops growing."""
    target, nprobe = index.settings.target_recall, index.settings.nprobe
    report("measure", 0, 1)
    probe = draw_probe(keys, k=16, samples=RECALL_SAMPLES, seed=seed)
    recall = recall_at(index, keys, probe)
    while target is not None and nprobe is not None and recall < target and nprobe < MOST_NPROBE:
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


def _optional(value: Any, kind: type[Any], least: int = 1) -> Any:
    if value is None:
        return None
    number = kind(value)
    if not number >= least:
        raise ValueError(f"{value!r} is below {least}")
    return number
