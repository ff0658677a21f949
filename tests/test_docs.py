"""The documentation site builds without a warning, and every public name of the API page has a docstring."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Translate texts" in (tmp_path / "api" / "index.html").read_text("utf-8")


def test_every_name_of_the_api_page_exists_and_has_a_docstring() -> None:
    names = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        assert found.__doc__, name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/README.md"])
def test_links_to_files_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in target]
    assert targets
    assert [target for target in targets if not ((ROOT / page).parent / target).exists()] == []


def test_every_decision_is_listed_by_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\((.*)\) \|$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    titles = [page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in pages]
    expected = [
        (str(number), title, page.name) for number, (title, page) in enumerate(zip(titles, pages, strict=True), 1)
    ]
    assert listed == expected
