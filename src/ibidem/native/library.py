"""The native library: found beside this file, checked against the CPU, given torch's threads, called by ctypes.

It is optional. Where it was not built, the CPU lacks the instructions, or IBIDEM_NATIVE=0 is set, `native()` is None
and callers take their other way, which does the same in torch or faiss. IBIDEM_NATIVE=avx2 takes that build on a CPU
that could do more. IBIDEM_NATIVE_FOLDER names another folder with builds, such as those with sanitizers.

AMX is never used: machines exist whose CPU announces it and whose system makes it an illegal instruction.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

# The best first.
BUILDS = ("avx512", "avx2")
# As `ibidem_interface` in native/library.cpp.
_INTERFACE = 12
_FOLDER = Path(os.environ.get("IBIDEM_NATIVE_FOLDER") or Path(__file__).parent)

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ibidem_linear_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _LONG, _LONG]),
    "ibidem_linear_free": (None, [_POINTER]),
    "ibidem_linear_apply": (_INT, [_POINTER, _POINTER, _LONG, _INT, _POINTER, _INT]),
    "ibidem_encode": (_INT, [_POINTER, _POINTER, _POINTER, _LONG, _LONG, _POINTER, _INT]),
    "ibidem_decoding_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _LONG, _LONG, _LONG]),
    "ibidem_decoding_free": (None, [_POINTER]),
    "ibidem_decoding_step": (_INT, [_POINTER, _POINTER, _POINTER, _POINTER, _INT]),
    "ibidem_decoding_reorder": (_INT, [_POINTER, _POINTER, _LONG]),
    "ibidem_ivf_search": (
        _INT,
        [*[_POINTER] * 4, *(_LONG, _LONG), *(_POINTER, _POINTER, _INT)],
    ),
    "ibidem_ivf_assign": (_INT, [_POINTER, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _INT]),
    "ibidem_ivf_pack_tree": (
        _INT,
        [_POINTER, _POINTER, _LONG, *(_POINTER, _POINTER, _LONG) * 2, *[_POINTER] * 3, _INT],
    ),
    "ibidem_ivf_pack_lists": (_INT, [_POINTER, _POINTER, _POINTER, _POINTER, _INT]),
    "ibidem_ivf_arrange": (_INT, [_POINTER, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _INT]),
    "ibidem_compactor_new": (_POINTER, [*[_POINTER] * 4, *[_LONG] * 3, _INT, _INT]),
    "ibidem_compactor_free": (None, [_POINTER]),
    "ibidem_compactor_apply": (_INT, [_POINTER, _POINTER, _LONG, _POINTER, _INT]),
    "ibidem_consult": (_INT, [*(_POINTER, _POINTER, _LONG, _LONG), *[_POINTER] * 5, _INT]),
    "ibidem_choose": (
        _INT,
        [
            *(_POINTER, _POINTER, _POINTER, _POINTER, _LONG, _LONG),
            *(_POINTER, _LONG, _POINTER, _LONG, _LONG, _POINTER, _POINTER),
            _INT,
        ],
    ),
    "ibidem_look_up": (_INT, [_POINTER, _LONG, _POINTER, _LONG, _POINTER]),
    "ibidem_beams_new": (_POINTER, [_POINTER, _POINTER, _LONG]),
    "ibidem_beams_free": (None, [_POINTER]),
    "ibidem_beams_advance": (_LONG, [_POINTER, _POINTER, _POINTER, _LONG, _FLOAT, _POINTER, _POINTER]),
    "ibidem_beams_silence": (_INT, [_POINTER, _FLOAT, _POINTER]),
    "ibidem_beams_numbers": (None, [_POINTER, _POINTER]),
    "ibidem_beams_result": (_LONG, [_POINTER, _LONG, _LONG, *[_POINTER] * 4]),
    "ibidem_metak_weigh": (_INT, [_POINTER, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _INT]),
    "ibidem_best_of_mixture": (
        _INT,
        [
            *(_POINTER, _LONG, _LONG, _LONG),
            *(_POINTER, _POINTER, _POINTER, _LONG),
            *(_POINTER, _LONG, _LONG, _POINTER, _POINTER, _INT),
        ],
    ),
}


class Library:
    """A build of the library whose functions may be called."""

    def __init__(self, build: str, functions: ctypes.CDLL) -> None:
        self.build = build
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(functions, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ibidem_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the native library has no function {name!r}")


@cache
def native() -> Library | None:
    """The best build that is here and that this CPU can run."""
    wanted = os.environ.get("IBIDEM_NATIVE", "")
    builds = (wanted,) if wanted in BUILDS else () if wanted == "0" else BUILDS
    return next((library for build in builds if (library := _load(build)) is not None), None)


def require() -> Library:
    """The library, for callers who have made sure that it is here."""
    library = native()
    if library is None:
        raise RuntimeError("the native library is not here: ask native() first")
    return library


def _load(build: str) -> Library | None:
    try:
        functions = ctypes.CDLL(str(_FOLDER / f"libibidem_{build}.so"))
        if functions.ibidem_interface() != _INTERFACE or not functions[f"ibidem_supported_{build}"]():
            return None
        _share_threads(functions)
        return Library(build, functions)
    except (OSError, AttributeError):  # not built, or not for this system
        return None


def _share_threads(functions: ctypes.CDLL) -> None:
    """Hand over the OpenMP that torch is linked to; without one the library works on the calling thread only."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    try:
        # A symbol is looked up in the library itself and then in those it needs, so this finds torch's own OpenMP.
        entries = [ctypes.cast(ctypes.CDLL(torch._C.__file__)[name], _POINTER) for name in names]
    except (OSError, AttributeError):
        return
    functions.ibidem_use_team.argtypes = [_POINTER, _POINTER, _POINTER]
    functions.ibidem_use_team(*entries)


def threads_for(work: int, least: int) -> int:
    """How many of torch's threads to use, so that each has at least so much work."""
    return max(1, min(torch.get_num_threads(), work // least))


def dense(tensor: Tensor, kind: torch.dtype = torch.float32) -> Tensor:
    """The tensor on the CPU, contiguous and of a type; itself where it is that already."""
    if tensor.dtype is kind and tensor.is_cpu and not tensor.requires_grad and tensor.is_contiguous():
        return tensor  # asked thousands of times a second: three calls of torch would cost more than some kernels
    return tensor.detach().to("cpu", kind).contiguous()
