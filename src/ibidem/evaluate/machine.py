"""The machine and the library versions that a measurement belongs to."""

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
    """Describe this machine for a report: system, CPU, cores, memory, library versions, instructions and GPU in use.

    What cannot be found out is left out. The GPU and the build of our native library, which tells a CPU's instructions,
    are named only if torch is already imported, since a report should not cost the import. Nothing personal is named:
    no host, no user, no path.
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
    """Name the instructions that the native library uses."""
    if "torch" not in sys.modules:
        return None
    from ibidem.native import native

    library = native()
    return None if library is None else library.build


def _cpu_model() -> str | None:
    """Name the CPU as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    if sys.platform == "darwin":
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.stdout.strip():
            return asked.stdout.strip()
    return platform.processor() or None


def _usable_cores() -> int | None:
    """Count the cores this process may use: in a container or under taskset fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_gib() -> int | None:
    """Tell the machine's main memory in GiB, rounded, where the system says."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf, some systems not these names
        return None


def _installed_version(distributions: tuple[str, ...]) -> str | None:
    """Tell the version of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _gpu_name() -> str | None:
    """Name the first CUDA device, if torch is already imported and sees one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0))
