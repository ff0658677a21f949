"""The published tables are what the stored rows give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ibidem.reproduce.plan import full_plan
from ibidem.reproduce.report import render_table
from ibidem.reproduce.results import Results, read_archive
from ibidem.reproduce.tables import TABLES, open_table

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def published() -> Results:
    return Results(PUBLISHED / "tables")


@pytest.mark.parametrize("name", TABLES)
def test_every_published_table_is_what_the_stored_rows_give(published: Results, name: str) -> None:
    text = render_table(open_table(name), full_plan(None), published, {}, published.folder)
    assert text.encode() == (published.folder / f"{name}.md").read_bytes()


def test_the_published_table_of_the_wide_model() -> None:
    results = Results(PUBLISHED / "wide")
    text = render_table(open_table("compact"), full_plan(None), results, {}, results.folder)
    assert text.encode() == (results.folder / "compact.md").read_bytes()


def test_every_published_page_of_tables_is_generated() -> None:
    assert {file.stem for file in (PUBLISHED / "tables").glob("*.md")} == set(TABLES)
    assert {file.stem for file in (PUBLISHED / "wide").glob("*.md")} == {"compact"}


@pytest.mark.parametrize("folder", ["tables", "wide"])
def test_every_stored_row_says_how_it_was_measured(folder: str) -> None:
    rows = read_archive(PUBLISHED / folder / "rows" / "rows.jsonl.xz")
    assert rows
    for row in rows.values():
        result = row.result
        assert all(result[name] for name in ("command", "commit", "machine", "when")), result["name"]
        assert isinstance(result["seed"], int)
        assert "scores" not in result or set(result["signatures"]) == set(result["scores"])


# A difference, with its interval or without; in the table each comparison has both.
DIFFERENCE = re.compile(r"(?<![\w.])([-+]\d+\.\d\d)(?: (\[[-+.\d]+, [-+.\d]+\]))?(?![\d.])")


def read_lines(page: Path, columns: int) -> list[list[str]]:
    """Return the cells of the lines of a page that have so many columns, without bold type."""
    lines = [line.replace("**", "").strip("|").split("|") for line in page.read_text("utf-8").splitlines()]
    return [[cell.strip() for cell in cells] for cells in lines if len(cells) == columns]


def test_the_verdicts_of_the_page_are_those_of_the_table() -> None:
    """Every difference of a line stands in a claim of the table with a verdict that the line gives, and vice versa."""
    claims = [
        (cells[2], set(DIFFERENCE.findall(cells[3]))) for cells in read_lines(PUBLISHED / "tables" / "orderings.md", 5)
    ]
    compared = 0
    for claim, ours, given in read_lines(PUBLISHED / "reproduction.md", 3):
        words = set(re.findall(r"true|false|undecided", given))
        found = [
            {verdict for verdict, cells in claims for cell in cells if value == cell[0] and interval in ("", cell[1])}
            for value, interval in DIFFERENCE.findall(ours)
        ]
        if "wide/compact.md" in claim or not found:
            continue
        assert all(verdicts & words for verdicts in found), (claim, found)
        assert words <= set().union(*found), (claim, words)
        compared += 1
    assert compared > 20


def test_every_published_figure_belongs_to_a_table() -> None:
    drawn = {path.stem for path in (PUBLISHED / "tables" / "figures").iterdir()}
    assert drawn == {figure for name in TABLES for figure in open_table(name).figures}


PAGES = sorted(PUBLISHED.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_its_links_lead_somewhere(page: Path) -> None:
    assert page.stat().st_size <= 6 * 1024
    links = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [link for link in links if not (page.parent / link).resolve().is_relative_to(PUBLISHED.parent)] == []


def test_every_published_file_of_data_is_cited_by_a_page() -> None:
    pages = [*PAGES, PUBLISHED.parent / "trust.md", PUBLISHED.parent / "scale-learning.md"]
    cited = {name for page in pages for name in re.findall(r"data/([\w.-]+\.json)", page.read_text("utf-8"))}
    assert {file.name for file in (PUBLISHED / "data").iterdir()} == cited
