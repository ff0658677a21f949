"""Every number of the results pages stands in a stored row or data file, and data files say how they were measured."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
specification = importlib.util.spec_from_file_location("trace_numbers", ROOT / "scripts" / "trace_numbers.py")
assert specification is not None
assert specification.loader is not None
trace_numbers = importlib.util.module_from_spec(specification)
sys.modules["trace_numbers"] = trace_numbers
specification.loader.exec_module(trace_numbers)

PAGES = trace_numbers.find_pages(ROOT)
NUMBERED = [page for page in PAGES if list(trace_numbers.read_numbers(ROOT, page))]
QUALITY = "docs/results/quality.md"
# Data files whose provenance has "unknown", by what is unknown.
UNKNOWN = {"command": 7, "commit": 46, "seed": 3, "signature": 5, "machine": 1}


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_a_page_is_stored(page: str) -> None:
    messages = trace_numbers.trace(ROOT, page)
    assert messages == [], "\n".join(messages)


@pytest.mark.parametrize("page", trace_numbers.find_other_pages(ROOT))
def test_every_number_beside_a_link_to_results_is_stored(page: str) -> None:
    messages = trace_numbers.trace_other(ROOT, page)
    assert messages == [], "\n".join(messages)


@pytest.mark.parametrize("file", sorted((RESULTS / "data").glob("*.json")), ids=lambda file: file.stem)
def test_a_data_file_says_how_it_was_measured(file: Path) -> None:
    provenance = json.loads(file.read_text("utf-8")).get("provenance", {})
    missing = [name for name in ("command", "commit", "seed", "signature", "machine") if not provenance.get(name)]
    assert missing == [], (
        f"{file.name} has no {missing} under 'provenance': give each as text, with 'recorded in COMMIT' where only the "
        "commit of the file is known, and 'unknown' where nothing is."
    )


def test_no_further_file_leaves_out_how_it_was_measured() -> None:
    """Files of the time before commits were stored have "unknown"; new ones must not."""
    files = [json.loads(file.read_text("utf-8"))["provenance"] for file in (RESULTS / "data").glob("*.json")]
    unknown = {name: sum("unknown" in str(file[name]) for file in files) for name in UNKNOWN}
    assert all(unknown[name] <= most for name, most in UNKNOWN.items()), unknown
    assert (
        f"The commit of the measurement is unknown for {UNKNOWN['commit']} of them, "
        f"the command for {UNKNOWN['command']}, the seed for {UNKNOWN['seed']}, the signature for "
        f"{UNKNOWN['signature']}, the machine for {UNKNOWN['machine']}"
    ) in (RESULTS / "README.md").read_text("utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages and their sources."""
    shutil.copy(ROOT / "README.md", tmp_path)
    folder = tmp_path / "docs" / "results"
    for part in ("data", "tables", "wide"):
        kinds = shutil.ignore_patterns("rows", "figures", "work", *([] if part == "data" else ["*.json"]))
        shutil.copytree(RESULTS / part, folder / part, ignore=kinds)
    for page in (*RESULTS.glob("*.md"), RESULTS / "numbers.json"):
        shutil.copy(page, folder)
    return tmp_path


def change(root: Path, page: str, before: str, after: str) -> None:
    text = (root / page).read_text("utf-8")
    assert before in text
    (root / page).write_text(text.replace(before, after, 1), "utf-8")


@pytest.mark.parametrize("page", NUMBERED)
def test_one_number_changed_by_hand_is_noticed(copy: Path, page: str) -> None:
    assert trace_numbers.trace(copy, page) == []
    numbers = list(trace_numbers.read_numbers(copy, page))
    original = (copy / page).read_text("utf-8")
    lines = original.splitlines(keepends=True)
    for number in {0: numbers[0], 1: numbers[len(numbers) // 2], 2: numbers[-1]}.values():
        digit = str((int(number.text[-1]) + 1) % 10)
        line = lines[number.line - 1].replace(number.text, number.text[:-1] + digit, 1)
        (copy / page).write_text("".join([*lines[: number.line - 1], line, *lines[number.line :]]), "utf-8")
        messages = trace_numbers.trace(copy, page)
        assert messages, number
        assert all(page in message for message in messages)
    (copy / page).write_text(original, "utf-8")
    assert trace_numbers.trace(copy, page) == []


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("README.md", "| 6,344 |", "| 6,744 |"),
        ("README.md", "(280,509 pairs", "(280,519 pairs"),
        (QUALITY, "| 558,831 |", "| 558,331 |"),
        ("docs/results/reproduction.md", "44 to 74 %", "44 to 75 %"),
        ("docs/results/pruning.md", "44,738 clusters", "44,739 clusters"),
    ],
)
def test_a_number_without_a_decimal_point_changed_by_hand_is_noticed(
    copy: Path, page: str, before: str, after: str
) -> None:
    change(copy, page, before, after)
    [message] = trace_numbers.trace(copy, page)
    assert "one without a decimal point" in message


def test_only_paragraphs_beside_a_link_to_results_are_traced_elsewhere(copy: Path) -> None:
    page = "docs/decisions/01-x.md"
    (copy / "docs" / "decisions").mkdir()
    text = "Beta 0.125.\n\nIT has 49.90 BLEU,\nnot 0.375 ([quality](../results/quality.md)).\n"
    (copy / page).write_text(text, "utf-8")
    [message] = trace_numbers.trace_other(copy, page)
    assert message.startswith(f"{page}:4: 0.375 stands in none of its sources")
    assert "docs/results/data/it.json" in message


def test_a_number_that_is_stored_nowhere_is_named_with_what_to_do(copy: Path) -> None:
    change(copy, QUALITY, "49.90", "77.77")
    [message] = trace_numbers.trace(copy, QUALITY)
    line = (copy / QUALITY).read_text("utf-8").split("77.77")[0].count("\n") + 1
    assert f"{QUALITY}:{line}: 77.77" in message
    assert "docs/results/data/it.json" in message
    assert "take the number out" in message


@pytest.mark.parametrize(
    ("before", "after"), [("**55.9** with it", "**55.8** with it"), ("| **67.0** |", "| **67.1** |")]
)
def test_a_figure_of_the_readme_changed_by_hand_is_noticed(copy: Path, before: str, after: str) -> None:
    change(copy, "README.md", before, after)
    assert trace_numbers.trace(copy, "README.md")


def test_a_number_that_another_source_has_by_chance_is_noticed(copy: Path) -> None:
    change(copy, QUALITY, "| 49.90 |", "| 48.64 |")
    [message] = trace_numbers.trace(copy, QUALITY)
    assert "different: 49.90" in message
    assert "--write" in message
    trace_numbers.write_places(copy)
    assert trace_numbers.trace(copy, QUALITY) == []


def test_a_merge_with_conflicts_is_resolved_by_writing_again(copy: Path) -> None:
    file = copy / "docs" / "results" / "numbers.json"
    file.write_text("<<<<<<< ours\n" + file.read_text("utf-8"), "utf-8")
    [message] = trace_numbers.trace(copy, QUALITY)
    assert "--write" in message
    trace_numbers.write_places(copy)
    assert trace_numbers.trace(copy, QUALITY) == []


def test_a_damaged_data_file_is_named(copy: Path) -> None:
    (copy / "docs" / "results" / "data" / "it.json").write_text("{", "utf-8")
    with pytest.raises(SystemExit, match=r"it\.json is no JSON"):
        trace_numbers.trace(copy, QUALITY)


def test_a_difference_keeps_its_p_value(copy: Path) -> None:
    page = "docs/results/pruning.md"
    change(copy, page, "-0.31 (p = 0.019)", "-0.31 (p = 0.829)")
    messages = trace_numbers.trace(copy, page)
    assert any("-0.31 (p = 0.829 stands in no cell of docs/results/tables/pruning-curve.md" in m for m in messages)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| 12.5 |", ["12.5"]),
        ("faiss 1.15.1, torch 2.11.0 and Python 3.11", []),
        ("`--weight 0.5` or\n```\n0.7\n```\n", []),
        ("-0.5, +1.25 and −3.5 [−4.0, -3.0]", ["-0.5", "+1.25", "−3.5", "−4.0", "-3.0"]),
        ("18.9 %, 4.33M, 1,234.5", ["18.9%", "4.33M", "1,234.5"]),
        ("see [2.5](data/x-1.5.json) and 2026-11-18", ["2.5"]),
    ],
)
def test_what_counts_as_a_number(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs/results/page.md").write_text(f"# Page\n\n{text}\n", "utf-8")
    numbers = trace_numbers.read_numbers(tmp_path, "docs/results/page.md")
    assert [number.text + number.unit for number in numbers] == found


@pytest.mark.parametrize(
    ("printed", "stored", "there"),
    [
        ("0.64", 0.6437, True),
        ("0.65", 0.6437, False),
        ("64.4 %", 0.6437, True),
        ("-0.64", 0.6437, False),
        ("0.64", -0.6437, True),
        ("4.33M", 4334365, True),
        ("0.7 GB", 693.2, True),
        ("0.64", "recall 0.64 of 8", True),
    ],
)
def test_numbers_are_rounded_to_their_digits(tmp_path: Path, printed: str, stored: object, there: bool) -> None:
    data = tmp_path / "docs" / "results" / "data"
    data.mkdir(parents=True)
    (data / "x.json").write_text(json.dumps({"part": [stored]}), "utf-8")
    (data.parent / "page.md").write_text(f"{printed} ([data](data/x.json))\n", "utf-8")
    [number] = trace_numbers.read_numbers(tmp_path, "docs/results/page.md")
    assert (trace_numbers.find_place(tmp_path, number) == "data/x.json: part[0]") is there


def test_the_results_are_small() -> None:
    kept = [*RESULTS.glob("*.*"), *(RESULTS / "data").iterdir(), *RESULTS.glob("*/*.md"), *RESULTS.glob("**/*.png")]
    kept += RESULTS.glob("*/rows/*.xz")
    assert sum(file.stat().st_size for file in kept) < 2_000_000
