"""Check an installed package: version, files, native library, and a translation.

    python scripts/check_wheel.py [--native | --portable]

Run it outside of the source tree's environment, with the Python that has the package. `--native` requires the native
library, `--portable` its absence; without either, both are accepted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

MAX_BYTES = 80_000_000
SENTENCE, WORDS = "Die Datei wurde nicht gefunden.", ("file", "not", "found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--native", action="store_true")
    wanted.add_argument("--portable", action="store_true")
    arguments = parser.parse_args()
    package = distribution("ibidem")
    files = [Path(str(package.locate_file(file))) for file in package.files or ()]
    size = sum(file.stat().st_size for file in files if file.is_file())
    if size > MAX_BYTES:
        sys.exit(f"The installed package has {size:,} bytes, more than {MAX_BYTES:,}.")
    library = run("from ibidem.native import loaded_instructions; print(loaded_instructions())")
    if (arguments.native and library == "None") or (arguments.portable and library != "None"):
        sys.exit(f"The native library is {library}.")
    # A folder without the sources, so that the installed package is imported.
    with tempfile.TemporaryDirectory() as folder:
        for native in ("", "0"):
            done = subprocess.run(
                [sys.executable, "-m", "ibidem", "translate"],
                input=SENTENCE + "\n",
                capture_output=True,
                text=True,
                cwd=folder,
                env={**os.environ, "IBIDEM_NATIVE": native},
                timeout=600,
                check=False,
            )
            if done.returncode or not all(word in done.stdout.lower() for word in WORDS):
                sys.exit(f"IBIDEM_NATIVE={native!r}: exit code {done.returncode}, {done.stdout!r}, {done.stderr!r}")
            print(f"IBIDEM_NATIVE={native!r}: {done.stdout.strip()}")
    print(f"ibidem {package.version}, {size:,} bytes, native library {library}: good")


def run(code: str) -> str:
    """Run Python code outside of the source tree, and return its output."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=300, check=True
        )
    return done.stdout.strip()


if __name__ == "__main__":
    main()
