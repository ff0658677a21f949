"""Compactors, which map keys to the compact space: the Compact Network, PCA and SVD."""

from ibidem.compact.compactors import (
    ACTIVATIONS,
    Compactor,
    LinearCompactor,
    NativeCompactor,
    NetworkCompactor,
    compact_keys,
    place_compactor,
)
from ibidem.compact.storage import (
    GENERAL_COMPACTOR,
    is_general,
    load_compactor,
    read_notes,
    restore_compactor,
    store_compactor,
)

__all__ = [
    "ACTIVATIONS",
    "GENERAL_COMPACTOR",
    "Compactor",
    "LinearCompactor",
    "NativeCompactor",
    "NetworkCompactor",
    "compact_keys",
    "is_general",
    "load_compactor",
    "place_compactor",
    "read_notes",
    "restore_compactor",
    "store_compactor",
]
