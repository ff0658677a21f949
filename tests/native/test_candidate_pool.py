"""The pool of candidates of the native index holds the nearest ones, however many lie at the same distance."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .test_sanitized import ROOT, load_script

POOLS = 1000
# Deliberate bugs: the file, the right and the wrong text, and what the test reports.
BUGS = {
    "a search keeps one candidate fewer than wanted": (
        "index/shortlist.h",
        "(count = count_within(high)) < wanted)",
        "(count = count_within(high)) < wanted - 1)",
        "fewer places than wanted",
    ),
    "the farthest of the wanted candidates is dropped": (
        "index/candidate_pool.h",
        "near_.keep(near_.bound(wanted_));",
        "near_.keep(near_.bound(wanted_) - 1);",
        "fewer places than wanted",
    ),
    "a block is added to a full pool": (
        "index/candidate_pool.h",
        "if (near_.count() + kLanes > capacity_) settle();",
        "if (near_.count() > capacity_) settle();",
        "AddressSanitizer",
    ),
}


def run_pools(sources: Path, folder: Path, *, pools: int = POOLS, seed: int = 1) -> subprocess.CompletedProcess[str]:
    """Compile the check of the pool with sanitizers and run it.

    Args:
        sources: The folder `native`, or a changed copy of it.
        folder: The folder for the program.
        pools: The number of pools.
        seed: The seed of their sizes and distances.

    Returns:
        The ended process: status 0, or 1 with the fault on stderr.
    """
    script = load_script()
    if script.find_runtime() is None:
        pytest.skip("needs a compiler with AddressSanitizer")
    name = next((name for name in ("avx512", "avx2") if script.supported(name)), None)
    if name is None:
        pytest.skip("the CPU supports no instruction set of the native library")
    hook = script._load_hook()
    program = folder / "candidate_pool"
    command = [hook._find_compiler(), "-std=c++17", "-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command += [f"-I{sources}", *hook.INSTRUCTIONS[name]]
    command += [str(Path(__file__).with_name("candidate_pool.cpp")), "-o", str(program)]
    subprocess.run(command, check=True, timeout=120)
    return subprocess.run(
        [str(program), str(pools), str(seed)], capture_output=True, text=True, timeout=120, check=False
    )


def test_pool_holds_the_nearest_candidates(tmp_path: Path) -> None:
    done = run_pools(ROOT / "native", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{POOLS} pools\n"


def test_bugs_fit_the_sources() -> None:
    for name, (file, right, _, _) in BUGS.items():
        assert (ROOT / "native" / file).read_text("utf-8").count(right) == 1, f"{name}: write the bug anew"


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_deliberate_bug_is_found(tmp_path: Path, name: str) -> None:
    file, right, wrong, report = BUGS[name]
    sources = shutil.copytree(ROOT / "native", tmp_path / "native")
    content = (sources / file).read_text("utf-8")
    assert content.count(right) == 1, f"{file} was changed: write the bug anew"
    (sources / file).write_text(content.replace(right, wrong), "utf-8")
    done = run_pools(sources, tmp_path)
    assert done.returncode != 0
    assert report in done.stderr
