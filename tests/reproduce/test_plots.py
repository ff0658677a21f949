from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.reproduce.plots import Point, draw_curve, draw_tradeoff, is_far_below

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_run_nothing_drawn(tmp_path: Path) -> None:
    assert draw_curve({"k = 4": {"ours": []}}, {"k = 4": {}}, tmp_path / "curve", smoke=False) == []
    assert draw_tradeoff([], "tokens a second", tmp_path / "speed", smoke=False) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "others", "far"),
    [(33.0, [49.0, 50.0], True), (48.0, [49.0, 50.0], False), (33.0, [], False), (49.5, [50.0, 50.0], False)],
)
def test_what_lies_far_below_is_named_in_a_note(value: float, others: list[float], far: bool) -> None:
    assert is_far_below(value, others) is far


def test_the_same_points_give_the_same_file(tmp_path: Path) -> None:
    curves = {"k = 4": {"ours": [(0.0, 49.0), (0.5, 48.0)], "random": [(0.0, 49.0), (0.5, 47.0)]}}
    levels = {"k = 4": {"NMT": 33.0, "AKMT": 50.0}}
    files = [draw_curve(curves, levels, tmp_path / name / "curve", smoke=False) for name in ("a", "b")]
    assert [file.suffix for file in files[0]] == [".png", ".svg"]
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]
    marked = draw_curve(curves, levels, tmp_path / "c" / "curve", smoke=True)
    assert marked[1].read_bytes() != files[0][1].read_bytes()


def test_a_scale_of_orders_of_magnitude(tmp_path: Path) -> None:
    points = [Point("full", "full", 4, 12.0, 50.0), Point("pruned", "pruned", 4, 0.5, 49.0)]
    assert len(draw_tradeoff(points, "GB", tmp_path / "storage", smoke=False, log=True)) == 2


def test_a_line_of_one_panel_is_named_too(tmp_path: Path) -> None:
    both = {"ours": [(0.0, 49.0), (0.5, 48.0)]}
    curves = {"k = 4": {**both, "redundant": [(0.0, 49.0)]}, "k = 8": {**both, "redundant": [(0.0, 49.0), (0.5, 49.0)]}}
    _, drawing = draw_curve(curves, {"k = 4": {}, "k = 8": {}}, tmp_path / "curve", smoke=False)
    assert drawing.read_text(encoding="utf-8").count("redundant") == 1
