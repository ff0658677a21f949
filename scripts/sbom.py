"""Write the list of the packages that ibidem needs (CycloneDX, JSON) and the list of their licences: `make sbom`.

    python scripts/sbom.py --tool build/sbom/bin/cyclonedx-py --output build

`cyclonedx-py` makes the list from the hashed requirements, with the sha256 of every file. The licences come from the
metadata of the packages that are installed in the environment of this script; a package of the list that is not
installed there is named on stderr.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = "requirements-hashed.txt"
_SHORT = 80
# What the text of a licence begins with, where the metadata has the whole text.
_TEXTS = {"mit license": "MIT", "apache license": "Apache-2.0", "bsd 3-clause": "BSD-3-Clause"}


def licence_of(package: Distribution) -> str:
    """Return the licence that the metadata of a package state: an SPDX expression, a name or classifiers.

    Args:
        package: The installed package.

    Returns:
        The licence in one line, "" if the metadata state none.
    """
    fields = package.metadata
    classifiers = [
        line.rpartition(" :: ")[2] for line in fields.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    for stated in (fields.get("License-Expression"), "; ".join(classifiers), fields.get("License")):
        if stated and stated.strip() not in ("", "UNKNOWN", "OSI Approved"):
            line = stated.strip().splitlines()[0].strip()
            known = next((name for text, name in _TEXTS.items() if line.lower().startswith(text)), None)
            return known if known and len(stated) > _SHORT else line[:_SHORT]
    return ""


def find_licences(names: list[str]) -> dict[str, str | None]:
    """Return the licences of packages by name, None for one that is not installed.

    Args:
        names: The names of the packages.
    """
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = licence_of(distribution(name))
        except PackageNotFoundError:
            found[name] = None
    return found


def read_names(lock: Path) -> list[str]:
    """Return the names of the packages of a file of hashed requirements.

    Args:
        lock: The file.
    """
    return re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)==", lock.read_text(encoding="utf-8"))


def make_bom(tool: str, licences: dict[str, str | None]) -> dict[str, Any]:
    """Return the list of packages as CycloneDX, with licences.

    Args:
        tool: The path of `cyclonedx-py`.
        licences: The licences by the names of the packages.
    """
    command = [tool, "requirements", LOCK, "--pyproject", "pyproject.toml", "--output-reproducible", "--sv", "1.6"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    bom: dict[str, Any] = json.loads(done.stdout)
    for component in bom["components"]:
        if licence := licences.get(component["name"]):
            component["licenses"] = [{"license": {"name": licence}}]
    return bom


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="cyclonedx-py")
    parser.add_argument("--output", type=Path, default=ROOT / "build")
    chosen = parser.parse_args()
    licences = find_licences(read_names(ROOT / LOCK))
    bom = make_bom(chosen.tool, licences)
    chosen.output.mkdir(parents=True, exist_ok=True)
    (chosen.output / "sbom.json").write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    rows = [f"| {name} | {licence} |" for name, licence in licences.items() if licence]
    table = "\n".join(["| package | licence |", "|---|---|", *rows]) + "\n"
    (chosen.output / "licences.md").write_text(table, encoding="utf-8")
    missing = [name for name, licence in licences.items() if not licence]
    print(f"{len(bom['components'])} packages in {chosen.output / 'sbom.json'}, {len(rows)} in licences.md")
    if missing:
        print(f"No licence is known here of: {', '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    main()
