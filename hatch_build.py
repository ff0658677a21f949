"""Build the optional native library with the package, where there is a C++ compiler.

An error here leaves the library out and never fails an install: without it ibidem uses torch and faiss. IBIDEM_NATIVE=0
leaves it out on purpose; CXX names the compiler. `python hatch_build.py` builds in place for development, and `python
hatch_build.py --sanitize FOLDER` builds into a folder with AddressSanitizer and UndefinedBehaviorSanitizer (`make
sanitize` runs tests with that).
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
except ImportError:  # run as a script, outside of a build
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
# Vectors are checked against their size and not their capacity.
SANITIZED = [
    "-Og",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-D_GLIBCXX_ASSERTIONS",
    "-D_GLIBCXX_SANITIZE_VECTOR",
]
# It tests whether the CPU supports the rest, so it must run on any CPU.
FOR_ANY_CPU = "library.cpp"
_COMPILE_SECONDS = 300


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
            build_data["tag"] = f"py3-none-{tag}"  # no Python ABI: ctypes calls it

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def build_libraries(root: Path, target: Path, *, sanitize: bool = False) -> list[Path]:
    """Build one library for each instruction set.

    Args:
        root: The source tree.
        target: The folder for the libraries.
        sanitize: Whether to build with AddressSanitizer and UndefinedBehaviorSanitizer. Only a process that was started
            with the sanitizer's runtime in LD_PRELOAD can load such a library.

    Returns:
        The files made; none where there is no compiler, or the system is not Linux on x86-64.
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
    """Compile all files, link them, and put the library in place only when it can be loaded."""
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
        # A process may have the old file loaded: it is replaced by a new file and never overwritten.
        temporary = target.with_suffix(".tmp")
        shutil.copyfile(library, temporary)
        temporary.replace(target)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMPILE_SECONDS)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sanitized = sys.argv[1:2] == ["--sanitize"]
    folder = Path(sys.argv[2]) if sanitized else here / PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    for built in build_libraries(here, folder, sanitize=sanitized):
        print(built)
