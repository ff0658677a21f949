"""Keys as a faiss index sees them, so that keys outside of it can be compared with keys in it.

The distances of an index with codes are those to the coded keys, in the space after its transforms. A key that is
not in it yet is measured in the same way: after the same transforms, and as its code would be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ibidem.retrieve.library import load_faiss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Coded(NamedTuple):
    """Keys [n, d], and what they are after coding [n, d']."""

    keys: NDArray[np.float16]
    coded: NDArray[np.float32]


def transform(index: Any, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Keys or queries [n, d] in the space where the index measures distances."""
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
    """Whether an index measures distances in another space than that of its keys."""
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexRefine):
        return is_transformed(index.refine_index)
    return isinstance(index, faiss.IndexPreTransform)


def recode(index: Any, keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Keys [n, d] as they would be read from the codes of the index, in the space where it measures distances."""
    if not len(keys):
        return transform(index, keys[:0]) if is_transformed(index) else keys
    measured = np.ascontiguousarray(transform(index, keys))
    inner = _coder(index)
    if _keeps_keys(inner):
        return measured
    try:
        codes = inner.sa_encode(measured)
        return np.ascontiguousarray(inner.sa_decode(codes), dtype=np.float32)
    except RuntimeError:  # a kind that cannot code keys alone
        return measured


class Recoder:
    """Keys that came after those of an index as its codes would be read; what was coded once is not coded again.

    Coding a key means comparing it with all lists of the index: that is quick for a pair, and slow for all pairs that
    were added so far.
    """

    def __init__(self, index: Any) -> None:
        self._index = index
        self._sealed: Coded | None = None
        self._tail: Coded | None = None

    def sealed(self, keys: NDArray[np.float16]) -> NDArray[np.float32]:
        """Sealed keys [n, d]: most often those of the last call, and then those of the tail that was sealed."""
        if self._sealed is None or not np.array_equal(keys, self._sealed.keys):
            known = [coded for coded in (self._sealed, self._tail) if coded is not None]
            self._sealed, self._tail = self._coded(keys, known), None
        return self._sealed.coded

    def tail(self, keys: NDArray[np.float16]) -> NDArray[np.float32]:
        """Keys of the tail [n, d]: most often those of the last call, and some more."""
        self._tail = self._coded(keys, [] if self._tail is None else [self._tail])
        return self._tail.coded

    def _coded(self, keys: NDArray[np.float16], known: Sequence[Coded]) -> Coded:
        parts, done = [], 0
        for old in known:
            new = keys[done : done + len(old.keys)]
            other = np.flatnonzero((new != old.keys[: len(new)]).any(axis=1))
            same = int(other[0]) if len(other) else len(new)
            parts.append(old.coded[:same])
            done += same
        rest = recode(self._index, np.ascontiguousarray(keys[done:], dtype=np.float32))
        return Coded(keys, np.concatenate([*parts, rest]) if done else rest)


def _keeps_keys(index: Any) -> bool:
    """Whether the codes of an index say all that keys of float16 say."""
    faiss = load_faiss()
    if isinstance(index, faiss.IndexFlat | faiss.IndexIVFFlat):
        return True
    scalar = isinstance(index, faiss.IndexScalarQuantizer | faiss.IndexIVFScalarQuantizer)
    return scalar and index.sq.qtype == faiss.ScalarQuantizer.QT_fp16


def _coder(index: Any) -> Any:
    """The index whose codes the distances are measured to."""
    faiss = load_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexRefine):
        return _coder(index.refine_index)
    if isinstance(index, faiss.IndexPreTransform):
        return _coder(index.index)
    if isinstance(index, faiss.IndexHNSW | faiss.IndexNSG):
        return _coder(index.storage)
    return index
