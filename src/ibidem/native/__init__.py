"""C++ kernels for the work of a decoding step: optional, called by ctypes, and equal to their torch counterparts."""

from ibidem.native.beams import NativeBeams
from ibidem.native.combiner import Best, CombinerKernel, best_of_mixture
from ibidem.native.compactor import CompactorKernel
from ibidem.native.engine import (
    Activation,
    EncoderLayer,
    Layer,
    NativeDecoder,
    NativeEncoder,
    NativeLinear,
    NativeSteps,
    Norm,
)
from ibidem.native.ivf import (
    COARSE_BITS,
    EMPTY_NORM,
    EMPTY_NORM_HALF,
    FINE_BITS,
    LANES,
    MOST_DIMENSIONS,
    Centroids,
    Coding,
    Ivf,
    Lists,
    SearchLimits,
    StoredKeys,
    arrange,
    block_bytes,
    code_block_bytes,
    pack_centroids,
)
from ibidem.native.library import has_triton, loaded_instructions, native, runs_triton
from ibidem.native.step import RetrievalPolicy, RetrievalStep, look_up

__all__ = [
    "COARSE_BITS",
    "EMPTY_NORM",
    "EMPTY_NORM_HALF",
    "FINE_BITS",
    "LANES",
    "MOST_DIMENSIONS",
    "Activation",
    "Best",
    "Centroids",
    "Coding",
    "CombinerKernel",
    "CompactorKernel",
    "EncoderLayer",
    "Ivf",
    "Layer",
    "Lists",
    "NativeBeams",
    "NativeDecoder",
    "NativeEncoder",
    "NativeLinear",
    "NativeSteps",
    "Norm",
    "RetrievalPolicy",
    "RetrievalStep",
    "SearchLimits",
    "StoredKeys",
    "arrange",
    "best_of_mixture",
    "block_bytes",
    "code_block_bytes",
    "has_triton",
    "loaded_instructions",
    "look_up",
    "native",
    "pack_centroids",
    "runs_triton",
]
