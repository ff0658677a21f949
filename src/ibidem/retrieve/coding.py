"""Keys as a faiss index sees them, so that keys outside of it can be compared with keys in it.

The distances of an index with codes are those to the coded keys, in the space after its transforms. A key that is
not in it yet is measured in the same way: after the same transforms, and as its code would be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ibidem.retrieve.library import load_faiss

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    try:
        codes = inner.sa_encode(measured)
        return np.ascontiguousarray(inner.sa_decode(codes), dtype=np.float32)
    except RuntimeError:  # a kind that cannot code keys alone
        return measured


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
