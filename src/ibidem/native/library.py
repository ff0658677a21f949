"""The native library, loaded and called by ctypes; and checks whether Triton kernels can run.

The library is optional. `native()` is None where it was not built, where the CPU lacks the instructions, or where
IBIDEM_NATIVE=0 is set; callers then use torch or faiss. IBIDEM_NATIVE=avx2 selects that build on a CPU that supports
AVX-512. IBIDEM_NATIVE_FOLDER names another folder with builds, such as those with sanitizers.

AMX is never used: on some machines the CPU announces it and the operating system does not allow it.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

# The best first.
BUILDS = ("avx512", "avx2")
# As `ibidem_interface` in native/base/library.cpp.
_INTERFACE = 17
_FOLDER = Path(os.environ.get("IBIDEM_NATIVE_FOLDER") or Path(__file__).parent)

_POINTER, _LONG, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ibidem_instructions": (ctypes.c_char_p, []),
    "ibidem_linear_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _LONG, _LONG]),
    "ibidem_linear_free": (None, [_POINTER]),
    "ibidem_linear_apply": (_INT, [_POINTER, _POINTER, _LONG, _INT, _POINTER, _INT]),
    "ibidem_encode": (_INT, [_POINTER, _POINTER, _POINTER, _LONG, _LONG, _POINTER, _POINTER, _INT]),
    "ibidem_decoding_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _LONG, _LONG, _LONG]),
    "ibidem_decoding_free": (None, [_POINTER]),
    "ibidem_decoding_step": (_INT, [_POINTER, _POINTER, _POINTER, _POINTER, _INT]),
    "ibidem_decoding_reorder": (_INT, [_POINTER, _POINTER, _LONG]),
    "ibidem_ivf_search": (
        _INT,
        [*[_POINTER] * 6, *(_LONG, _LONG), *(_POINTER, _POINTER, _INT)],
    ),
    "ibidem_ivf_assign": (_INT, [_POINTER, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _INT]),
    "ibidem_ivf_pack_tree": (
        _INT,
        [_POINTER, _POINTER, _LONG, *(_POINTER, _POINTER, _LONG) * 2, *[_POINTER] * 3, _INT],
    ),
    "ibidem_ivf_pack_lists": (_INT, [_POINTER, _POINTER, _POINTER, _POINTER, _INT]),
    "ibidem_ivf_arrange": (_INT, [_POINTER, _POINTER, _POINTER, _POINTER, _LONG, _INT]),
    "ibidem_compactor_new_network": (_POINTER, [*[_POINTER] * 4, *[_LONG] * 3, _INT, _INT]),
    "ibidem_compactor_new_linear": (_POINTER, [_POINTER, _POINTER, _LONG, _LONG]),
    "ibidem_compactor_free": (None, [_POINTER]),
    "ibidem_compactor_apply": (_INT, [_POINTER, _POINTER, _LONG, _POINTER, _INT]),
    "ibidem_retrieve": (_INT, [*[_POINTER] * 3, *(_LONG, _LONG), *[_POINTER] * 3, _INT]),
    "ibidem_retrieve_and_mix": (
        _INT,
        [
            *(*[_POINTER] * 5, _LONG, _LONG, _POINTER),
            *(_POINTER, _LONG, _POINTER, _LONG, _LONG, _POINTER, _POINTER),
            _INT,
        ],
    ),
    "ibidem_look_up": (_INT, [_POINTER, _LONG, _POINTER, _LONG, _POINTER]),
    "ibidem_beams_new": (_POINTER, [_POINTER, _POINTER, _LONG]),
    "ibidem_beams_free": (None, [_POINTER]),
    "ibidem_beams_advance": (_LONG, [_POINTER, _POINTER, _POINTER, _LONG, _FLOAT, _POINTER, _POINTER]),
    "ibidem_beams_mask_lagging": (_INT, [_POINTER, _FLOAT, _POINTER]),
    "ibidem_beams_numbers": (None, [_POINTER, _POINTER]),
    "ibidem_beams_record": (_INT, [*[_POINTER] * 4, _LONG, _POINTER, _POINTER, _LONG]),
    "ibidem_beams_result": (_LONG, [_POINTER, _LONG, _LONG, *[_POINTER] * 6]),
    "ibidem_combiner_weigh": (_INT, [*[_POINTER] * 7, _LONG, _LONG, _POINTER, _POINTER, _INT]),
    "ibidem_best_of_mixture": (
        _INT,
        [
            *(_POINTER, _LONG, _LONG, _LONG),
            *(_POINTER, _POINTER, _POINTER, _LONG),
            *(_POINTER, _LONG, _LONG, _POINTER, _POINTER, _POINTER, _INT),
        ],
    ),
}


class Library:
    """A loaded build of the library; its functions are attributes.

    Args:
        build: "avx512" or "avx2".
        functions: The loaded file, whose interface has been checked.
    """

    def __init__(self, build: str, functions: ctypes.CDLL) -> None:
        self.build = build
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(functions, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ibidem_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"The native library has no function {name!r}.")


@cache
def native() -> Library | None:
    """Load the best build that exists and that this CPU supports; None where there is none."""
    wanted = os.environ.get("IBIDEM_NATIVE", "")
    builds = (wanted,) if wanted in BUILDS else () if wanted == "0" else BUILDS
    return next((library for build in builds if (library := _load(build)) is not None), None)


def loaded_instructions() -> str | None:
    """Name the instruction set of the loaded library, as the compiled code itself reports it.

    Returns:
        "avx512" or "avx2"; None where no native library is used.
    """
    library = native()
    return None if library is None else str(library.instructions().decode())


def require() -> Library:
    """Return the library; for callers that have checked `native()`.

    Raises:
        RuntimeError: There is no native library.
    """
    library = native()
    if library is None:
        raise RuntimeError("The native library is not loaded: check native() first.")
    return library


def _load(build: str) -> Library | None:
    try:
        functions = ctypes.CDLL(str(_FOLDER / f"libibidem_{build}.so"))
        if functions.ibidem_interface() != _INTERFACE or not functions[f"ibidem_supported_{build}"]():
            return None
        _use_torch_threads(functions)
        return Library(build, functions)
    except (OSError, AttributeError):  # not built, or not for this system
        return None


def _use_torch_threads(functions: ctypes.CDLL) -> None:
    """Pass the OpenMP entry points that torch is linked to; without them the library uses the calling thread only."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    try:
        # A symbol is looked up in a library and then in those that it needs, so this finds torch's own OpenMP.
        entries = [ctypes.cast(ctypes.CDLL(torch._C.__file__)[name], _POINTER) for name in names]
    except (OSError, AttributeError):
        return
    functions.ibidem_use_omp.argtypes = [_POINTER, _POINTER, _POINTER]
    functions.ibidem_use_omp(*entries)


def threads_for(work: int, least: int) -> int:
    """Return how many of torch's threads to use.

    Args:
        work: Units of work.
        least: Units that a thread must have at least.
    """
    return max(1, min(torch.get_num_threads(), work // least))


def dense(tensor: Tensor, kind: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor on the CPU, contiguous and of one type; the tensor itself where it is that already.

    Args:
        tensor: On any device, of any type.
        kind: The wanted type.
    """
    # Called thousands of times a second: the conversions of torch would cost more than some kernels.
    if tensor.dtype is kind and tensor.is_cpu and not tensor.requires_grad and tensor.is_contiguous():
        return tensor
    return tensor.detach().to("cpu", kind).contiguous()


@cache
def has_triton() -> bool:
    """Return whether Triton is installed; it comes with PyTorch's CUDA builds for Linux."""
    return find_spec("triton") is not None


def runs_triton(tensor: Tensor) -> bool:
    """Return whether a Triton kernel can run on the tensor's device.

    Args:
        tensor: Argument of the kernel.
    """
    return tensor.is_cuda and has_triton()
