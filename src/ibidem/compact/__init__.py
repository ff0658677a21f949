"""From keys to the compact space: the Compact Network and its linear rivals, applied and stored."""

from ibidem.compact.application import compact_keys
from ibidem.compact.compactor import Compactor
from ibidem.compact.linear import LinearCompactor
from ibidem.compact.native import NativeCompactor, place_compactor
from ibidem.compact.network import ACTIVATIONS, NetworkCompactor
from ibidem.compact.storing import load_compactor, read_notes, restore_compactor, store_compactor

__all__ = [
    "ACTIVATIONS",
    "Compactor",
    "LinearCompactor",
    "NativeCompactor",
    "NetworkCompactor",
    "compact_keys",
    "load_compactor",
    "place_compactor",
    "read_notes",
    "restore_compactor",
    "store_compactor",
]
