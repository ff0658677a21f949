"""Run native code with AddressSanitizer and UndefinedBehaviorSanitizer: its tests, then random memories.

`make sanitize` runs this: the tests of the native library, of search and of decoding, and then half an hour of random
memories (tests/retrieve/random_memories.py) and half an hour of random texts (tests/trust/random_translations.py) for
each instruction set. `make slow` runs it with two minutes of each. It needs GCC with libasan.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "sanitize"
RANDOM_MEMORIES = ROOT / "tests" / "retrieve" / "random_memories.py"
RANDOM_TRANSLATIONS = ROOT / "tests" / "trust" / "random_translations.py"
SUITES = ("tests/native", "tests/retrieve", "tests/decode", "tests/combine", "tests/compact", "tests/model")
LEFT_OUT = ("--deselect", "tests/native/test_linear.py::test_weights_are_freed")


def find_runtime() -> str | None:
    """Return the libraries that a process must preload to use sanitized code; None where the compiler has none.

    The C++ library is among them because AddressSanitizer looks up the functions that throw exceptions at start.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return None
    paths = []
    for name in ("libasan.so", "libstdc++.so"):
        found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
        paths.append(found.stdout.strip())
    return " ".join(paths) if all(Path(path).is_absolute() for path in paths) else None


def supported(name: str) -> bool:
    """Return whether this CPU supports an instruction set, "avx512" or "avx2"."""
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return {"avx512": {"avx512_vnni", "avx512bw"}, "avx2": {"avx2", "fma"}}[name] <= flags


def build(name: str, folder: Path = FOLDER) -> Path:
    """Build the library for an instruction set, "avx512" or "avx2", unless a newer build than its sources is there."""
    file = folder / f"libibidem_{name}.so"
    sources = [*(ROOT / "native").rglob("*.*"), ROOT / "hatch_build.py"]
    if not file.exists() or file.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        folder.mkdir(parents=True, exist_ok=True)
        hook = _load_hook()
        hook.INSTRUCTIONS = {name: hook.INSTRUCTIONS[name]}
        if not hook.build_libraries(ROOT, folder, sanitize=True):
            raise RuntimeError(f"The sanitized library for {name} could not be built; see the messages above.")
    return file


def environment(name: str, runtime: str, folder: Path = FOLDER) -> dict[str, str]:
    """Return the variables with which a process uses the sanitized library and stops at the first error."""
    return {
        **os.environ,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "IBIDEM_NATIVE": name,
        "IBIDEM_NATIVE_FOLDER": str(folder),
        "OMP_NUM_THREADS": "1",
    }


def check_loaded(name: str, runtime: str) -> None:
    """Exit with a message unless a process loads the sanitized library, without which most tests are skipped."""
    command = [sys.executable, "-c", "from ibidem.native import loaded_instructions; print(loaded_instructions())"]
    done = subprocess.run(
        command, env=environment(name, runtime), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.stdout.strip() != name:
        sys.exit(f"The sanitized library for {name} was not loaded: {done.stdout.strip()} {done.stderr[-500:]}")


def _load_hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800, help="of random memories, for each instruction set")
    parser.add_argument("--seed", type=int, default=0, help="of the first random memory")
    parser.add_argument("--only", choices=("avx512", "avx2"), help="one instruction set")
    chosen = parser.parse_args()
    runtime = find_runtime()
    if runtime is None:
        sys.exit("The compiler has no AddressSanitizer: install GCC with libasan, or set CXX to another compiler.")
    names = [chosen.only] if chosen.only else [name for name in ("avx512", "avx2") if supported(name)]
    for name in names:
        build(name)
        check_loaded(name, runtime)
        # AddressSanitizer delays freeing, so the test of freed memory is left out. With -s pytest shows the message of
        # a sanitizer that ends the process.
        tests = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *SUITES, *LEFT_OUT]
        memories = [sys.executable, str(RANDOM_MEMORIES), "--seconds", str(chosen.seconds), "--seed", str(chosen.seed)]
        texts = [sys.executable, str(RANDOM_TRANSLATIONS), "--seconds", str(chosen.seconds), "--seed", str(chosen.seed)]
        for command in (tests, memories, texts):
            print(f"{name}: {' '.join(command[1:])}", flush=True)
            done = subprocess.run(command, env=environment(name, runtime), cwd=ROOT, check=False)
            if done.returncode != 0:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
