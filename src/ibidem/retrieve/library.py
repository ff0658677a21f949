"""The faiss library, imported only when it is needed: factory strings, search parameters, seeds, threads."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = "IVF1024,SQ8;nprobe=32"
KEYS_PER_LIST = 39


def load_faiss() -> Any:
    """Import faiss, or say how to install it."""
    try:
        import faiss
    except ImportError as error:
        raise UsageError(
            "This index needs faiss, which is not installed here. Install it with `pip install faiss-cpu`, "
            "or choose the index setting 'exact'."
        ) from error
    return faiss


def has_faiss() -> bool:
    """Say whether faiss can be imported."""
    try:
        load_faiss()
    except UsageError:
        return False
    return True


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Let faiss use this many threads inside the block (given None: as many as torch, which it takes turns with)."""
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads() if threads is None else threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def make_index(factory: str, size: int, dimension: int) -> Any:
    """Make the empty faiss index of a factory string for size keys, or say what is wrong with the string."""
    faiss = load_faiss()
    lists = re.search(r"(?:^|,)IVF(\d+)([kM]?)", factory)
    if lists:
        _check_lists(factory, int(lists[1]) * {"": 1, "k": 1024, "M": 1024**2}[lists[2]], size)
    if re.search(r"[A-Za-z]0+(?!\d)", factory):
        raise UsageError(f"The index setting {factory!r} has a zero in it. A valid one is {EXAMPLE!r}.")
    try:
        index = faiss.index_factory(dimension, factory)
    except (RuntimeError, MemoryError) as error:
        raise UsageError(
            f"faiss cannot make the index {factory!r} for keys of {dimension} dimensions: {reason(error)}. "
            f"A valid setting is {EXAMPLE!r}; the bytes of a PQ must divide the dimensions."
        ) from error
    if isinstance(index, faiss.IndexLSH | faiss.IndexIDMap):
        raise UsageError(
            f"The index {factory!r} does not give squared distances to numbered keys. Choose another, like {EXAMPLE!r}."
        )
    return index


def reason(error: Exception) -> str:
    """Reduce a faiss error to what it says after the C++ place."""
    return re.sub(r"^Error in .*? at \S+:\d+: ", "", str(error).strip(), flags=re.DOTALL).strip()


def layers(index: Any) -> Iterator[Any]:
    """Give an index and the indexes it wraps, outermost first, and the quantiser of an IVF last."""
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    yield index
    if isinstance(index, faiss.IndexPreTransform):
        yield from layers(index.index)
    elif isinstance(index, faiss.IndexRefine):
        yield from layers(index.base_index)
    elif isinstance(index, faiss.IndexIVF):
        yield from layers(index.quantizer)


def parameter_names(index: Any) -> set[str]:
    """Say which search parameters mean something to an index."""
    faiss = load_faiss()
    kinds = {faiss.IndexIVF: "nprobe", faiss.IndexHNSW: "ef_search", faiss.IndexRefine: "k_factor"}
    return {name for layer in layers(index) for kind, name in kinds.items() if isinstance(layer, kind)}


def search_parameters(
    index: Any, nprobe: int | None, ef_search: int | None, k_factor: float | None, selector: Any = None
) -> Any:
    """Make the parameters of one search, so that the index is never changed; None where it takes none.

    selector: a faiss selector of the entries that may be found.
    """
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    chosen = {} if selector is None else {"sel": selector}
    if isinstance(index, faiss.IndexPreTransform):
        inner = search_parameters(index.index, nprobe, ef_search, k_factor, selector)
        return faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        inner = search_parameters(index.base_index, nprobe, ef_search, k_factor, selector)
        factor = index.k_factor if k_factor is None else k_factor
        return faiss.IndexRefineSearchParameters(k_factor=factor, base_index_params=inner)
    if isinstance(index, faiss.IndexIVF):
        coarse = search_parameters(index.quantizer, None, ef_search, None)
        probes = min(index.nprobe if nprobe is None else nprobe, index.nlist)
        return faiss.SearchParametersIVF(nprobe=probes, quantizer_params=coarse, **chosen)
    if isinstance(index, faiss.IndexHNSW):
        breadth = index.hnsw.efSearch if ef_search is None else ef_search
        return faiss.SearchParametersHNSW(efSearch=breadth, **chosen)
    return faiss.SearchParameters(**chosen) if chosen else None


def prepare_training(index: Any, seed: int) -> None:
    """Seed the k-means and the graphs of an index, and let k-means train on few keys without a warning.

    Polysemous training is left out: it only renumbers PQ centroids, for a filter that no search here uses,
    and takes 2 s a code byte whatever the number of keys, most of the time of a PQ64.
    """
    faiss = load_faiss()
    for layer in layers(index):
        clusterings = [layer.cp] if isinstance(layer, faiss.IndexIVF) else []
        if isinstance(layer, faiss.IndexIVFPQ | faiss.IndexPQ):
            clusterings.append(layer.pq.cp)
            layer.do_polysemous_training = False
        for clustering in clusterings:
            clustering.seed = seed
            clustering.min_points_per_centroid = 1
        if isinstance(layer, faiss.IndexHNSW):
            layer.hnsw.rng = faiss.RandomGenerator(seed)


def _check_lists(factory: str, lists: int, size: int) -> None:
    if 1 <= lists <= size:
        return
    advice = "Use 'exact'"
    if size >= KEYS_PER_LIST:
        advice = f"Use at most {size // KEYS_PER_LIST} lists ({KEYS_PER_LIST} keys a list), or 'auto'"
    raise UsageError(f"The index {factory!r} has {lists} lists, but there are {size} keys. {advice}.")
