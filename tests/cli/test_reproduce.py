"""`ibidem reproduce` as users type it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ibidem.reproduce import TABLES

if TYPE_CHECKING:
    from pathlib import Path


def test_the_list_of_rows(ibidem, tmp_path: Path) -> None:
    answer = ibidem("reproduce", "pruning", "--list", "--results", tmp_path / "results")
    assert answer.code == 0
    assert len(answer.lines) == 7 * 6 * 3
    assert all("(no data folder was given)" in line for line in answer.lines)
    only = ibidem("reproduce", "pruning", "--list", "--results", tmp_path, "--only", "spatial", "--seeds", "2")
    assert len(only.lines) == 6
    assert not (tmp_path / "results").exists()


def test_the_list_names_what_is_missing(ibidem, tmp_path: Path) -> None:
    (tmp_path / "koran").mkdir()
    for part in ("dev", "test"):
        (tmp_path / "koran" / f"{part}.tsv").write_text("eins\tone\n", encoding="utf-8")
    command = ("reproduce", "domains", "--data", tmp_path, "--list", "--results", tmp_path / "results")
    answer = ibidem(*command, "--only", "koran/test", "--seeds", "1")
    states = {line[18:26].strip(): line for line in answer.lines}
    assert states["to run"].endswith("koran/test base")
    assert "(no train text of koran)" in states["not here"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "There is no table 'nothing'"),
        (("compact", "--seeds", "one"), "--seeds one"),
        (("compact", "--seeds", "0"), "--seeds 0"),
        (("compact", "--data", "nowhere"), "--data"),
        (("compact", "--results", "empty"), "--quick"),
        (("compact", "--list", "--only", "nothing like this"), "--only"),
        (("all", "--quick", "--results", "docs/results"), "do not belong"),
        (("all", "--quick", "--results", "docs/results/smoke"), "do not belong"),
    ],
)
def test_invalid_arguments_are_refused(
    fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in fails(2, "reproduce", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_table_runs(ibidem, tmp_path: Path) -> None:
    """--quick runs every table, end to end, with the shipped model on a CPU."""
    answer = ibidem("reproduce", "all", "--quick", "--device", "cpu", "--results", tmp_path / "smoke")
    assert answer.code == 0, answer.err
    assert "0 lost to failures, 0 left" in answer.err
    for table in TABLES:
        text = (tmp_path / "smoke" / f"{table}.md").read_text("utf-8")
        assert "**SMOKE**" in text
        assert "not run" not in text, table
        assert (tmp_path / "smoke" / f"{table}.json").is_file()
    figures = {path.name for path in (tmp_path / "smoke" / "figures").iterdir()}
    names = ("frequencies", "pruning-curve", "redundancy", "speed", "storage", "tokens")
    assert figures == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    again = ibidem("reproduce", "all", "--quick", "--device", "cpu", "--results", tmp_path / "smoke")
    assert "0 rows measured" in again.err
    laid_out = ibidem("reproduce", "compact", "--results", tmp_path / "smoke")
    assert laid_out.code == 0
