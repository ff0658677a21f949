"""Write requirements-hashed.txt and requirements-hashed-cpu.txt: `make lock`.

Both list what `ibidem[serve,reproduce]` needs to be built and run, in the versions of constraints.txt, with the sha256
of every file that the registry has of them. The first is for all platforms, and on Linux it holds the CUDA libraries
that torch on PyPI requires. The second is for Linux with the CPU build of torch, and is written only where pip is
configured with an index or a folder that has that build. Needs uv.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("serve", "reproduce")
PYTHONS = ("3.11", "3.12", "3.13")
LOCK, CPU_LOCK = "requirements-hashed.txt", "requirements-hashed-cpu.txt"
# What the CPU build of torch does without.
CUDA = re.compile(r"(?:nvidia|cuda)-|triton==")
HEADER = "# Made by `make lock` from pyproject.toml and constraints.txt. Do not edit.\n"


def main() -> None:
    """Resolve, and write the files."""
    entries = resolve()
    torch = next(entry for entry in entries if entry.startswith("torch=="))
    (ROOT / LOCK).write_text(HEADER + "".join(entries), encoding="utf-8")
    pin, hashes = find_cpu_builds(torch.split()[0])
    if not hashes:
        print(f"{CPU_LOCK} is left as it is: pip finds no CPU build of {torch.split()[0]} here.", file=sys.stderr)
        return
    cpu_torch = " \\\n".join([pin, *(f"    --hash=sha256:{value}" for value in sorted(hashes))]) + "\n"
    chosen = [cpu_torch if entry is torch else entry for entry in entries if not CUDA.match(entry)]
    (ROOT / CPU_LOCK).write_text(HEADER + "".join(chosen), encoding="utf-8")


def resolve() -> list[str]:
    """Return an entry for each package: its pin, its marker and its hashes, on several lines."""
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder, "build.txt")
        build.write_text("\n".join(requirements), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "pyproject.toml", str(build)]
        command += [f"--extra={extra}" for extra in EXTRAS]
        command += ["--constraints=constraints.txt", "--universal", f"--python-version={PYTHONS[0]}"]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.split(r"(?m)^(?=\S)", found)[1:]


def find_cpu_builds(pin: str) -> tuple[str, set[str]]:
    """Return the pin of the CPU build of torch, and the hashes of the files that pip finds of it."""
    hashes = set()
    for python in PYTHONS:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--dry-run",
                "--no-deps",
                "--ignore-installed",
            ]
            command += ["--only-binary=:all:", f"--python-version={python}", f"--target={folder}", "--report=-"]
            done = subprocess.run([*command, f"{pin}+cpu"], check=False, capture_output=True, text=True)
        if done.returncode == 0:
            (found,) = json.loads(done.stdout)["install"]
            hashes.add(found["download_info"]["archive_info"]["hashes"]["sha256"])
    return f"{pin}+cpu", hashes


if __name__ == "__main__":
    main()
