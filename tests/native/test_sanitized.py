"""Native code built with AddressSanitizer and UndefinedBehaviorSanitizer: random memories, and all its tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ibidem.native import native

ROOT = Path(__file__).parents[2]


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("sanitize", ROOT / "scripts" / "sanitize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_memories_are_searched_without_an_error() -> None:
    script, library = load_script(), native()
    runtime = script.find_runtime()
    if library is None or runtime is None:
        pytest.skip("needs the native library and a compiler with AddressSanitizer")
    script.build(library.build)
    command = [sys.executable, str(script.RANDOM_MEMORIES), "--seconds", "5", "--seed", "100", "--most-keys", "3000"]
    done = subprocess.run(
        command,
        env=script.environment(library.build, runtime),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{library.build}: " in done.stdout
    assert "no error" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("instructions", ["avx512", "avx2"])
def test_all_tests_of_native_code_pass_without_an_error(instructions: str) -> None:
    """The whole of scripts/sanitize.py for one instruction set, with two minutes of random memories."""
    script = load_script()
    if script.find_runtime() is None:
        pytest.skip("needs a compiler with AddressSanitizer")
    if not script.supported(instructions):
        pytest.skip(f"the CPU does not support {instructions}")
    command = [sys.executable, str(ROOT / "scripts" / "sanitize.py"), "--only", instructions, "--seconds", "120"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout[-9000:] + done.stderr[-9000:]
    assert f"{instructions}: " in done.stdout
    assert "no error" in done.stdout
