"""Loading and refusing the native library, its threads and instruction sets, and building it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ibidem.native import best_of_mixture, library, loaded_instructions, native

ROOT = Path(__file__).parents[2]
_CPU = Path("/proc/cpuinfo")
CPU_FLAGS = set(_CPU.read_text(encoding="utf-8").split() if _CPU.exists() else ())

_THREADS = """
import os, torch
from ibidem.native import best_of_mixture, native

def count():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(3)
assert native() is not None
alone = count()
best_of_mixture(torch.randn(300, 1000), 5)
assert count() == alone + 2, (alone, count())  # the library runs on three threads,
torch.randn(3_000_000).exp()
assert count() == alone + 2, (alone, count())  # and they are torch's own
torch.set_num_threads(1)
best_of_mixture(torch.randn(300, 1000), 5)
assert count() == alone + 2, (alone, count())
"""


@pytest.mark.skipif(native() is None, reason="no native library here")
def test_it_uses_the_threads_of_torch() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _THREADS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_selected_instructions_run(native_build: str) -> None:
    """The compiled code names its instruction set, and its kernels run with it."""
    assert loaded_instructions() == native_build
    assert best_of_mixture(torch.eye(20), 1).tokens.flatten().tolist() == list(range(20))


@pytest.mark.usefixtures("no_native")
def test_it_can_be_left_out() -> None:
    assert native() is None
    assert loaded_instructions() is None
    with pytest.raises(RuntimeError, match="check native"):
        library.require()


@pytest.fixture
def forget() -> Any:
    native.cache_clear()
    yield
    native.cache_clear()


@pytest.mark.skipif(not {"avx2", "fma"} <= CPU_FLAGS, reason="the CPU has no AVX2")
@pytest.mark.usefixtures("forget")
def test_a_built_library_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with the instructions uses the best build that exists: no test is skipped by accident."""
    built = [name for name in library.BUILDS if (library._FOLDER / f"libibidem_{name}.so").exists()]
    if not built or "LD_PRELOAD" in os.environ:
        pytest.skip("no library was built, or a sanitized one is used")
    monkeypatch.delenv("IBIDEM_NATIVE", raising=False)
    native.cache_clear()
    assert loaded_instructions() == next(name for name in built if name == "avx2" or "avx512_vnni" in CPU_FLAGS)


@pytest.mark.usefixtures("forget")
def test_a_library_of_another_interface_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_INTERFACE", -1)
    assert native() is None


@pytest.mark.usefixtures("forget")
def test_a_file_that_is_no_library_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    assert native() is None
    for build in library.BUILDS:
        (tmp_path / f"libibidem_{build}.so").write_bytes(b"not a library")
    native.cache_clear()
    assert native() is None


def builder() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_compiler_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for compiler in ("no-such-compiler", shutil.which("false") or "false"):
        monkeypatch.setenv("CXX", compiler)
        monkeypatch.delenv("IBIDEM_NATIVE", raising=False)
        assert builder().build_libraries(ROOT, tmp_path) == []
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("IBIDEM_NATIVE", "0")
    assert builder().build_libraries(ROOT, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler here")
def test_a_compiler_builds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IBIDEM_NATIVE", raising=False)
    made = builder().build_libraries(ROOT, tmp_path)
    assert [file.name for file in made] == ["libibidem_avx512.so", "libibidem_avx2.so"]
    assert sorted(tmp_path.iterdir()) == sorted(made)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling")
def test_a_wheel_contains_it_or_is_pure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for wanted in ("", "0"):
        monkeypatch.setenv("IBIDEM_NATIVE", wanted)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / f"dist{wanted}")]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    pure = next((tmp_path / "dist0").iterdir())
    assert pure.name.endswith("-py3-none-any.whl")
    if shutil.which("g++") is not None and sys.platform == "linux":
        assert "-py3-none-linux" in next((tmp_path / "dist").iterdir()).name
