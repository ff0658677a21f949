"""The licences of the packages that ibidem needs: known, and none that would bind a program which uses it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
# Whole words in the licences of the locked packages; LGPL and MPL bind only changes of the package itself.
STRONG = {"GPL", "GPLv2", "GPLv3", "GPL-2.0-only", "GPL-3.0-only", "GPL-3.0-or-later", "AGPL-3.0-only", "SSPL-1.0"}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "scripts" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_installed_package_of_the_lock_has_a_suitable_licence(script: Any) -> None:
    licences = script.find_licences(script.read_names(ROOT / script.LOCK))
    installed = {name: licence for name, licence in licences.items() if licence is not None}
    assert len(installed) > 30
    assert [name for name, licence in installed.items() if not licence] == []
    assert {name: licence for name, licence in installed.items() if set(licence.split()) & STRONG} == {}


def test_a_licence_is_an_expression_or_a_name(script: Any, tmp_path: Path) -> None:
    def licence(metadata: str) -> str:
        folder = tmp_path / "one-1.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: one\nVersion: 1\n{metadata}\n", "utf-8")
        return str(script.licence_of(script.Distribution.at(folder)))

    assert licence("License-Expression: MIT OR Apache-2.0\nLicense: other") == "MIT OR Apache-2.0"
    assert licence("License: UNKNOWN\nClassifier: License :: OSI Approved :: BSD License") == "BSD License"
    assert licence("License: MIT License\n        \n        Permission is hereby granted" + " text" * 30) == "MIT"
    assert licence("License: UNKNOWN") == ""
