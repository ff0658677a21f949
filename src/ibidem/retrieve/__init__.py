"""Nearest neighbours among a memory's keys: one Index protocol, exact in torch, approximate in faiss or native code."""

from __future__ import annotations

from ibidem.retrieve.approximate import FaissIndex, load_index
from ibidem.retrieve.building import build_index
from ibidem.retrieve.compacted import CompactedIndex, accept_states, compactor_of
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.ivf import NativeIndex, NativeSettings, load_native
from ibidem.retrieve.keys import ArrayKeys, Keys
from ibidem.retrieve.neighbours import Index, Neighbours
from ibidem.retrieve.opening import open_index
from ibidem.retrieve.recall import measure_recall
from ibidem.retrieve.scan import ScanIndex, exact_index
from ibidem.retrieve.settings import ExactSettings, FaissSettings, resolve

__all__ = [
    "ArrayKeys",
    "CompactedIndex",
    "ExactIndex",
    "ExactSettings",
    "FaissIndex",
    "FaissSettings",
    "Index",
    "Keys",
    "NativeIndex",
    "NativeSettings",
    "Neighbours",
    "ScanIndex",
    "accept_states",
    "build_index",
    "compactor_of",
    "exact_index",
    "load_index",
    "load_native",
    "measure_recall",
    "open_index",
    "resolve",
]
