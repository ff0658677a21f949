"""Unpack the wheels of the modules that this Python lacks, for a machine on which nothing can be installed.

python scripts/missing_wheels.py WHEELS FOLDER     then: export PYTHONPATH=…:FOLDER
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path


def main() -> None:
    """Unpack the wheels and print the names of the modules."""
    wheels, folder = Path(sys.argv[1]), Path(sys.argv[2])
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    unpacked = []
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            tops = {name.partition("/")[0] for name in archive.namelist()}
            modules = {top.removesuffix(".py") for top in tops if not top.endswith((".dist-info", ".data", ".libs"))}
            modules = {module for module in modules if module.isidentifier()}
            if any(importlib.util.find_spec(module) is None for module in modules):
                archive.extractall(folder)
                unpacked += sorted(modules)
    print("unpacked:", *(unpacked or ["nothing"]))


if __name__ == "__main__":
    main()
