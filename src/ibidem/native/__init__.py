"""Kernels in C++ for what a decoding step does most: optional, called by ctypes, equal to their torch counterparts."""

from ibidem.native.beams import NativeBeams
from ibidem.native.compactor import NativeCompactor
from ibidem.native.consultation import Asking, NativeConsultation
from ibidem.native.decoder import Layer, NativeDecoder, NativeSteps, Norm
from ibidem.native.encoder import EncoderLayer, NativeEncoder
from ibidem.native.ivf import (
    COARSE_BITS,
    FINE_BITS,
    LANES,
    MOST_DIMENSIONS,
    NOTHING,
    NOTHING_HALF,
    Centroids,
    Coding,
    Ivf,
    Lists,
    Probing,
    arrange,
    block_bytes,
    code_block_bytes,
    pack_centroids,
)
from ibidem.native.library import native
from ibidem.native.linear import Activation, NativeLinear
from ibidem.native.lookup import look_up
from ibidem.native.metak import NativeMetaK
from ibidem.native.mixture import Best, best_of_mixture
from ibidem.native.triton import has_triton, runs_triton

__all__ = [
    "COARSE_BITS",
    "FINE_BITS",
    "LANES",
    "MOST_DIMENSIONS",
    "NOTHING",
    "NOTHING_HALF",
    "Activation",
    "Asking",
    "Best",
    "Centroids",
    "Coding",
    "EncoderLayer",
    "Ivf",
    "Layer",
    "Lists",
    "NativeBeams",
    "NativeCompactor",
    "NativeConsultation",
    "NativeDecoder",
    "NativeEncoder",
    "NativeLinear",
    "NativeMetaK",
    "NativeSteps",
    "Norm",
    "Probing",
    "arrange",
    "best_of_mixture",
    "block_bytes",
    "code_block_bytes",
    "has_triton",
    "look_up",
    "native",
    "pack_centroids",
    "runs_triton",
]
