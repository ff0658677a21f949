"""Nearest neighbours among a memory's keys: one Index protocol, exact in torch, approximate in faiss or native code."""

from __future__ import annotations

from ibidem.retrieve.approximate import FaissIndex, load_index
from ibidem.retrieve.building import build_index
from ibidem.retrieve.compacted import INDEX_ARTEFACT, CompactedIndex, accept_states, compactor_of
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.held import check_device
from ibidem.retrieve.hiding import hide
from ibidem.retrieve.ivf import NativeIndex, NativeSettings, load_native
from ibidem.retrieve.joined import CompositeIndex, IndexPart, exact_part, main_part
from ibidem.retrieve.keys import ArrayKeys, Keys
from ibidem.retrieve.lists import ListIndex
from ibidem.retrieve.neighbours import Index, Neighbours
from ibidem.retrieve.opening import open_index, open_sealed
from ibidem.retrieve.recall import measure_recall
from ibidem.retrieve.scan import ScanIndex, exact_index
from ibidem.retrieve.sealed import BaseIndex, join
from ibidem.retrieve.settings import EXACT_BELOW, ExactSettings, FaissSettings, is_for_gpu, resolve

__all__ = [
    "EXACT_BELOW",
    "INDEX_ARTEFACT",
    "ArrayKeys",
    "BaseIndex",
    "CompactedIndex",
    "CompositeIndex",
    "ExactIndex",
    "ExactSettings",
    "FaissIndex",
    "FaissSettings",
    "Index",
    "IndexPart",
    "Keys",
    "ListIndex",
    "NativeIndex",
    "NativeSettings",
    "Neighbours",
    "ScanIndex",
    "accept_states",
    "build_index",
    "check_device",
    "compactor_of",
    "exact_index",
    "exact_part",
    "hide",
    "is_for_gpu",
    "join",
    "load_index",
    "load_native",
    "main_part",
    "measure_recall",
    "open_index",
    "open_sealed",
    "resolve",
]
