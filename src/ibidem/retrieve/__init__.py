"""Nearest neighbours among a memory's keys: one Index protocol, exact in torch, approximate in faiss or native code."""

from __future__ import annotations

from ibidem.retrieve.approximate import FaissIndex, load_index
from ibidem.retrieve.building import build_index
from ibidem.retrieve.compacted import CompactedIndex, accept_states, compactor_of
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.hiding import hide
from ibidem.retrieve.ivf import NativeIndex, NativeSettings, load_native
from ibidem.retrieve.joined import JoinedIndex, exact_part, main_part
from ibidem.retrieve.keys import ArrayKeys, Keys
from ibidem.retrieve.lists import ListIndex
from ibidem.retrieve.neighbours import Index, Neighbours
from ibidem.retrieve.opening import open_index, open_sealed
from ibidem.retrieve.recall import measure_recall
from ibidem.retrieve.scan import ScanIndex, exact_index
from ibidem.retrieve.sealed import SealedIndex, join
from ibidem.retrieve.settings import ExactSettings, FaissSettings, resolve

__all__ = [
    "ArrayKeys",
    "CompactedIndex",
    "ExactIndex",
    "ExactSettings",
    "FaissIndex",
    "FaissSettings",
    "Index",
    "JoinedIndex",
    "Keys",
    "ListIndex",
    "NativeIndex",
    "NativeSettings",
    "Neighbours",
    "ScanIndex",
    "SealedIndex",
    "accept_states",
    "build_index",
    "compactor_of",
    "exact_index",
    "exact_part",
    "hide",
    "join",
    "load_index",
    "load_native",
    "main_part",
    "measure_recall",
    "open_index",
    "open_sealed",
    "resolve",
]
