"""Description of the machine and the library versions of a measurement."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = {
    "torch": ("torch",),
    "transformers": ("transformers",),
    "faiss": ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12"),
    "sacrebleu": ("sacrebleu",),
}


def describe_machine() -> dict[str, str | int]:
    """Describe this machine for a report.

    Torch is not imported for it: the GPU and the build of the native library, which names the CPU's instructions, are
    left out unless torch is already imported. The description holds nothing personal: no host, user or path.

    Returns:
        System, CPU, cores, memory in GiB, library versions, native build and GPU; what is unknown is left out.

    Examples:
        >>> describe_machine()["cores"] >= 1
        True
    """
    described: dict[str, str | int | None] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "memory_gib": _memory_gib(),
        "python": platform.python_version(),
    }
    for library, distributions in _LIBRARIES.items():
        described[library] = _installed_version(distributions)
    described["native"] = _native_build()
    described["gpu"] = _gpu_name()
    return {name: value for name, value in described.items() if value is not None}


def _native_build() -> str | None:
    """Return the name of the native library's build."""
    if "torch" not in sys.modules:
        return None
    from ibidem.native import native

    library = native()
    return None if library is None else library.build


def _cpu_model() -> str | None:
    """Return the system's name of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    if sys.platform == "darwin":
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.stdout.strip():
            return answer.stdout.strip()
    return platform.processor() or None


def _usable_cores() -> int | None:
    """Count the cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_gib() -> int | None:
    """Return the main memory in GiB, rounded."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, and some systems lack these names
        return None


def _installed_version(distributions: tuple[str, ...]) -> str | None:
    """Return the version of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _gpu_name() -> str | None:
    """Return the name of the first CUDA device, if torch is already imported."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))
