"""Nearest neighbours among the keys of a memory: one `Index` protocol, with exact, faiss, native and GPU search."""

from __future__ import annotations

from ibidem.retrieve.builder import build_index
from ibidem.retrieve.exact import ExactIndex
from ibidem.retrieve.faiss_index import FaissIndex, load_faiss_index
from ibidem.retrieve.gpu.lists import ListIndex
from ibidem.retrieve.gpu.scan import ScanIndex
from ibidem.retrieve.index import Index, Neighbours
from ibidem.retrieve.index_settings import (
    EXACT_BELOW,
    FaissSettings,
    NativeSettings,
    is_for_gpu,
    resolve,
)
from ibidem.retrieve.ivf.index import NativeIndex, load_native
from ibidem.retrieve.keys import ArrayKeys, Floats, Keys, RangeKeys, check_device
from ibidem.retrieve.memory_index import (
    BaseIndex,
    CompactedIndex,
    IndexPart,
    compactor_of,
    exact_part,
    join,
    open_base_index,
    open_index,
    parted_base,
    with_compactor,
)
from ibidem.retrieve.parts import (
    MOST_PARTS,
    NOTHING_HIDDEN,
    Found,
    Hidden,
    IndexPlan,
    LoadedPart,
    LocalParts,
    PartedIndex,
    PartPlan,
    PartSearcher,
    Rows,
    contents_digest,
    divide,
    load_part,
    noted_missing,
    plan_digest,
    plan_part,
    read_plan,
)
from ibidem.retrieve.recall import measure_recall

__all__ = [
    "EXACT_BELOW",
    "MOST_PARTS",
    "NOTHING_HIDDEN",
    "ArrayKeys",
    "BaseIndex",
    "CompactedIndex",
    "ExactIndex",
    "FaissIndex",
    "FaissSettings",
    "Floats",
    "Found",
    "Hidden",
    "Index",
    "IndexPart",
    "IndexPlan",
    "Keys",
    "ListIndex",
    "LoadedPart",
    "LocalParts",
    "NativeIndex",
    "NativeSettings",
    "Neighbours",
    "PartPlan",
    "PartSearcher",
    "PartedIndex",
    "RangeKeys",
    "Rows",
    "ScanIndex",
    "build_index",
    "check_device",
    "compactor_of",
    "contents_digest",
    "divide",
    "exact_part",
    "is_for_gpu",
    "join",
    "load_faiss_index",
    "load_native",
    "load_part",
    "measure_recall",
    "noted_missing",
    "open_base_index",
    "open_index",
    "parted_base",
    "plan_digest",
    "plan_part",
    "read_plan",
    "resolve",
    "with_compactor",
]
