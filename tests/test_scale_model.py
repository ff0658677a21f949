"""The model of large memories: its fit, and the figures that docs/scale.md prints."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
specification = importlib.util.spec_from_file_location("scale_model", ROOT / "benchmarks" / "scale_model.py")
assert specification is not None
assert specification.loader is not None
scale_model = importlib.util.module_from_spec(specification)
sys.modules["scale_model"] = scale_model
specification.loader.exec_module(scale_model)


def test_the_fit_finds_known_constants() -> None:
    rows = [
        scale_model.Row(lists * long, lists, nprobe, 10.0 + 0.02 * nprobe + 0.001 * nprobe * long)
        for lists in (64, 1_024)
        for nprobe in (4, 32)
        for long in (10, 300)
    ]
    found = scale_model.fit(rows)
    assert found == pytest.approx((10.0, 0.02, 0.001, 0.0), abs=1e-6)


def test_the_page_has_the_figures_of_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    rows = scale_model.read_rows()
    fitted = scale_model.fit(rows)
    scale_model.print_tables(rows, fitted, 0.04)
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    assert "| 1,000,000,000 | 65,536 | 15,259 | 474 | 17.21 |" in printed
    assert "| 1 billion | 65,536 | 15,259 | 474 | 17 |" in page
    assert "up to 107,000,000 keys" in printed
    assert "107 million keys" in page
    for power, shown in ((18, "6.1"), (20, "2.2"), (22, "0.9")):
        lists = 1 << power
        cost = scale_model.step_milliseconds(rows, fitted, 1e9, lists)
        assert f"{lists:,} | {1e9 / lists:,.0f} | {scale_model.probes(rows, lists):,.0f} | {shown} |" in page
        assert f"{cost:.1f}" == shown
