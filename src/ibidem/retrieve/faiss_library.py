"""The faiss library, imported only when it is needed: factory strings, search parameters, seeds, threads and codes."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ibidem.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

EXAMPLE = "IVF1024,SQ8;nprobe=32"
# The k-means of faiss needs this many keys for each list.
KEYS_PER_LIST = 39


def load_faiss() -> Any:
    """Import faiss.

    Raises:
        UsageError: faiss is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise UsageError(
            "This index needs faiss, which is not installed here. Install it with `pip install faiss-cpu`, "
            "or choose the index setting 'exact'."
        ) from error
    return faiss


def has_faiss() -> bool:
    """Return whether faiss can be imported."""
    try:
        load_faiss()
    except UsageError:
        return False
    return True


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Limit the threads of faiss inside the block.

    Args:
        threads: the most threads; None for as many as torch uses.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads() if threads is None else threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def make_index(factory: str, size: int, dimension: int) -> Any:
    """Make the empty faiss index of a factory string.

    Args:
        factory: the factory string.
        size: the number of keys that the index will hold.
        dimension: the number of components of a key.

    Returns:
        The faiss index.

    Raises:
        UsageError: The string is invalid, or has more lists than there are keys.
    """
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
    """Return the message of a faiss error without its place in the C++ source.

    Args:
        error: an exception of faiss.
    """
    return re.sub(r"^Error in .*? at \S+:\d+: ", "", str(error).strip(), flags=re.DOTALL).strip()


def layers(index: Any) -> Iterator[Any]:
    """Yield an index and the indexes it wraps, outermost first, and the coarse quantiser of an IVF last.

    Args:
        index: the faiss index.
    """
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
    """Return the search parameters that an index has.

    Args:
        index: the faiss index.

    Returns:
        Some of 'nprobe', 'ef_search' and 'k_factor'.
    """
    faiss = load_faiss()
    kinds = {faiss.IndexIVF: "nprobe", faiss.IndexHNSW: "ef_search", faiss.IndexRefine: "k_factor"}
    return {name for layer in layers(index) for kind, name in kinds.items() if isinstance(layer, kind)}


def search_parameters(
    index: Any, nprobe: int | None, ef_search: int | None, k_factor: float | None, selector: Any = None
) -> Any:
    """Make the parameter object of one search, so that a search never changes the index.

    Args:
        index: the faiss index.
        nprobe: lists to search; None for the value of the index.
        ef_search: breadth of a graph search; None for the value of the index.
        k_factor: candidates for each neighbour of an index that refines; None for the value of the index.
        selector: a faiss selector of the entries that may be found; None for all.

    Returns:
        The parameters, or None where the index takes none.
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
        lists = min(index.nprobe if nprobe is None else nprobe, index.nlist)
        return faiss.SearchParametersIVF(nprobe=lists, quantizer_params=coarse, **chosen)
    if isinstance(index, faiss.IndexHNSW):
        breadth = index.hnsw.efSearch if ef_search is None else ef_search
        return faiss.SearchParametersHNSW(efSearch=breadth, **chosen)
    return faiss.SearchParameters(**chosen) if chosen else None


def prepare_training(index: Any, seed: int) -> None:
    """Seed the k-means and the graphs of an index, and allow k-means to train on few keys without a warning.

    Polysemous training is disabled: it takes most of the time of a PQ64, and only renumbers PQ centroids for a filter
    that no search here uses.

    Args:
        index: the faiss index, which is changed.
        seed: of k-means and graphs.
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


def transform(index: Any, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Transform keys or queries to the space in which an index measures distances.

    Args:
        index: the faiss index.
        vectors: [n, d].

    Returns:
        [n, d']; the vectors themselves where the index has no transform.
    """
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexRefine):
        return transform(index.refine_index, vectors)
    if not isinstance(index, faiss.IndexPreTransform):
        return vectors
    for number in range(index.chain.size()):
        vectors = faiss.downcast_VectorTransform(index.chain.at(number)).apply(np.ascontiguousarray(vectors))
    return transform(index.index, vectors)


def is_transformed(index: Any) -> bool:
    """Return whether an index measures distances in another space than that of its keys.

    Args:
        index: the faiss index.
    """
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexRefine):
        return is_transformed(index.refine_index)
    return isinstance(index, faiss.IndexPreTransform)


def recode(index: Any, keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Encode and decode keys as an index would, so that keys outside it have distances like the keys in it.

    The distances of an index with codes are those to the decoded keys, after its transforms.

    Args:
        index: the faiss index.
        keys: [n, d].

    Returns:
        [n, d'], in the space in which the index measures distances.
    """
    if not len(keys):
        return transform(index, keys[:0]) if is_transformed(index) else keys
    measured = np.ascontiguousarray(transform(index, keys))
    inner = _codec(index)
    if _is_lossless(inner):
        return measured
    try:
        codes = inner.sa_encode(measured)
        return np.ascontiguousarray(inner.sa_decode(codes), dtype=np.float32)
    except RuntimeError:  # this kind of index cannot encode keys without adding them
        return measured


class _Recoded(NamedTuple):
    """Keys [n, d] and what they are after encoding and decoding [n, d']."""

    keys: NDArray[np.float16]
    decoded: NDArray[np.float32]


class Recoder:
    """Recode keys that were added to a memory after its faiss index was built, each key once.

    Encoding compares a key with all lists of the index. That is fast for one pair, and slow for all pairs that were
    added since the index was built.

    Args:
        index: the faiss index.
    """

    def __init__(self, index: Any) -> None:
        self._index = index
        self._sealed: _Recoded | None = None
        self._tail: _Recoded | None = None

    def sealed(self, keys: NDArray[np.float16]) -> NDArray[np.float32]:
        """Recode the sealed keys that the index does not hold.

        Fast where these are the keys of the last call, followed by those of the tail that were sealed since.

        Args:
            keys: [n, d].

        Returns:
            [n, d'], see `recode`.
        """
        if self._sealed is None or not np.array_equal(keys, self._sealed.keys):
            known = [recoded for recoded in (self._sealed, self._tail) if recoded is not None]
            self._sealed, self._tail = self._recode(keys, known), None
        return self._sealed.decoded

    def tail(self, keys: NDArray[np.float16]) -> NDArray[np.float32]:
        """Recode the keys of the tail.

        Fast where these are the keys of the last call, followed by new ones.

        Args:
            keys: [n, d].

        Returns:
            [n, d'], see `recode`.
        """
        self._tail = self._recode(keys, [] if self._tail is None else [self._tail])
        return self._tail.decoded

    def _recode(self, keys: NDArray[np.float16], known: Sequence[_Recoded]) -> _Recoded:
        parts, done = [], 0
        for old in known:
            new = keys[done : done + len(old.keys)]
            other = np.flatnonzero((new != old.keys[: len(new)]).any(axis=1))
            same = int(other[0]) if len(other) else len(new)
            parts.append(old.decoded[:same])
            done += same
        rest = recode(self._index, np.ascontiguousarray(keys[done:], dtype=np.float32))
        return _Recoded(keys, np.concatenate([*parts, rest]) if done else rest)


def _is_lossless(index: Any) -> bool:
    """Return whether the codes of an index keep float16 keys exactly."""
    faiss = load_faiss()
    if isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat):
        return True
    scalar = isinstance(index, faiss.IndexScalarQuantizer | faiss.IndexIVFScalarQuantizer)
    return scalar and index.sq.qtype == faiss.ScalarQuantizer.QT_fp16


def _codec(index: Any) -> Any:
    """Return the inner index to whose codes the distances are measured."""
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexRefine):
        return _codec(index.refine_index)
    if isinstance(index, faiss.IndexPreTransform):
        return _codec(index.index)
    if isinstance(index, faiss.IndexHNSW | faiss.IndexNSG):
        return _codec(index.storage)
    return index


def _check_lists(factory: str, lists: int, size: int) -> None:
    if 1 <= lists <= size:
        return
    advice = "Use 'exact'"
    if size >= KEYS_PER_LIST:
        advice = f"Use at most {size // KEYS_PER_LIST} lists ({KEYS_PER_LIST} keys a list), or 'auto'"
    raise UsageError(f"The index {factory!r} has {lists} lists, but there are {size} keys. {advice}.")
