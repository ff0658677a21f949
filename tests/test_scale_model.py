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
    assert "up to 309,000,000 keys" in printed
    assert "309 million keys" in page
    shown = table(page, "keys a shard")
    assert len(shown) > 7
    for count, lists, long, probed, milliseconds in shown:
        keys, number = amount(count), int(lists.replace(",", ""))
        cost = scale_model.step_milliseconds(rows, fitted, keys, number)
        assert (long, probed) == (f"{keys / number:,.0f}", f"{scale_model.probes(rows, number):,.0f}")
        assert milliseconds == (f"{cost:.1f}" if cost < 10 else f"{cost:.0f}"), (count, lists)
    sizes = {amount(row[0]): [first_number(cell) for cell in row[1:]] for row in table(printed, "entries")}
    shown = table(page, "entries", "in RAM for search")
    assert len(shown) == len(sizes) == 3
    for count, keys, index, rest, room, days, price, _ in shown:
        found = [first_number(cell) for cell in (keys, index, rest, days, price)]
        assert found == pytest.approx(sizes[amount(count)], rel=0.01), count
        ram = amount(count) * (scale_model.KEY_BYTES + scale_model.INDEX_BYTES) / 1e9
        assert first_number(room) * (1000 if "TB" in room else 1) == pytest.approx(ram, rel=0.02)


def table(text: str, *names: str) -> list[list[str]]:
    """Return the rows of the first table whose header starts with the first name and has the others."""
    lines = text.splitlines()
    starts = [
        line for line in lines if line.startswith(f"| {names[0]} |") and all(f"| {one} |" in line for one in names)
    ]
    rows = []
    for line in lines[lines.index(starts[0]) + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def amount(text: str) -> float:
    number, _, unit = text.replace(",", "").partition(" ")
    return float(number) * {"": 1, "million": 1e6, "billion": 1e9}[unit]


def first_number(text: str) -> float:
    return float(text.split()[0].replace(",", ""))
