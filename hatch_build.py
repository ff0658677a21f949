"""Builds the optional native library with the package, where a C++ compiler is at hand.

Whatever goes wrong here leaves the library out and never fails an install: without it ibidem does the same work in
torch and faiss. IBIDEM_NATIVE=0 leaves it out by wish; CXX names the compiler. `python hatch_build.py` builds it in
place, for people who work on it, and `python hatch_build.py --sanitize FOLDER` builds into a folder with
AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitize` runs tests with that).
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, outside a build
    BuildHookInterface = object

SOURCES = "native"
PACKAGE = "src/ibidem/native"
COMMON = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
    "-Wextra",
]
INSTRUCTIONS = {
    "avx512": [
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx512vnni",
        "-mfma",
        "-mf16c",
        "-mbmi2",
        "-mprfchw",
    ],
    "avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi2"],
}
# Checks every memory access and every undefined operation; accesses to vectors against their size, not their capacity.
SANITIZED = [
    "-Og",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-D_GLIBCXX_ASSERTIONS",
    "-D_GLIBCXX_SANITIZE_VECTOR",
]
# It answers whether the CPU can run the rest, so it must itself run on any.
FOR_ANY_CPU = "library.cpp"
_PATIENCE = 300


class NativeBuildHook(BuildHookInterface):
    """Adds the libraries to a wheel, or to the source tree of an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            build_libraries(root, root / PACKAGE)
            return
        self._folder = tempfile.TemporaryDirectory()
        libraries = build_libraries(root, Path(self._folder.name))
        if libraries:
            build_data["force_include"].update({str(file): f"ibidem/native/{file.name}" for file in libraries})
            build_data["pure_python"] = False
            tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{tag}"  # no Python ABI: it is called by ctypes

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def build_libraries(root: Path, target: Path, *, sanitize: bool = False) -> list[Path]:
    """Build one library for each instruction set into a folder; the files made, none where it cannot be done.

    sanitize: with AddressSanitizer and UndefinedBehaviorSanitizer. Such a library can be loaded only by a process that
    was started with the sanitizer's runtime in LD_PRELOAD.
    """
    if os.environ.get("IBIDEM_NATIVE") == "0" or sys.platform != "linux" or platform.machine() != "x86_64":
        return []
    compiler = _find_compiler()
    if compiler is None:
        return []
    made = []
    for name, flags in INSTRUCTIONS.items():
        file = target / f"libibidem_{name}.so"
        try:
            _build(compiler, root / SOURCES, flags, file, sanitize=sanitize)
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or error
            print(f"ibidem: the optional native library ({name}) is left out: {reason}", file=sys.stderr)
        else:
            made.append(file)
    return made


def _find_compiler() -> str | None:
    wanted = os.environ.get("CXX")
    return next((found for name in ([wanted] if wanted else ["g++", "clang++"]) if (found := shutil.which(name))), None)


def _build(compiler: str, sources: Path, flags: list[str], target: Path, *, sanitize: bool) -> None:
    """Compile every file, link them, and put the library in place only when it can be loaded."""
    checks = SANITIZED if sanitize else []
    with tempfile.TemporaryDirectory() as scratch:

        def compile_file(source: Path) -> Path:
            made = Path(scratch) / f"{source.parent.name}_{source.stem}.o"
            own = [] if source.name == FOR_ANY_CPU else flags
            _run([compiler, *COMMON, f"-I{sources}", *own, *checks, "-c", str(source), "-o", str(made)])
            return made

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_file, sorted(sources.rglob("*.cpp"))))
        library = Path(scratch) / target.name
        _run([compiler, "-shared", "-Wl,-Bsymbolic", *checks, *map(str, objects), "-o", str(library)])
        if not sanitize:
            ctypes.CDLL(str(library))
        # A process may have the old one loaded: a new file is put in its place, never written over it.
        beside = target.with_suffix(".tmp")
        shutil.copyfile(library, beside)
        beside.replace(target)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sanitized = sys.argv[1:2] == ["--sanitize"]
    folder = Path(sys.argv[2]) if sanitized else here / PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    for built in build_libraries(here, folder, sanitize=sanitized):
        print(built)
